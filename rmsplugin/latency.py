"""Latency: lets a thread that has a request to answer go on while other threads compute."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: A thread computes for so long while another one waits. Python's default is five times that, and a request waits some
#: ten times: after each read of a socket, and each row of the ledger.
_SWITCH_S = 0.001


def switch_threads_often() -> None:
    """Let no computing thread of this process keep another thread waiting for longer than a millisecond at a time."""
    sys.setswitchinterval(_SWITCH_S)


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


@contextmanager
def loading() -> Iterator[None]:
    """Collect no garbage while modules are loaded, and exempt them from collection, as ``keep_for_good`` does.

    Of what they make nothing is garbage, and the collector would go through all of it several times.
    """
    with uncollected():
        yield
        gc.freeze()
