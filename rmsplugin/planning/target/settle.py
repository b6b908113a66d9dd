"""Settle: the best answer of a small problem with its proof, or a bound; an exact search over targets and orders."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.model.action import ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import running_on
from rmsplugin.packing.budget import Budget
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.exact import Found, cheapest
from rmsplugin.planning.order.moves import Moves, moves_between
from rmsplugin.planning.order.small import best_order, plan_of, worth
from rmsplugin.planning.order.switch import UNIT
from rmsplugin.planning.plan import Plan, Unreachable
from rmsplugin.planning.target.free import can_settle, switch_to_any
from rmsplugin.planning.target.incumbent import Incumbent, Reached
from rmsplugin.planning.target.replacement import Replacement

#: The work of looking at one candidate, in steps: about 4 microseconds.
_STEPS = 800


def settle(problem: Replacement, incumbent: Incumbent, budget: Budget, shared_store: bool) -> int:
    """Improve the incumbent of a small problem, and return a proven lower bound on the cost of every plan, in MiB.

    The bound is one for all plans. The answer suspends no more VMs to break cycles than the incumbent does: the cost
    does not include that guests stand still meanwhile.

    Args:
        problem: the problem.
        incumbent: the best answer so far; there is one.
        budget: the part of the limits that may be used.
        shared_store: whether suspended VMs are saved on storage that all nodes mount.
    """
    source = incumbent.source
    if not can_settle(source, problem):
        return 0
    moves = moves_between(source, incumbent.best().target)
    if isinstance(moves, Unreachable):
        raise AssertionError(f"the incumbent has a plan: {moves.explanation}")
    switch = switch_to_any(moves, problem, incumbent.most_nodes, shared_store)

    most_suspended = suspended(source, incumbent.best().plan)

    def search(limit: tuple[int, int] | None, part: Budget) -> Found:
        limited = replace(switch, most_suspended=limit)
        found = cheapest(limited, worth(incumbent.best().plan), lambda looked_at: _is_left(part, looked_at))
        if found.pools is not None:
            pools, ends = limited.pools(found.pools)
            hosts = {name: switch.names[end] for name, end in ends.items()}
            target = {**problem.fixed, **{name: running_on(host) for name, host in hosts.items()}}
            # Of two orders of equal cost the greedy one has fewer pools, and is offered first.
            for plan in (build_plan(source, target), plan_of(pools)):
                if isinstance(plan, Plan) and _at_most(suspended(source, plan), most_suspended):
                    incumbent.take(Reached(target, plan, frozenset(hosts.values())))
        return found

    search(most_suspended, budget.part(1 / 2))
    return search(None, budget).bound // UNIT


def reorder(incumbent: Incumbent, budget: Budget) -> None:
    """Look for a cheaper order of the best answer, if it is small, within the rest of the limits."""
    best = incumbent.best()
    moves = moves_between(incumbent.source, best.target)
    if isinstance(moves, Moves) and not budget.exhausted:
        most = suspended(incumbent.source, best.plan)
        plan = best_order(moves, best.plan, most, lambda looked_at: _is_left(budget, looked_at))
        incumbent.take(replace(best, plan=plan))


def _at_most(mine: tuple[int, int], most: tuple[int, int]) -> bool:
    return all(one <= other for one, other in zip(mine, most, strict=True))


def _is_left(budget: Budget, looked_at: int) -> bool:
    budget.charge(_STEPS * looked_at)
    return not budget.exhausted


def suspended(source: Configuration, plan: Plan) -> tuple[int, int]:
    """The number of VMs that a plan suspends to break cycles: of preemptible vjobs, and of others."""
    counts = [0, 0]
    for action in plan.actions():
        if action.bypass and action.kind is ActionKind.SUSPEND:
            counts[not source.vjob_by_vm[action.vm.name].preemptible] += 1
    return counts[0], counts[1]
