"""Check: finds all faults of a proposal, by code that had no part in making it.

The plan goes to the checker of plans. The executor's other inputs are checked here: the fingerprint, the decided
states, and the dependency order. By this order the executor starts each action as soon as its needs have ended, and
skips an action that needs a failed one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.node_checker import check_node_order, check_nodes
from rmsplugin.planning.order.dependencies import Order
from rmsplugin.planning.order.powering import switched_on
from rmsplugin.planning.order_checker import check_order
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.proposal import Proposal


def check(source: Configuration, proposal: Proposal, *, cpu_in_plan: bool = False) -> list[str]:
    """Return a sentence for each fault of a proposal for ``source``; empty if it is right.

    With ``cpu_in_plan`` it is a fault if a VM comes to a node before it has its CPUs there.
    """
    plan, order = proposal.plan, proposal.order
    on = switched_on(source, plan.nodes)
    faults = check_plan(on, proposal.target, plan.pools, plan.cost, cpu_in_plan=cpu_in_plan)
    found = [str(fault) for fault in faults]
    found += [str(fault) for fault in check_nodes(source, proposal.target, plan.nodes)]
    found += _states(source, proposal)
    found += _order(proposal)
    if not found:
        found += [str(fault) for fault in check_order(on, order.actions, order.needs, cpu_in_plan=cpu_in_plan)]
        early = check_node_order(order.actions, order.needs, plan.nodes, order.node_needs, order.needed)
        found += [str(fault) for fault in early]
    if not found and fingerprint(source, proposal.plan) != proposal.fingerprint:
        found.append("the fingerprint is of another configuration, or of another plan")
    return found


_state_of_vms = cache(VMState)


def _states(source: Configuration, proposal: Proposal) -> Iterator[str]:
    """The faults of the target: it has to have the decided states."""
    states, target = proposal.decision.states, proposal.target
    for vjob in source.vjobs:
        if vjob.name not in states:
            yield f"nothing was decided for vjob {vjob.name}"
            continue
        decided = _state_of_vms(states[vjob.name])
        for vm in vjob.vms:
            if vm.name not in target:
                yield f"the target does not say where {vm.name} is to be"
            elif target[vm.name].state is not decided:
                yield f"vjob {vjob.name} is to be {decided}, and the target has {vm.name} {target[vm.name]}"
    for name in states.keys() - {vjob.name for vjob in source.vjobs}:
        yield f"there is no vjob {name!r}, and a state was decided for it"


def _order(proposal: Proposal) -> Iterator[str]:
    """The faults of the order: it has to be one of this plan, be feasible, and keep the actions of each VM apart."""
    order = proposal.order
    if order.actions != tuple(proposal.plan.actions()) or len(order.needs) != len(order.actions):
        yield "the dependency order is of another plan"
        return
    wrong = [number for number, needs in enumerate(order.needs) if any(not 0 <= need < number for need in needs)]
    if wrong:  # an action may only wait for actions before it: so there is no circle
        yield f"{_name(order.actions[wrong[0]])} waits, in the dependency order, for one that is not before it"
        return
    yield from _unordered(order)


def _unordered(order: Order) -> Iterator[str]:
    """Pairs of actions on one VM, the later of which does not wait for the earlier."""
    last: dict[str, int] = {}
    for number, action in enumerate(order.actions):
        before = last.get(action.vm.name)
        if before is not None and before not in _awaited(order, number):
            yield f"{_name(action)} does not wait for {_name(order.actions[before])}, which is on the same VM"
        last[action.vm.name] = number


def _awaited(order: Order, number: int) -> set[int]:
    """All actions that have ended when an action begins."""
    found: set[int] = set()
    left = list(order.needs[number])
    while left:
        need = left.pop()
        if need not in found:
            found.add(need)
            left += order.needs[need]
    return found


def _name(action: Action) -> str:
    return f'"{action}"'
