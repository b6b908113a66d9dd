"""Free: the switch of a small problem to any viable target, for the exact search."""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VMState
from rmsplugin.planning.order.guests import MOST_GUESTS, Guests
from rmsplugin.planning.order.moves import Moves
from rmsplugin.planning.order.switch import Switch
from rmsplugin.planning.target.replacement import Replacement


def can_settle(source: Configuration, problem: Replacement) -> bool:
    """Whether all targets can be searched: few VMs, all of which may go anywhere, and no node where no VM can be."""
    if sum(problem.totals()) > MOST_GUESTS:
        return False
    there = {SHARED, None, *(place.node.name for place in problem.places)}
    free = {name: location for name, location in source.locations.items() if name not in problem.fixed}
    if not all(source.vjob_by_vm[name].can.makes_detours for name in free):
        return False  # the search tries every detour with each VM
    pinned = any(location.state is VMState.RUNNING for location in problem.fixed.values())
    return not pinned and all(location.node in there for location in free.values())


def switch_to_any(moves: Moves, problem: Replacement, most_nodes: int | None, shared_store: bool) -> Switch:
    """The switch to any viable target.

    Args:
        moves: the moves to one of the targets; the departures are those of all.
        problem: the problem with its targets; it is small.
        most_nodes: the most nodes on which VMs may run in the end.
        shared_store: whether suspended VMs are saved on storage that all nodes mount.
    """
    source = moves.source
    number = {name: index for index, name in enumerate(moves.names)}
    places = [number[place.node.name] for place in problem.places]
    members: list[tuple[str, int, int | None]] = [(each.name, each.vm_class, None) for each in problem.movers]
    for at, place in enumerate(problem.places):
        members += [(name, k, places[at]) for k, names in place.residents.items() for name in names]
        members += [(name, k, None) for (k, _), names in place.images.items() for name in names]
    takes = [
        frozenset(places[at] for at, place in enumerate(problem.places) if place.takes and each.may_go(at))
        for each in problem.classes
    ]
    guests = Guests(source, moves.names)
    for name, k, home in members:
        guests.add(source.vm_by_name[name], takes[k] if home is None else takes[k] | {home})
    capacity = [(0, 0)] * len(moves.names)
    for at, place in enumerate(problem.places):
        capacity[places[at]] = (place.capacity_c, place.capacity_m)
    return replace(guests.switch(moves), capacity=capacity, most_nodes=most_nodes, shared_store=shared_store)
