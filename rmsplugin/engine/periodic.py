"""Periodic: an act that is done every so many seconds, and at once when it is woken, in a thread of its own.

It goes by the monotonic clock: a schedule in times of day would not survive a host whose clock is set back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)


class Periodic:
    """A periodic act, done first at the start, and never twice at the same time."""

    def __init__(self, name: str, act: Callable[[], None], period_s: float, *, most: float = 1.0) -> None:
        """Begin nothing yet.

        Args:
            name: of the thread.
            act: the act.
            period_s: pause between two turns; longer if turns would otherwise take more than ``most`` of the time.
            most: share of the time, above 0, at most 1.
        """
        self._name = name
        self._act = act
        self._period_s = period_s
        self._rest = 1 / most - 1
        self._woken = threading.Event()
        self._closed = False
        self._moved = time.monotonic()

    @property
    def still_s(self) -> float:
        """For how many seconds no turn has begun or ended."""
        return time.monotonic() - self._moved

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._take_turns, name=self._name, daemon=True).start()

    def wake(self) -> None:
        """Have the act done soon: at once, or once more when the present turn has ended."""
        self._woken.set()

    def heard(self) -> None:
        """Forget the calls of ``wake`` so far: the present turn serves them."""
        self._woken.clear()

    def close(self) -> None:
        """Begin no more turns. Returns at once."""
        self._closed = True
        self._woken.set()

    def _take_turns(self) -> None:
        while not self._closed:
            self._woken.clear()
            began = self._moved = time.monotonic()
            try:
                self._act()
            except Exception:
                # A fault in one turn must not end all turns.
                log.exception("%s failed", self._name)
            self._moved = time.monotonic()
            if not self._closed:
                self._woken.wait(max(self._period_s, self._rest * (time.monotonic() - began)))
