"""Remembered: the answers to packing programs, so that a cycle does not solve again what is as it was in the last one.

In a full cluster the same vjobs wait for the same pieces of room, cycle after cycle, for hours. Only answers are kept
that another run would give again: proven ones, and all those of searches with a deterministic limit.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache

from rmsplugin.packing.search import Search

#: The number of answers that a process keeps: those of some cycles. Each has a few KiB.
_MOST = 200

#: The numbers of VMs, where there are any, by the positions of their class and of their node in the question.
Counts = dict[tuple[int, int], int]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a program.

    Attributes:
        counts: where the VMs go; None if no place for all was found.
        units: the deterministic units that the search took.
        bound: what no answer costs less than; None if there can be no answer, or if nobody asks.
    """

    counts: Counts | None
    units: float
    bound: int | None = None


class Answers:
    """The newest answers, by their questions: whatever the answer depends on. May be asked by several threads."""

    def __init__(self, most: int = _MOST) -> None:
        """Know nothing yet, and keep ``most`` answers at most: those that were given or asked for last."""
        self._most = most
        self._known: OrderedDict[Hashable, Answer] = OrderedDict()

    def find(self, question: Hashable) -> Answer | None:
        """The answer that was kept; None if there is none any more."""
        answer = self._known.pop(question, None)
        if answer is not None:
            self._known[question] = answer  # the newest one
        return answer

    def within(self, limits: Search, question: Hashable) -> Answer | None:
        """The answer that a run with these limits would give; None if it is not known.

        Args:
            limits: those on which the answer depends: see ``Budget.determines``.
            question: the program, whatever else its answer depends on.
        """
        proven = self.find((_unlimited(limits), question))
        most = math.inf if limits.deterministic_limit is None else limits.deterministic_limit
        if proven is not None and proven.units <= most:  # a run with less time might not get there
            return proven
        return self.find((limits, question))

    def learn(self, limits: Search, question: Hashable, answer: Answer, *, is_proven: bool) -> None:
        """Keep the answer of a run with these limits; a proven one for all limits in which there is time for it."""
        self.keep((_unlimited(limits) if is_proven else limits, question), answer)

    def keep(self, question: Hashable, answer: Answer) -> None:
        """Keep an answer; the one that was not asked for longest goes if there are too many."""
        self._known[question] = answer
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _unlimited(limits: Search) -> Search:
    return replace(limits, deterministic_limit=None)


@cache
def answers() -> Answers:
    """Those of this process."""
    return Answers()
