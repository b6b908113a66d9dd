"""Lateness: how much later vjobs are because nodes were off, and how many nodes stay on because of that. Pure.

By Little's law the times that vjobs take from submission to end add up to the integral of the number of vjobs over
time. So the share by which switching makes them later is a quotient of two such integrals, and no vjob is followed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rmsplugin.energy.prediction import Need
from rmsplugin.energy.switching import IdleNode

#: What was seen so long ago counts by 1/e.
_MEMORY_S = 7 * 86400.0
#: Nodes stay on from this part of the bound on: vjobs that come later feel a wait, too, and are not counted.
_ACTS_FROM = 0.5
#: So much of the idle time that switching off could use is spent on nodes that stay on.
_SPENT = 0.1


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is at one time, and is until the next one is seen.

    Attributes:
        vjobs: all that are submitted and have not ended.
        behind: those of them that wait, from the first one on that waits for a node to come on.
        off: nodes that are off, or go off.
        kept_from_s: of each idle node that is on, the time from which on it could have been off: see ``kept_from_s``.
    """

    vjobs: int
    behind: int
    off: int
    kept_from_s: Sequence[float] = ()


@dataclass(slots=True)
class Lateness:
    """Integrals over time of what was seen; old ones fade.

    Attributes:
        at_most: the share by which vjobs may be later; None: nothing is done about it.
        late_s: vjob seconds of those that waited for nodes, and of those behind them.
        vjobs_s: vjob seconds of all.
        off_s: node seconds for which nodes were off.
        kept_s: node seconds for which nodes were on that could have been off.
        seen_s: seconds.
    """

    at_most: float | None = None
    late_s: float = 0.0
    vjobs_s: float = 0.0
    off_s: float = 0.0
    kept_s: float = 0.0
    seen_s: float = 0.0
    _at_s: float = math.nan
    _sight: Sight = Sight(0, 0, 0)

    def see(self, sight: Sight, now: float, gap_s: float = math.inf) -> None:
        """Take in the time since the last sight, in which all was as it was then.

        Args:
            sight: what there is now.
            now: the time, in seconds.
            gap_s: a longer time is left out.
        """
        passed_s = now - self._at_s
        if 0 < passed_s <= gap_s:
            self._fade(math.exp(-passed_s / _MEMORY_S))
            last = self._sight
            self.late_s += last.behind * passed_s
            self.vjobs_s += last.vjobs * passed_s
            self.off_s += last.off * passed_s
            self.kept_s += sum(max(0.0, now - max(self._at_s, at_s)) for at_s in last.kept_from_s)
            self.seen_s += passed_s
        self._at_s, self._sight = now, sight

    def _fade(self, by: float) -> None:
        self.late_s *= by
        self.vjobs_s *= by
        self.off_s *= by
        self.kept_s *= by
        self.seen_s *= by

    @property
    def share(self) -> float:
        """The share of their times from submission to end by which vjobs are later."""
        return self.late_s / self.vjobs_s if self.vjobs_s else 0.0

    @property
    def reserve(self) -> int:
        """So many idle nodes stay on, beside those that always do: a tenth of those that could be off on average."""
        return math.floor(_SPENT * (self.off_s + self.kept_s) / self.seen_s) if self._acts else 0

    def held(self, needs: Iterable[Need]) -> int:
        """So many idle nodes do not go off: the first vjob that waits needs them, sooner or later.

        None comes on for that, and only a tenth of what switching off could use is spent.
        """
        if not self._acts or self.kept_s > _SPENT * (self.off_s + self.kept_s):
            return 0
        return max((need.nodes for need in needs), default=0)

    @property
    def _acts(self) -> bool:
        return self.at_most is not None and self.share > 0 and self.share >= _ACTS_FROM * self.at_most


def kept_from_s(node: IdleNode) -> float:
    """The time from which on an idle node could have been off: it has been on, with nothing, for its threshold."""
    return max(node.idle_since_s, node.on_since_s) + node.power.threshold_s
