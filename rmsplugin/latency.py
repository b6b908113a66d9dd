"""Latency: what lets a thread that has somebody to answer go on while others compute."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: For so long a thread computes while another one waits. Python's default is five times that, and a request waits some
#: ten times: after each read of a socket, and each row of the ledger.
_SWITCH_S = 0.001


def switch_threads_often() -> None:
    """Let no thread of this process that computes keep another one waiting for longer than a millisecond at a time."""
    sys.setswitchinterval(_SWITCH_S)


def keep_for_good() -> None:
    """Look for no garbage among what there is now, modules above all: each collection would go through all of it."""
    gc.collect()
    gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile; whatever has no cycles is freed at once all the same.

    Threads of Python alternate, but not in a collection: it looks at every object that there is. On a site of 5,000
    VMs and 20,000 waiting vjobs all others would wait for 200 ms, several times a cycle.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
