"""Allowance: time that something may take of all that passes, so that it happens at once when it is rare."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Allowance:
    """A share of the time, saved up to a bound. Several threads may call."""

    def __init__(self, share: float, most_s: float, monotonic: Callable[[], float]) -> None:
        """Begin with all that can be saved up.

        Args:
            share: of the time, above 0, at most 1.
            most_s: no more than this is saved up.
            monotonic: tells the time.
        """
        self._share = share
        self._most_s = most_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._left_s = most_s
        self._since = monotonic()

    def take(self, seconds: float) -> bool:
        """Whether there is anything left; then it is less by so much, and may be less than nothing."""
        with self._lock:
            now = self._monotonic()
            self._left_s = min(self._most_s, self._left_s + (now - self._since) * self._share)
            self._since = now
            if self._left_s <= 0:
                return False
            self._left_s -= seconds
            return True
