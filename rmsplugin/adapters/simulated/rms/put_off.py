"""Put off: a lock whose holder may put off what others have to be told until the lock is given back.

To tell them under the lock would have it held while theirs is taken; who holds theirs, and takes this one, and whoever
tells, would wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class PuttingOffLock:
    """A lock, which its thread may take several times."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._taken = 0
        self._put_off: list[Callable[[], None]] = []

    def put_off(self, act: Callable[[], None]) -> None:
        """Have this thread, which has the lock, do that as soon as it has given it back."""
        self._put_off.append(act)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._taken += 1

    def __exit__(self, *error: object) -> None:
        self._taken -= 1
        acts = list[Callable[[], None]]()
        if not self._taken:
            acts, self._put_off = self._put_off, acts
        self._lock.release()
        for act in acts:
            act()
