"""Levels: the integer program, once for each cost that the first pool of a plan can have.

Late actions wait for the first pool, whose cost depends on which actions are early: a product. Given that cost the
program is linear, and has a good linear relaxation; so it is solved for each cost. Every plan lies in one of the
levels, so the least of their bounds holds for all. A level with a bound no better than the best cost is not searched.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.packing.budget import MATHOPT_VARIABLE, Budget
from rmsplugin.planning.target.counts import counts_of, with_names
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.level import Level
from rmsplugin.planning.target.node_terms import Scope
from rmsplugin.planning.target.program import Program, Solved, variables
from rmsplugin.planning.target.replacement import Replacement
from rmsplugin.planning.target.solver import is_too_large


def search_levels(
    problem: Replacement,
    kept: list[Kept],
    incumbent: Incumbent,
    budget: Budget,
    bounds: dict[Level, int],
) -> int:
    """Improve the incumbent, and return a proven lower bound on the cost of every plan, in MiB.

    Levels that can hold nothing better are left out. Of the others the most promising comes first: once for answers
    that the planner can carry out, and once for the bound. Each may use as much of the rest as all those after it.

    Args:
        problem: the problem.
        kept: the kept VMs of each place, with its bound.
        incumbent: the best answer so far; there is one.
        budget: the rest of the limits.
        bounds: the proven bound of each level; raised.
    """
    solver = _Levels(problem, kept, incumbent, budget)
    ahead = sorted(bounds, key=lambda level: bounds[level])
    for at, level in enumerate(ahead):
        if bounds[level] < solver.cost:
            solver.improve(level, 1 / (2 * len(ahead) - at))
    for at, level in enumerate(ahead):
        if bounds[level] < solver.cost:
            bounds[level] = max(bounds[level], solver.bound(level, 1 / (len(ahead) - at)))
    return min(bounds.values())


@dataclass(frozen=True, slots=True)
class _Levels:
    problem: Replacement
    kept: list[Kept]
    incumbent: Incumbent
    budget: Budget

    @property
    def cost(self) -> int:
        """The cost of the best answer, in MiB."""
        return self.incumbent.best().plan.cost

    def bound(self, level: Level, share: float) -> int:
        """Bound the cost of the plans of a level (0: no time is left); an answer is taken if one is found."""
        solved = self._solve(level, share, Scope.ALL)
        if solved is None:
            return 0
        return self.cost if solved.infeasible else solved.lower_bound

    def improve(self, level: Level, share: float) -> None:
        """Look for a better answer in a level, among those that the planner can carry out."""
        self._solve(level, share, Scope.DIRECT)

    def _solve(self, level: Level, share: float, scope: Scope) -> Solved | None:
        """Solve a program; None: there is not enough time for it."""
        budget, incumbent, problem = self.budget, self.incumbent, self.problem
        size = variables(problem)
        if is_too_large(size, budget):
            return None
        budget.charge(MATHOPT_VARIABLE * size)
        if budget.exhausted:
            return None
        best = incumbent.best()
        start = counts_of(problem, best.target, best.plan.early_arrivals())
        # Answers dearer than the best are of no interest; but the solver may begin from its hint.
        most_mib = max(best.plan.cost, start.total_mib(problem, level.wait_mib))
        program = Program(problem, self.kept, level, incumbent.most_nodes, most_mib, scope)
        solved = program.solve(budget.limits(budget.left * share), start)
        budget.charge_run(solved.units, solved.seconds)
        if solved.counts is not None:
            incumbent.offer(with_names(problem, solved.counts))
        return solved
