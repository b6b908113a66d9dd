"""Whole: answers and bounds for all nodes of a cluster at once, by column generation."""

from __future__ import annotations

import contextlib

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.target.choices import UnsuitableError
from rmsplugin.planning.target.columns import Columns
from rmsplugin.planning.target.counts import with_names
from rmsplugin.planning.target.generation import Generation
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.level import Level, levels
from rmsplugin.planning.target.replacement import Replacement

#: The linear program is solved to within this share of its cost before a whole answer is chosen: the rest is rounding.
_NEARLY = 0.002

#: The part of the remaining limits that a linear program may use before a whole answer is chosen.
_SHARE = 0.6

#: The part of the remaining limits that answers may use before bounds.
_ANSWERS_SHARE = 0.9


def search_whole(
    problem: Replacement, incumbent: Incumbent, bound: int, budget: Budget, search: Search
) -> dict[Level, int]:
    """Improve the incumbent, and return a proven lower bound on the cost of the plans of each level, in MiB.

    Answers come first: for a first pool of any cost, with the least possible waits; if the plan's first pool costs
    more, once more with that cost. All vjobs resume early. Then each level is bounded; 0: nothing is proven.

    Args:
        problem: the problem.
        incumbent: the best answer so far; there is one.
        bound: a bound that is known already: an answer of that cost is the best.
        budget: the part of the limits that may be used.
        search: its seed decides for which nodes columns are chosen anew.
    """
    try:
        return _Whole(problem, incumbent, bound, budget, search).improve()
    except UnsuitableError:
        return dict.fromkeys(levels(problem), 0)


class _Whole:
    def __init__(self, problem: Replacement, incumbent: Incumbent, bound: int, budget: Budget, search: Search) -> None:
        self._problem, self._incumbent, self._budget, self._search = problem, incumbent, budget, search
        self._bound = bound
        self._last: Generation | None = None

    @property
    def _cost(self) -> int:
        return self._incumbent.best().plan.cost

    def improve(self) -> dict[Level, int]:
        wait_mib, again = 0, self._problem.wait_mib
        part = self._budget.part(_ANSWERS_SHARE)
        while again > wait_mib and self._cost > self._bound:
            wait_mib = again
            self._answer(Level(wait_mib), part)
            again = self._incumbent.best().plan.first_cost
        return self._bounds()

    def _answer(self, level: Level, budget: Budget) -> None:
        part = budget.part(_SHARE)
        generation = self._generation(level, part, is_relaxed=False)
        generation.relax(self._cost - self._problem.fixed_cost, _NEARLY)
        if generation.bound_mib < self._cost - self._problem.fixed_cost:
            for counts in generation.answers(budget, self._search, _NEARLY):
                self._incumbent.offer(with_names(self._problem, counts))
                if self._cost == self._bound:
                    break

    def _bounds(self) -> dict[Level, int]:
        """The levels with the dearest first pool, most like the solved one, come first; only the least bound counts."""
        if self._cost == self._bound:
            return dict.fromkeys(levels(self._problem), self._bound)
        bounds: dict[Level, int] = {}
        ahead = levels(self._problem)[::-1]
        for at, level in enumerate(ahead):
            if self._budget.exhausted:
                break
            part = self._budget.part(1 / (len(ahead) - at))
            with contextlib.suppress(UnsuitableError):  # of its part, more may be left for the next
                relaxed = self._generation(level, part, is_relaxed=True)
                relaxed.relax(min([self._cost, *bounds.values()]) - self._problem.fixed_cost)
                bounds[level] = self._problem.fixed_cost + relaxed.bound_mib
        return {**dict.fromkeys(ahead, 0), **bounds}

    def _generation(self, level: Level, budget: Budget, is_relaxed: bool) -> Generation:
        """A generation that starts with the prices of the last one."""
        prices = None if self._last is None else self._last.prices
        self._last = Generation(Columns(self._problem, level, is_relaxed, budget), budget, prices)
        return self._last
