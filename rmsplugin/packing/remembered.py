"""Remembered: the answers to packing programs, so that a cycle does not solve again what is as it was in the last one.

In a full cluster the same vjobs wait for the same pieces of room, cycle after cycle, for hours. Only answers are kept
that another run would give again: proven ones, and all those of searches with a deterministic limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache

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

    def keep(self, question: Hashable, answer: Answer) -> None:
        """Keep an answer; the one that was not asked for longest goes if there are too many."""
        self._known[question] = answer
        if len(self._known) > self._most:
            self._known.popitem(last=False)


@cache
def answers() -> Answers:
    """Those of this process."""
    return Answers()
