"""Levels: the integer program, once for all plans, and once for each cost that their first pool can have.

Late actions wait for the first pool, whose cost depends on which actions are early: a product. Given that cost the
program is linear, and has a good linear relaxation; so it is solved for each. Every plan lies in one of the levels, the
least of their bounds is one for all, and a level without anything better than what is known is closed within moments.
"""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.packing.budget import MATHOPT_VARIABLE, Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.counts import counts_of, with_names
from rmsplugin.planning.incumbent import Incumbent
from rmsplugin.planning.keep import Kept
from rmsplugin.planning.node_terms import Level
from rmsplugin.planning.program import Program, Solved, variables
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
    search: Search,
    spacious: bool = True,
    pooled: bool = False,
) -> int:
    """Improve the incumbent, and return a proven lower bound on the cost of every plan, in MiB.

    Args:
        problem: what is asked.
        kept: of each place, with its bound.
        incumbent: the best answer so far; there is one.
        budget: what is left of the limits.
        search: the limits themselves.
        spacious: there is room enough that most likely nothing waits; then the program for all plans settles it.
        pooled: only bound, by programs in which arrivals count for all nodes together.
    """
    ahead = levels(problem)
    bound = 0
    if len(ahead) == 1 or spacious:
        bound = _solve(problem, kept, Level(ahead[0].wait_mib), incumbent, budget, search, _FIRST_SHARE, pooled)
        if bound >= (incumbent.cost or 0) or len(ahead) == 1:
            return bound
    least = None
    for at, level in enumerate(ahead):
        if budget.exhausted:
            return bound
        found = _solve(problem, kept, level, incumbent, budget, search, 1 / (len(ahead) - at), pooled)
        least = found if least is None else min(least, found)
    return max(bound, least or 0)


def _solve(
    problem: Replacement,
    kept: list[Kept],
    level: Level,
    incumbent: Incumbent,
    budget: Budget,
    search: Search,
    share: float,
    pooled: bool,
) -> int:
    """Solve one level for something better than the incumbent; its bound."""
    budget.charge(MATHOPT_VARIABLE * variables(problem, pooled))
    if budget.exhausted:
        return 0
    program = Program(problem, kept, level, None if pooled else incumbent.most_nodes, incumbent.cost, pooled)
    limit = budget.left * share
    limited = (
        replace(search, deterministic_limit=limit) if budget.deterministic else replace(search, time_limit_s=limit)
    )
    best = incumbent.best()
    solved = program.solve(limited, None if pooled else counts_of(problem, best.target, best.early))
    _charge(budget, solved, limit)
    known = incumbent.cost or 0
    if solved.counts is not None:
        incumbent.offer(with_names(problem, solved.counts))
    return known if solved.infeasible else solved.lower_bound


def _charge(budget: Budget, solved: Solved, limit: float) -> None:
    """The solver tells its seconds but not its share of a deterministic limit: all that it was given counts."""
    if budget.deterministic:
        budget.left -= limit
    else:
        budget.charge_seconds(solved.seconds)
