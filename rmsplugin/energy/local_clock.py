"""Local clock: how far the clocks that a tariff goes by are ahead of the times of a schedule. Pure.

Clocks are set for summer time, so a local day may have 23 or 25 hours.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class LocalClock:
    """Seconds of clocks, of which each multiple of 86400 is a midnight.

    Attributes:
        ahead: from each time on, in seconds of the schedule, by how many seconds clocks are ahead of it, until the
            next one. Ascending; the first one is for all times before, too.
    """

    ahead: Sequence[tuple[float, float]]

    @classmethod
    def steady(cls, ahead_s: float = 0.0) -> LocalClock:
        """Clocks that are never set."""
        return cls([(-math.inf, ahead_s)])

    def spans(self, begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
        """What clocks show at the begin and the end of each part of a time in which nobody sets them.

        Args:
            begin_s: of the time, in seconds of the schedule.
            end_s: of the time; after its begin.
        """
        since = [at_s for at_s, _ in self.ahead]
        cuts = [begin_s, *(at_s for at_s in since if begin_s < at_s < end_s), end_s]
        for begin, end in pairwise(cuts):
            ahead_s = self.ahead[max(0, bisect_right(since, begin) - 1)][1]
            yield begin + ahead_s, end + ahead_s
