"""Small: exact answers for switches of few VMs: the cheapest order for a target, and the cheapest target and order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rmsplugin.model.action import Action
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, NodeState, VJob, VMState
from rmsplugin.planning.exact import cheapest
from rmsplugin.planning.moves import NOWHERE, Moves
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.pools import in_pool
from rmsplugin.planning.replacement import Replacement
from rmsplugin.planning.switch import UNIT, Kind, Switch

#: Beyond so many guests a search ends nowhere.
_MOST_GUESTS = 16

#: For a given target, so many of the nodes with the most room are tried as pivots.
_PIVOTS = 16


class _Guests:
    """Collects guests, and tells kinds apart."""

    def __init__(self, source: Configuration, names: list[str], pivots: frozenset[int] | None = None) -> None:
        self._source = source
        self._number = {name: index for index, name in enumerate(names)}
        self._gangs = {vjob.name: index for index, vjob in enumerate(source.vjobs)}
        self._up = [
            source.node_by_name[name].state is NodeState.UP and (pivots is None or index in pivots)
            for index, name in enumerate(names)
        ]
        self._names = names
        self._kinds: dict[Kind, int] = {}
        self._nodes: dict[tuple[frozenset[str] | None, frozenset[str]], tuple[int, ...]] = {}
        self.guests: list[tuple[int, int, VM]] = []

    @property
    def kinds(self) -> list[Kind]:
        """All kinds, by number."""
        return list(self._kinds)

    def nodes(self, vjob: VJob) -> tuple[int, ...]:
        """The nodes that take VMs of a vjob on the way."""
        key = (vjob.nodes, vjob.exclude)
        if key not in self._nodes:
            self._nodes[key] = tuple(
                index for index, name in enumerate(self._names) if self._up[index] and vjob.allows(name)
            )
        return self._nodes[key]

    def add(self, vm: VM, ends: frozenset[int]) -> None:
        """Add a guest."""
        vjob = self._source.vjob_by_vm[vm.name]
        kind = Kind(
            vm.demand.memory_mib, vm.demand.centi_cpus, ends, self.nodes(vjob), self._gangs[vjob.name], vjob.preemptible
        )
        self.guests.append((self._kinds.setdefault(kind, len(self._kinds)), self._position(vm), vm))

    def _position(self, vm: VM) -> int:
        location, nodes = self._source.locations[vm.name], len(self._names)
        if location.state is VMState.RUNNING:
            return self._number[location.node or ""]
        if location.state is VMState.SLEEPING:
            return nodes + (nodes if location.node == SHARED else self._number[location.node or ""])
        return 2 * nodes + 1

    def switch(self, moves: Moves) -> Switch:
        """The switch of these guests, with the departures of ``moves``."""
        given_back = [0] * len(moves.names)
        for node, memory in moves.gains:
            given_back[node] += memory
        free = [have + back for have, back in zip(moves.free, given_back, strict=True)]
        for kind, position, _ in self.guests:
            if position < len(free):
                free[position] += self.kinds[kind].memory_mib
        return Switch(moves.names, free, given_back, moves.departures, self.kinds, self.guests)


def best_order(moves: Moves, plan: Plan, most_suspended: tuple[int, int], work: Callable[[int], bool]) -> Plan:
    """The cheapest plan for a target.

    Args:
        moves: what has to happen.
        plan: one that does it.
        most_suspended: how many VMs may be suspended to break a cycle, of preemptible vjobs and of others.
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
    source, arrivals = moves.source, range(moves.arrivals)
    if len(arrivals) > _MOST_GUESTS:
        return None
    guests = _Guests(source, moves.names, _pivots(moves))
    for each in arrivals:
        guests.add(moves.actions[each].vm, frozenset({moves.destination[each]}))
    able = ((vm, here) for vm, here in _stayers(moves) if here in guests.nodes(source.vjob_by_vm[vm.name]))
    stayers = list(itertools.islice(able, _MOST_GUESTS + 1))
    if len(arrivals) + len(stayers) <= _MOST_GUESTS:
        for vm, here in stayers:
            guests.add(vm, frozenset({here}))
    return guests.switch(moves)


def _pivots(moves: Moves) -> frozenset[int]:
    """The nodes that a bypass may go over: all, or where VMs come and go, and those with the most room."""
    if len(moves.names) <= 2 * _PIVOTS:
        return frozenset(range(len(moves.names)))
    roomy = sorted(range(len(moves.names)), key=lambda node: (-moves.free[node], node))
    ends = {*moves.origin, *moves.destination} - {NOWHERE}
    return frozenset(ends).union([node for node in roomy if moves.up[node]][:_PIVOTS])


def _stayers(moves: Moves) -> Iterator[tuple[VM, int]]:
    """The VMs that run and stay, and where."""
    acting = {action.vm.name for action in (*moves.actions[: moves.arrivals], *moves.departures)}
    number = {name: index for index, name in enumerate(moves.names)}
    for name, location in moves.source.locations.items():
        if location.state is VMState.RUNNING and name not in acting:
            yield moves.source.vm_by_name[name], number[location.node or ""]


def is_small(source: Configuration, problem: Replacement) -> bool:
    """Whether all targets can be searched: few VMs, all of which may go anywhere, and none where nothing can be."""
    if sum(problem.totals()) > _MOST_GUESTS:
        return False
    there = {SHARED, None, *(place.node.name for place in problem.places)}
    free = [location for name, location in source.locations.items() if name not in problem.fixed]
    pinned = any(location.state is VMState.RUNNING for location in problem.fixed.values())
    return not pinned and all(location.node in there for location in free)


def switch_to_any(moves: Moves, problem: Replacement, most_nodes: int | None, shared_store: bool) -> Switch:
    """The switch to whatever target is viable.

    Args:
        moves: to one of the targets; the departures are those of all.
        problem: which targets there are; it is small.
        most_nodes: on how many nodes VMs may run in the end.
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
    guests = _Guests(source, moves.names)
    for name, k, home in members:
        guests.add(source.vm_by_name[name], takes[k] if home is None else takes[k] | {home})
    capacity = [(0, 0)] * len(moves.names)
    for at, place in enumerate(problem.places):
        capacity[places[at]] = (place.capacity_c, place.capacity_m)
    return replace(guests.switch(moves), capacity=capacity, most_nodes=most_nodes, shared_store=shared_store)
