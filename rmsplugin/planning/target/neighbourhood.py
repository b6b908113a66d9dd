"""Neighbourhood: improves the best answer part by part: some nodes are placed anew, all others keep their VMs.

It is a large neighbourhood search. A part has nodes that act, on which VMs leave, arrive or resume, the dearest first;
and partners. The integer program of the whole cluster solves it. Once all nodes that act were in a part in vain,
parts become twice as large. When they become too large for the rest of the limits, they become half as large again,
with nodes that are drawn at random from further and further behind. If one part has all that acts, the costs of the
first pool are tried value by value: where a handful of VMs moves, plans differ in one VM that waits for a small VM or
for a large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from rmsplugin.packing.budget import MATHOPT_VARIABLE, Budget
from rmsplugin.planning.target.counts import Counts, counts_of, with_names
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.level import Level, first_costs
from rmsplugin.planning.target.node_terms import Scope
from rmsplugin.planning.target.partners import Partners
from rmsplugin.planning.target.program import Part, Program, Solved, variables
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.solver import is_too_large

#: Nodes of the smallest parts.
NODES = 16


class Neighbourhoods:
    """The search, with its state."""

    def __init__(
        self, problem: Replacement, kept: list[Kept], incumbent: Incumbent, budget: Budget, seed: int = 0
    ) -> None:
        """Begin the search.

        Args:
            problem: the problem.
            kept: the kept VMs of each place, with its bound.
            incumbent: the best answer so far; there is one.
            budget: the rest of the limits.
            seed: decides which nodes are brought together.
        """
        self._problem, self._kept, self._incumbent, self._budget = problem, kept, incumbent, budget
        self._chance, self._partners = Random(seed), Partners(problem, budget)
        self._size, self._breadth = NODES, 1
        self._done: set[int] = set()  # nodes that were in a part since one part had all that act
        self._is_over = False
        self._pause = 0.0  # the part of the limits that the last plan took
        self._read()

    def improve_small(self, bound_mib: int) -> None:
        """Improve the incumbent as long as one part has all nodes that act, and no part was too large.

        Args:
            bound_mib: nothing costs less.
        """
        self._size = max(NODES, len(self._acting))
        while self._goes_on(bound_mib) and self._breadth == 1 and len(self._acting) <= self._size:
            self._step()

    def improve(self, bound_mib: int) -> None:
        """Improve the incumbent until the budget is used up, or nothing costs less; the bound is ``bound_mib``."""
        while self._goes_on(bound_mib):
            self._step()
        self._offer()

    def _goes_on(self, bound_mib: int) -> bool:
        cost = self._incumbent.best().plan.cost
        return cost > bound_mib and not self._budget.exhausted and not self._is_over and bool(self._acting)

    def _read(self) -> None:
        """Begin with the incumbent."""
        problem, best = self._problem, self._incumbent.best()
        first_mib = max(problem.wait_mib, best.plan.first_cost)
        self._level = Level(first_mib, first_mib)
        self._counts = counts_of(problem, best.target, best.plan.early_arrivals())
        cost_mib = [self._counts.cost_mib(problem, i, first_mib) for i in range(len(problem.places))]
        self._cost_mib = problem.fixed_cost + sum(cost_mib)  # the cost of the counts, by the program
        excess = {
            i: cost_mib[i] - self._kept[i].bound_mib
            for i, place in enumerate(problem.places)
            if place.images or self._counts.changes(problem, i)
        }
        self._acting = sorted(excess, key=lambda i: (-excess[i], i))
        self._is_new, self._began = False, self._budget.left

    def _step(self) -> None:
        """Solve one part. The next one is twice as large if that was in vain, or half as large if it was too large."""
        part, has_all = self._draw(), len(self._acting) <= self._size
        self._done.update(part.nodes)
        self._has_found, size = False, variables(self._problem, part)
        if (self._solve_all if has_all else self._solve_some)(part, size):
            if not self._has_found:
                self._is_over = len(part.nodes) == len(self._problem.places)
                self._size *= 2
        else:
            self._is_over = self._size == 2  # the smallest part
            self._size, self._breadth = max(2, self._size // 2), 2 * self._breadth

    def _draw(self) -> Part:
        """All nodes that act, or half a part of them; and partners."""
        chosen = set(self._acting)
        if len(chosen) > self._size:
            ahead = [i for i in self._acting if i not in self._done]
            if not ahead:
                ahead = self._acting
                self._done.clear()
            chosen = set(self._pick(ahead, self._size // 2))
        partners = self._partners.of(self._counts, chosen)
        return Part(sorted({*chosen, *self._pick(partners, self._size - len(chosen))}), self._counts)

    def _pick(self, ordered: Sequence[int], number: int) -> Sequence[int]:
        """Take so many from the front."""
        front = ordered[: max(0, number) * self._breadth]
        return front if len(front) <= number else self._chance.sample(front, number)

    def _solve_all(self, part: Part, size: int) -> bool:
        """Look for a better answer, whatever its first pool costs; returns whether the part was small enough."""
        ordered, is_solved = first_costs(self._problem), True
        for cost_mib in (*ordered[-1:], *ordered[:-1]):  # no action needs to wait for the dearest
            # Only answers cheaper than the incumbent count.
            solved = self._solve(part, size, Level(cost_mib, cost_mib), self._incumbent.best().plan.cost - 1, None)
            if solved is not None and solved.counts is not None:
                self._has_found |= self._incumbent.offer(with_names(self._problem, solved.counts))
            is_solved &= solved is not None and solved.is_optimal
        if self._has_found:
            self._read()
        return is_solved

    def _solve_some(self, part: Part, size: int) -> bool:
        """Look for cheaper counts with the same cost of the first pool; returns whether the part was small enough."""
        solved = self._solve(part, size, self._level, self._cost_mib, part.counts)
        if solved is None:
            return False
        if solved.counts is not None and solved.cost is not None and solved.cost < self._cost_mib:
            self._counts, self._cost_mib = solved.counts, solved.cost
            self._is_new = self._has_found = True
            if self._began - self._budget.left >= self._pause:
                self._offer()
        return solved.is_optimal

    def _solve(self, part: Part, size: int, level: Level, most_mib: int, start: Counts | None) -> Solved | None:
        """Solve a program; None: there is not enough time for it."""
        budget = self._budget
        if is_too_large(size, budget):
            return None
        budget.charge(MATHOPT_VARIABLE * size)
        if budget.exhausted:
            return None
        most_nodes = self._incumbent.most_nodes
        program = Program(self._problem, self._kept, level, most_nodes, most_mib, Scope.DIRECT, part)
        solved = program.solve(budget.limits(budget.left), start)
        budget.charge_run(solved.units, solved.seconds)
        return solved

    def _offer(self) -> None:
        """Plan for the counts, if they are better; parts take as much time as plans."""
        if self._is_new:
            before = self._budget.left
            self._incumbent.offer(with_names(self._problem, self._counts))
            self._pause = before - self._budget.left
            self._read()
