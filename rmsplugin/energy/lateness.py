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
MEMORY_S = 7 * 86400.0
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


@dataclass(frozen=True, slots=True)
class LateSums:
    """Integrals over time of what was seen.

    Attributes:
        late_s: vjob seconds of those that waited for nodes, and of those behind them.
        vjobs_s: vjob seconds of all.
        off_s: node seconds for which nodes were off.
        kept_s: node seconds for which nodes were on that could have been off.
        seen_s: seconds.
    """

    late_s: float = 0.0
    vjobs_s: float = 0.0
    off_s: float = 0.0
    kept_s: float = 0.0
    seen_s: float = 0.0

    def plus(self, other: LateSums, times: float = 1.0) -> LateSums:
        """Both together, the other one so many times."""
        return LateSums(
            self.late_s + times * other.late_s,
            self.vjobs_s + times * other.vjobs_s,
            self.off_s + times * other.off_s,
            self.kept_s + times * other.kept_s,
            self.seen_s + times * other.seen_s,
        )

    @property
    def share(self) -> float:
        """The share of their times from submission to end by which vjobs are later."""
        return self.late_s / self.vjobs_s if self.vjobs_s else 0.0


@dataclass(slots=True)
class Lateness:
    """What was seen until now; what is old fades.

    Attributes:
        at_most: the share by which vjobs may be later; None: nothing is done about it.
        sums: of what was seen.
    """

    at_most: float | None = None
    sums: LateSums = LateSums()
    _at_s: float = math.nan
    _sight: Sight = Sight(0, 0, 0)

    def see(self, sight: Sight, now: float, gap_s: float = math.inf) -> LateSums:
        """Take in the time since the last sight, in which all was as it was then.

        Args:
            sight: what there is now.
            now: the time, in seconds.
            gap_s: a longer time is left out.

        Returns:
            What was taken in.
        """
        passed_s, last, found = now - self._at_s, self._sight, LateSums()
        if 0 < passed_s <= gap_s:
            kept_s = sum(max(0.0, now - max(self._at_s, at_s)) for at_s in last.kept_from_s)
            found = LateSums(last.behind * passed_s, last.vjobs * passed_s, last.off * passed_s, kept_s, passed_s)
            self.sums = found.plus(self.sums, _faded(passed_s))
        self._at_s, self._sight = now, sight
        return found

    def recall(self, sums: LateSums, ago_s: float) -> None:
        """Take in what was seen before, so long ago."""
        self.sums = self.sums.plus(sums, _faded(ago_s))

    @property
    def share(self) -> float:
        """The share of their times from submission to end by which vjobs are later."""
        return self.sums.share

    @property
    def reserve(self) -> int:
        """So many idle nodes stay on, beside those that always do: a tenth of those that could be off on average."""
        seen = self.sums
        return math.floor(_SPENT * (seen.off_s + seen.kept_s) / seen.seen_s) if self._acts else 0

    def held(self, needs: Iterable[Need]) -> int:
        """So many idle nodes do not go off: the first vjob that waits needs them, sooner or later.

        None comes on for that, and only a tenth of what switching off could use is spent.
        """
        if not self._acts or self.sums.kept_s > _SPENT * (self.sums.off_s + self.sums.kept_s):
            return 0
        return max((need.nodes for need in needs), default=0)

    @property
    def _acts(self) -> bool:
        return self.at_most is not None and self.share > 0 and self.share >= _ACTS_FROM * self.at_most


def sentence(share: float, at_most: float | None) -> str:
    """For a person: what the share is, of what, and what the setting allows.

    Args:
        share: of their times from submission to end by which vjobs are later.
        at_most: what it may be; None: no bound is set.
    """
    bound = "power.late_at_most is not set" if at_most is None else f"power.late_at_most allows {_percent(at_most)}"
    return f"{spent(share)}; {bound}"


def spent(share: float) -> str:
    """The same where nobody knows what the setting is."""
    return (
        f"vjobs spent {_percent(share)} of their time from submission to end waiting for nodes to come on, or behind "
        "vjobs that did"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + " %"


def _faded(ago_s: float) -> float:
    return math.exp(-max(0.0, ago_s) / MEMORY_S)


def kept_from_s(node: IdleNode) -> float:
    """The time from which on an idle node could have been off: it has been on, with nothing, for its threshold."""
    return max(node.idle_since_s, node.on_since_s) + node.power.threshold_s
