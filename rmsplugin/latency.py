"""Latency: lets a thread that has a request to answer go on while other threads compute."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: A thread computes for so long while another one waits. Python's default is five times that, and a request waits some
#: ten times: after each read of a socket, and each row of the ledger.
_SWITCH_S = 0.001

#: After so many pieces of work all is gone through: after cycles of 30 s, once an hour.
_EXEMPTED_MOST = 120


def switch_threads_often() -> None:
    """Let no computing thread of this process keep another thread waiting for longer than a millisecond at a time."""
    sys.setswitchinterval(_SWITCH_S)


class _Thread(threading.local):
    """Whether this thread goes first where several wait for the same."""

    is_first = False


_thread = _Thread()


def answer_requests() -> None:
    """From now on this thread answers requests: it goes first where several wait for the same."""
    _thread.is_first = True


@contextmanager
def going_first() -> Iterator[None]:
    """This thread goes first meanwhile, like those that answer requests: many wait for what it does."""
    before, _thread.is_first = _thread.is_first, True
    try:
        yield
    finally:
        _thread.is_first = before


def goes_first() -> bool:
    """Whether this thread goes first where several wait for the same."""
    return _thread.is_first


def keep_for_good() -> None:
    """Exempt all present objects, modules above all, from garbage collection, which would go through all of them."""
    gc.collect()
    gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile; objects without cycles are freed at once all the same.

    Threads of Python alternate, but not during a collection: it looks at every object. On a site of 5,000
    VMs and 20,000 waiting vjobs, all other threads would wait for 200 ms, several times a cycle.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Sparing:
    """Spares other threads the collection of what a large piece of work has made, of which nearly nothing is garbage.

    At 1,000 nodes all threads waited for 300 ms after each cycle. So what such work leaves is exempted from collection,
    and gone through only once in a while.
    """

    def __init__(self) -> None:
        """Begin; nothing has been exempted yet."""
        self._exempted = 0

    @contextmanager
    def meanwhile(self, is_much: Callable[[], bool]) -> Iterator[None]:
        """Collect no garbage meanwhile; exempt what is there afterwards if it ``is_much``, as is asked then."""
        self._go_through_once_in_a_while()
        with uncollected():
            yield
            if is_much():
                self._exempt()

    def exempt(self) -> None:
        """Exempt what is there now, of which nearly nothing is garbage: what a large piece of work begins with."""
        self._go_through_once_in_a_while()
        self._exempt()

    def _go_through_once_in_a_while(self) -> None:
        if self._exempted >= _EXEMPTED_MOST:
            gc.unfreeze()
            keep_for_good()
            self._exempted = 0

    def _exempt(self) -> None:
        gc.freeze()
        self._exempted += 1


@contextmanager
def loading() -> Iterator[None]:
    """Collect no garbage while modules are loaded, and exempt them from collection, as ``keep_for_good`` does.

    Of what they make nothing is garbage, and the collector would go through all of it several times.
    """
    with uncollected():
        yield
        gc.freeze()
