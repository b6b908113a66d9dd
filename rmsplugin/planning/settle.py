"""Settle: the best answer of a small problem and its proof, or a bound, by the exact search over targets and orders."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.model.action import ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState, running_on
from rmsplugin.packing.budget import Budget
from rmsplugin.planning.exact import Found, cheapest
from rmsplugin.planning.incumbent import Incumbent, Reached
from rmsplugin.planning.moves import Moves, moves_between
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.replacement import Replacement
from rmsplugin.planning.small import plan_of, switch_to_any, worth
from rmsplugin.planning.switch import UNIT, Switch

#: What looking at one candidate costs, in steps: about 8 microseconds.
_STEPS = 1_600


def settle(problem: Replacement, incumbent: Incumbent, budget: Budget, shared_store: bool) -> int:
    """Improve the incumbent of a small problem, and return a proven lower bound on the cost of every plan, in MiB.

    The bound is one for all plans. The answer suspends no more VMs to break cycles than the incumbent does: that guests
    stand still meanwhile is not in the cost.

    Args:
        problem: what is asked.
        incumbent: the best answer so far; there is one.
        budget: what may be used of the limits.
        shared_store: whether suspended VMs are saved on storage that all nodes mount.
    """
    best = incumbent.best()
    moves = moves_between(incumbent.source, best.target)
    switch = switch_to_any(moves, problem, incumbent.most_nodes, shared_store) if isinstance(moves, Moves) else None
    if switch is None:
        return 0
    most_suspended = suspended(incumbent.source, best.plan)

    def search(limited: Switch) -> Found:
        found = cheapest(limited, worth(best.plan), work)
        if found.pools is not None:
            pools, ends = limited.pools(found.pools)
            plan = plan_of(pools)
            mine = suspended(incumbent.source, plan)
            if all(one <= most for one, most in zip(mine, most_suspended, strict=True)):
                hosts = {name: running_on(limited.names[end]) for name, end in ends.items()}
                incumbent.take(
                    Reached({**problem.fixed, **hosts}, plan, frozenset(host.node or "" for host in hosts.values()))
                )
        return found

    def work(looked_at: int) -> bool:
        budget.charge(_STEPS * looked_at)
        return not budget.exhausted

    found = search(switch)
    if found.pools is not None and incumbent.best() is best:
        search(replace(switch, most_suspended=most_suspended))
    is_whole = not any(location.state is VMState.RUNNING for location in problem.fixed.values())
    return found.bound // UNIT if is_whole else 0


def suspended(source: Configuration, plan: Plan) -> tuple[int, int]:
    """How many VMs a plan suspends to break cycles: of preemptible vjobs, and of others."""
    counts = [0, 0]
    for action in plan.actions():
        if action.bypass and action.kind is ActionKind.SUSPEND:
            counts[not source.vjob_by_vm[action.vm.name].preemptible] += 1
    return counts[0], counts[1]
