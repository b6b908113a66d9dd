"""Local time: how far the clocks of this host are ahead of UTC, and when they are set for summer time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rmsplugin.energy.local_clock import LocalClock

#: No time zone sets its clocks twice within so many seconds.
_STEP_S = 86400.0


def local_clock(since: float, until: float) -> LocalClock:
    """The clock of this host, in its time zone, from one time to a later one, in seconds since the epoch."""
    return clock_of(lambda moment: time.localtime(moment).tm_gmtoff, since, until)


def clock_of(ahead_s: Callable[[float], float], since: float, until: float) -> LocalClock:
    """The clock of a time zone.

    Args:
        ahead_s: by how many seconds the zone is ahead of UTC, at a time in seconds since the epoch.
        since: begin of the time that matters.
        until: its end.
    """
    return LocalClock([(since, ahead_s(since)), *_settings(ahead_s, since, until)])


def _settings(ahead_s: Callable[[float], float], since: float, until: float) -> Iterator[tuple[float, float]]:
    """When clocks are set, to the second, and by how much they are ahead from then on."""
    before = since
    while before < until:
        after = min(before + _STEP_S, until)
        if ahead_s(before) != ahead_s(after):
            at = _first_after(ahead_s, before, after)
            yield at, ahead_s(at)
        before = after


def _first_after(ahead_s: Callable[[float], float], before: float, after: float) -> float:
    """The first whole second at which the zone is as far ahead as at ``after``, which it is not at ``before``."""
    low, high = int(before // 1), int(-(-after // 1))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ahead_s(middle) == ahead_s(before) else (low, middle)
    return float(high)
