"""Turns: what keeps threads that compute from keeping those waiting that have somebody to answer."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: For so long a thread computes while another one waits. Python's default is five times that, and an answer takes some
#: ten turns: each read of a socket and each row of the ledger ends one.
_TURN_S = 0.001


def take_short_turns() -> None:
    """Let the threads of this process take turns so often that an answer does not wait for those that compute."""
    sys.setswitchinterval(_TURN_S)


def keep_for_good() -> None:
    """Look for no garbage among what there is now, modules above all: each collection would go through all of it."""
    gc.collect()
    gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile; whatever has no cycles is freed at once all the same.

    Threads take turns in Python, but not in a collection: it looks at every object that there is. On a site of 5,000
    VMs and 20,000 waiting vjobs all others would wait for 200 ms, several times a cycle.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
