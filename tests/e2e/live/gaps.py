"""Gaps: for how long nobody has decided, of each group that has an engine of its own, or of all nodes together."""

from __future__ import annotations

from collections.abc import Iterable

from e2e.live.site import Decision


class Gaps:
    """The longest time between two decisions that follow each other, from the first one that is noted on."""

    def __init__(self, groups: Iterable[str]) -> None:
        """Have seen none; ``groups``: whose decisions are waited for."""
        self.last: dict[str, float] = dict.fromkeys(groups, 0.0)  # by the clock; 0: none
        self.longest_s: dict[str, float] = dict.fromkeys(self.last, 0.0)

    def note(self, decisions: Iterable[Decision]) -> None:
        """Take in what engines have told just now, in whichever order."""
        for each in sorted(decisions, key=lambda each: each.time):
            if (before := self.last[each.group]) and each.time > before:
                self.longest_s[each.group] = max(self.longest_s[each.group], each.time - before)
            self.last[each.group] = max(before, each.time)

    def all_since(self, moment: float) -> bool:
        """Whether there is a decision of each group after a moment."""
        return min(self.last.values()) > moment
