"""Column generation: the cheapest columns of all nodes that let every VM arrive, and a proven bound on their cost.

At prices that are the dual values of the master program, ``columns`` finds the next columns. At any prices, the
reduced costs of the best columns bound the cost of all answers (Lagrange). Few rows join the nodes: two for
each class of VMs. So in the solution of the linear program all but a handful of groups have one column each. For
the nodes of those groups, columns are chosen one by one, in whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.target.arrivals import Amounts, Ints
from rmsplugin.planning.target.columns import Columns
from rmsplugin.planning.target.counts import Counts, movers_after
from rmsplugin.planning.target.master import Master, Solved, Whole
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.spread import fill

#: The fraction of a MiB of which prices are multiples: a power of 2, so that sums of prices are exact.
_PARTS = 16

#: Groups of kinds of nodes in the master program: 50 are as good, 200 take twice as long.
_GROUPS = 100

#: One of so many groups is chosen for anew, beside those with more than one column; until the answer is good enough.
_EVERY = (8, 4, 2, 1)

#: The part of the remaining limits that one such choice may use: most often the first is good enough.
_CHOICE_SHARE = 0.8

#: The distance from a whole number within which the linear program's solution counts as whole.
_NEARLY = 1e-6

#: Simple steps for an entry of a table when it is priced.
_STEPS_AN_ENTRY = 2


class Generation:
    """The search for the best columns of all kinds of nodes."""

    def __init__(self, columns: Columns, budget: Budget, prices: Amounts | None = None) -> None:
        """Begin without columns.

        Args:
            columns: the source of columns.
            budget: the part of the limits that may be used.
            prices: a start; those of a similar program are a good one.
        """
        self._columns, self._budget = columns, budget
        kinds = np.arange(len(columns.times))
        self._group_of: Ints = kinds % min(_GROUPS, max(1, len(kinds)))
        self._master = Master(columns, self._group_of)
        self._solved: Solved | None = None
        self.prices: Amounts = np.zeros_like(columns.needs) if prices is None else prices  # the best so far
        self.bound_mib = 0  # proven, for all answers within the columns' rules; without the fixed cost

    def relax(self, enough: float = math.inf, nearly: float = 0.0) -> None:
        """Add columns until the linear program is solved, ``nearly`` so (share of its cost), or time is up.

        A bound of ``enough`` ends it as well.
        """
        prices, is_new, best = self.prices, True, -math.inf
        while is_new:
            # Halfway between the prices of the best bound and the master's: the master's own prices swing.
            for tried in ((self.prices + prices) / 2, prices):
                bound, is_new = self._price(tried)
                if bound > best:
                    best, self.prices = bound, tried
                if is_new:
                    break
            least = math.inf if self._solved is None else self._solved.cost
            if not is_new or self._budget.exhausted or self.bound_mib >= enough or best >= (1 - nearly) * least:
                return
            solved = self._master.solve(self._budget)
            if solved is None:
                return
            self._solved, prices = solved, solved.prices

    def _price(self, prices: Amounts) -> tuple[float, bool]:
        """The bound at these prices, in MiB, and whether a column was found that helps the master program."""
        columns, unit = self._columns, self._columns.unit_mib
        prices = np.round(prices * _PARTS) / _PARTS * [np.ones(len(columns.has_second)), columns.has_second]
        self._budget.charge(columns.entries * _STEPS_AN_ENTRY)
        reduced, best = columns.best(prices)
        bound = float(reduced @ columns.times) + float((prices * columns.needs).sum())
        self.bound_mib = max(self.bound_mib, -(-math.ceil(bound) // unit) * unit)
        return bound, self._master.add(best)

    def answers(self, budget: Budget, search: Search, nearly: float = 0.0) -> Iterator[Counts]:
        """Whole answers of the columns found so far, better and better ones.

        At first each group has its most used column, which takes no time. A group with only one column keeps it. For
        the kinds of all other groups, and of more and more groups, columns are chosen anew, until the cost is as near
        to the bound as requested. VMs that are left over go where there is room.
        """
        if self._solved is None:
            return
        yield from self._complete(self._master.most_used(self._solved))
        is_whole = self._master.is_whole(self._solved)
        best = math.inf
        for every in _EVERY:
            if budget.exhausted or best <= self.bound_mib * (1 + nearly):
                return
            is_free = (self._group_of + search.seed) % every == 0
            is_free |= ~is_whole[self._group_of]
            chosen = self._master.choose(self._solved, is_free, budget.part(_CHOICE_SHARE))
            if chosen.cost < best:
                best = chosen.cost
                yield from self._complete(chosen)

    def _complete(self, whole: Whole) -> Iterator[Counts]:
        problem = self._columns.problem
        counts = self._columns.counts(whole.columns, whole.times)
        _drop_surplus(problem, counts)
        if fill(problem, counts):
            yield counts


def _drop_surplus(problem: Replacement, counts: Counts) -> None:
    """The rows ask for enough arrivals; the surplus is left out, late ones first."""
    surplus = [0] * len(problem.classes)
    for arrivals in (*counts.early, *counts.late):
        for k, count in arrivals.items():
            surplus[k] += count
    for mover in movers_after(problem, counts.kept):
        surplus[mover.vm_class] -= 1
    for arrivals in (*counts.late, *counts.early):
        for k in [k for k in arrivals if surplus[k] > 0]:
            cut = min(arrivals[k], surplus[k])
            surplus[k] -= cut
            arrivals[k] -= cut
            if not arrivals[k]:
                del arrivals[k]
