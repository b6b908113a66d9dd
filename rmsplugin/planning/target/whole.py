"""Whole: answers and bounds for all nodes of a cluster at once, by column generation."""

from __future__ import annotations

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.target.choices import UnsuitableError
from rmsplugin.planning.target.columns import Columns
from rmsplugin.planning.target.counts import with_names
from rmsplugin.planning.target.generation import Generation
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.levels import levels
from rmsplugin.planning.target.node_terms import Level
from rmsplugin.planning.target.replacement import Replacement

#: So near (share of its cost) the linear program is solved before a whole answer is chosen: what is left is rounding.
_NEARLY = 0.002

#: Of what is left of the limits, what a linear program may use before a whole answer is chosen.
_SHARE = 0.6


def search_whole(problem: Replacement, incumbent: Incumbent, budget: Budget, search: Search) -> int:
    """Improve the incumbent, and return a proven lower bound on the cost of every plan, in MiB; 0: nothing is proven.

    The first pool is taken to cost what that of the best plan costs; where the answer's costs more, once more with
    that. All vjobs resume early.

    Args:
        problem: what is asked.
        incumbent: the best answer so far; there is one.
        budget: what may be used of the limits.
        search: its seed decides which nodes are chosen for anew.
    """
    generation: Generation | None = None
    wait_mib = 0
    try:
        while (again := max(problem.wait_mib, incumbent.best().plan.first_cost)) > wait_mib:
            wait_mib = again
            columns = Columns(problem, Level(wait_mib), is_relaxed=False)
            part = budget.part(_SHARE)
            generation = Generation(columns, part, () if generation is None else generation.prices)
            generation.relax(nearly=_NEARLY)
            budget.give_back(part)
            counts = generation.choose(budget, search, _NEARLY)
            if counts is not None:
                incumbent.offer(with_names(problem, counts))
        return _bound(problem, incumbent.best().plan.cost, generation, budget)
    except UnsuitableError:
        return 0


def _bound(problem: Replacement, cost: int, generation: Generation | None, budget: Budget) -> int:
    """The least bound of all levels; those with the dearest first pool, most like what was solved, come first."""
    ahead = levels(problem)[::-1]
    prices = () if generation is None else generation.prices
    least = cost
    for at, level in enumerate(ahead):
        part = budget.part(1 / (len(ahead) - at))
        relaxed = Generation(Columns(problem, level, is_relaxed=True), part, prices)
        relaxed.relax(enough=least - problem.fixed_cost)
        budget.give_back(part)
        prices = relaxed.prices or prices
        least = min(least, problem.fixed_cost + relaxed.bound_mib)
    return least
