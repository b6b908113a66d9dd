"""SteadyClock: seconds since the epoch that never jump, whatever is done to the host's clock.

An administrator, or NTP, may set the host's clock forward or back by hours. Time limits, back-off, silence and patience
depend on differences of times, and proofs on their order. So the engine's clock runs on at its own pace, and approaches
the host's time slowly, as chrony does. Times given by the RMS are converted to the engine's clock (``of_the_rms``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from rmsplugin.adapters.rms.base import RmsSnapshot

#: The clock runs by this share faster or slower than time while it differs from the host's clock.
_RATE = 0.1
#: A difference of so many seconds is reported as a problem.
_TOLD_S = 60.0


class SteadyClock:
    """A clock that begins with the host's time. Several threads may ask."""

    def __init__(
        self, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the clocks of the host: seconds since the epoch, which may jump, and seconds that pass."""
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last = monotonic()
        self._time = wall()

    def not_before(self, moment: float) -> None:
        """Never tell a time before ``moment``: what happened before the engine's start stays in the past."""
        with self._lock:
            self._time = max(self._time, moment)

    def now(self) -> float:
        """Seconds since the epoch, never less than before."""
        with self._lock:
            self._advance()
            return self._time

    def ahead_s(self) -> float:
        """Seconds by which this clock is ahead of the host's clock; negative: behind it."""
        with self._lock:
            wall = self._advance()
            return self._time - wall

    def problem(self) -> str:
        """A sentence about a fault of the host's clock; empty if there is none."""
        ahead_s = self.ahead_s()
        if abs(ahead_s) < _TOLD_S:
            return ""
        how = f"set {'back' if ahead_s > 0 else 'forward'} by about {abs(ahead_s) / 60:.0f} minutes"
        return f"the clock of this host was {how}: the engine keeps its own time, and approaches the new one slowly"

    def _advance(self) -> float:
        """Advance this clock to now. Returns the host's time."""
        before, wall, monotonic = self._monotonic(), self._wall(), self._monotonic()
        passed = max(0.0, monotonic - self._last)
        self._last = monotonic
        expected = self._time + passed
        # A delay between two readings, on a busy machine, is not a jump of the clock.
        if abs(wall - expected) <= _RATE * passed + (monotonic - before):
            self._time = max(self._time, wall)
        else:
            self._time = expected + (_RATE if wall > expected else -_RATE) * passed
        return wall


def of_the_rms(snapshot: RmsSnapshot, ahead_s: float) -> RmsSnapshot:
    """The snapshot with its times converted to a clock that is ``ahead_s`` ahead of the RMS's; 0 (no time) stays 0.

    Times of submission are not converted: they are the order of the queue, and the difference changes between readings.
    """
    shift = round(ahead_s)
    if not shift:
        return snapshot

    def moved(moment: int) -> int:
        return moment + shift if moment else 0

    return replace(
        snapshot,
        jobs=tuple(
            replace(
                job,
                start_time=moved(job.start_time),
                end_time=moved(job.end_time),
                preempt_time=moved(job.preempt_time),
                accrue_time=moved(job.accrue_time),
            )
            for job in snapshot.jobs
        ),
        reservations={
            name: replace(each, start_time=moved(each.start_time), end_time=moved(each.end_time))
            for name, each in snapshot.reservations.items()
        },
    )
