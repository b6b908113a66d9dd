"""Fair lock: a lock that a thread may take several times, and that some threads get before all others.

A lock of Python goes to whoever is there: a thread that has just given it back mostly has it again before one that
waits has woken. Where ten threads start and stop vjobs, a request waited for 400 ms while they had it in turns. So a
thread that answers a request goes first, and the one of the cycle.
"""

from __future__ import annotations

import threading

from rmsplugin.latency import goes_first


class FairLock:
    """Of the threads that go first, none waits for more than two of the rest."""

    def __init__(self) -> None:
        """Nobody has it."""
        self._lock = threading.Lock()
        self._first = threading.Lock()  # held by a thread that goes first and waits
        self._next = threading.Lock()  # held by the one of all others that waits
        self._owner, self._times = 0, 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:  # another thread's name may be there, but never this one's
            if goes_first():
                with self._first:
                    self._lock.acquire()
            else:
                with self._next:
                    with self._first:
                        pass
                    self._lock.acquire()
            self._owner = me
        self._times += 1

    def __exit__(self, *_: object) -> None:
        self._times -= 1
        if not self._times:
            self._owner = 0
            self._lock.release()
