"""Small: the cheapest order for a target with few VMs on the way, by the exact search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rmsplugin.model.action import Action
from rmsplugin.model.elements import VM, VMState
from rmsplugin.planning.order.exact import cheapest
from rmsplugin.planning.order.guests import MOST_GUESTS, Guests
from rmsplugin.planning.order.moves import NOWHERE, Moves
from rmsplugin.planning.order.pools import in_pool
from rmsplugin.planning.order.switch import UNIT, Switch
from rmsplugin.planning.plan import Plan


def best_order(moves: Moves, plan: Plan, most_suspended: tuple[int, int], work: Callable[[int], bool]) -> Plan:
    """The cheapest plan for a target.

    Args:
        moves: the moves to the target.
        plan: a plan for them.
        most_suspended: the number of VMs that may be suspended to break a cycle, of preemptible vjobs and of others.
        work: see ``exact.cheapest``.

    Returns:
        ``plan``, unless one of less cost, or of the same and fewer actions, was found.
    """
    switch = switch_to(moves)
    if switch is None:
        return plan
    found = cheapest(replace(switch, most_suspended=most_suspended), worth(plan), work)
    return plan if found.pools is None else plan_of(switch.pools(found.pools)[0])


def worth(plan: Plan) -> int:
    """Cost of a plan in the unit of ``Switch``."""
    return plan.cost * UNIT + sum(map(len, plan.pools))


def plan_of(pools: Sequence[Sequence[Action]]) -> Plan:
    """The plan of these pools."""
    return Plan(tuple(tuple(sorted(pool, key=in_pool)) for pool in pools))


def switch_to(moves: Moves) -> Switch | None:
    """The switch to a target; VMs that stay may make room. None: there are too many guests."""
    source, arrivals = moves.source, range(len(moves.actions))
    if len(arrivals) > MOST_GUESTS:
        return None
    if not all(_may_move(moves, action.vm.name) for action in moves.actions):
        return None  # the search knows only VMs that can make every detour
    guests = Guests(source, moves.names, _pivots(moves))
    for each in arrivals:
        guests.add(moves.actions[each].vm, frozenset({moves.destination[each]}))
    able = ((vm, here) for vm, here in _stayers(moves) if here in guests.nodes(source.vjob_by_vm[vm.name]))
    stayers = list(itertools.islice(able, MOST_GUESTS + 1))
    if len(arrivals) + len(stayers) <= MOST_GUESTS:
        for vm, here in stayers:
            guests.add(vm, frozenset({here}))
    return guests.switch(moves)


def _may_move(moves: Moves, vm: str) -> bool:
    """Whether the platform of a VM can make every detour with it."""
    return moves.source.vjob_by_vm[vm].can.makes_detours


def _pivots(moves: Moves) -> frozenset[int]:
    """The nodes that a bypass may go over: sources and destinations of VMs, and for each guest one with much room."""
    roomy = sorted(range(len(moves.names)), key=lambda node: (-moves.free[node], node))
    ends = {*moves.origin, *moves.destination} - {NOWHERE}
    return frozenset(ends).union([node for node in roomy if moves.up[node]][:MOST_GUESTS])


def _stayers(moves: Moves) -> Iterator[tuple[VM, int]]:
    """The VMs that run and stay, with their nodes."""
    acting = {action.vm.name for action in (*moves.actions, *moves.departures)}
    number = {name: index for index, name in enumerate(moves.names)}
    for name, location in moves.source.locations.items():
        if location.state is VMState.RUNNING and name not in acting and _may_move(moves, name):
            yield moves.source.vm_by_name[name], number[location.node or ""]
