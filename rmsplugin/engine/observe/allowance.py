"""Allowance: the share of all time that an activity may take. A rare activity happens at once, a frequent one waits."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Allowance:
    """A share of the time, saved up to a bound. Several threads may call."""

    def __init__(self, share: float, most_s: float, monotonic: Callable[[], float]) -> None:
        """Begin with the most that can be saved up.

        Args:
            share: of the time, above 0, at most 1.
            most_s: the most that is saved up, in seconds.
            monotonic: tells the time.
        """
        self._share = share
        self._most_s = most_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._left_s = most_s
        self._since = monotonic()

    def take(self, seconds: float) -> bool:
        """Take ``seconds`` if anything is left, and return whether it was; what is left then may be negative."""
        with self._lock:
            now = self._monotonic()
            self._left_s = min(self._most_s, self._left_s + (now - self._since) * self._share)
            self._since = now
            if self._left_s <= 0:
                return False
            self._left_s -= seconds
            return True
