"""Levels: the integer program, once for all plans, and once for each cost that their first pool can have.

Late actions wait for the first pool, whose cost depends on which actions are early: a product. Given that cost the
program is linear, and has a good linear relaxation; so it is solved for each. Every plan lies in one of the levels, the
least of their bounds is one for all, and a level without anything better than what is known is closed within moments.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.packing.budget import MATHOPT_VARIABLE, Budget
from rmsplugin.planning.counts import counts_of, with_names
from rmsplugin.planning.incumbent import Incumbent
from rmsplugin.planning.keep import Kept
from rmsplugin.planning.node_terms import Level
from rmsplugin.planning.program import Program, Scope, Solved, variables
from rmsplugin.planning.replacement import Replacement

#: More different costs than that share levels, which is as valid, only weaker.
_MOST_LEVELS = 6

#: Of what is left of the limits, what the first program may use: it often settles everything.
_FIRST_SHARE = 0.4


def levels(problem: Replacement) -> list[Level]:
    """All that the first pool can cost, the cheapest first: that program is small, and its answer helps the others."""
    least = problem.wait_mib
    costs = {least} | {mover.cost for mover in problem.movers}
    for place in problem.places:
        for k in place.residents:
            costs.add(problem.classes[k].memory_mib)
        for k, _ in place.images:
            costs |= {problem.classes[k].memory_mib, 2 * problem.classes[k].memory_mib}
    ordered = sorted(cost for cost in costs if cost >= least)
    size = -(-len(ordered) // _MOST_LEVELS)
    parts = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    return [Level(part[0], part[-1]) for part in parts]


def search_levels(
    problem: Replacement,
    kept: list[Kept],
    incumbent: Incumbent,
    budget: Budget,
    spacious: bool = True,
    pooled: bool = False,
) -> int:
    """Improve the incumbent, and return a proven lower bound on the cost of every plan, in MiB.

    Args:
        problem: what is asked.
        kept: of each place, with its bound.
        incumbent: the best answer so far; there is one.
        budget: what is left of the limits.
        spacious: there is room enough that most likely nothing waits; then the program for all plans settles it.
        pooled: only bound, by programs in which arrivals count for all nodes together.
    """
    ahead = levels(problem)
    solver = _Levels(problem, kept, incumbent, budget, Scope.POOLED if pooled else Scope.ALL)
    bound = 0
    if len(ahead) == 1 or spacious:
        bound = solver.settle(Level(ahead[0].wait_mib), _FIRST_SHARE)
        if bound >= (incumbent.cost or 0) or len(ahead) == 1:
            return bound
    least = None
    for at, level in enumerate(ahead):
        if budget.exhausted:
            return bound
        found = solver.settle(level, 1 / (len(ahead) - at))
        least = found if least is None else min(least, found)
    return max(bound, least or 0)


@dataclass(frozen=True, slots=True)
class _Levels:
    problem: Replacement
    kept: list[Kept]
    incumbent: Incumbent
    budget: Budget
    scope: Scope

    def settle(self, level: Level, share: float) -> int:
        """Solve one level for something better than the incumbent; its bound.

        Where the best counts need detours, which the planner does not make, the best without are looked for as well.
        """
        solved = self._solve(level, share, self.scope)
        if solved is None:
            return 0
        if solved.has_detours and solved.cost is not None and solved.cost < (self.incumbent.cost or 0):
            self._solve(level, share, Scope.DIRECT)
        return (self.incumbent.cost or 0) if solved.infeasible else solved.lower_bound

    def _solve(self, level: Level, share: float, scope: Scope) -> Solved | None:
        """None: there is no time left to build the program."""
        budget, incumbent = self.budget, self.incumbent
        budget.charge(MATHOPT_VARIABLE * variables(self.problem, scope))
        if budget.exhausted:
            return None
        program = Program(self.problem, self.kept, level, incumbent.most_nodes, incumbent.cost, scope)
        limit = budget.left * share
        best = incumbent.best()
        solved = program.solve(budget.limits(limit), counts_of(self.problem, best.target, best.early))
        budget.charge_run(limit, solved.seconds)
        if solved.counts is not None:
            incumbent.offer(with_names(self.problem, solved.counts))
        return solved
