"""Guests: the VMs of a switch of the exact search, in kinds of interchangeable ones."""

from __future__ import annotations

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, NodeState, VJob, VMState
from rmsplugin.model.rules import Rules
from rmsplugin.planning.order.moves import Moves
from rmsplugin.planning.order.switch import Kind, Switch

#: A search with more guests ends nowhere.
MOST_GUESTS = 16


class Guests:
    """Collects guests, and tells kinds apart."""

    def __init__(self, source: Configuration, names: list[str], pivots: frozenset[int] | None = None) -> None:
        """Begin without guests, on the nodes ``names``; a bypass may go over ``pivots`` (their numbers; None: all)."""
        self._source = source
        self._number = {name: index for index, name in enumerate(names)}
        self._gangs = {vjob.name: index for index, vjob in enumerate(source.vjobs)}
        self._up = [
            source.node_by_name[name].state is NodeState.UP and (pivots is None or index in pivots)
            for index, name in enumerate(names)
        ]
        self._names = names
        self._kinds: dict[Kind, int] = {}
        self._nodes: dict[Rules, tuple[int, ...]] = {}
        self.guests: list[tuple[int, int, VM]] = []

    @property
    def kinds(self) -> list[Kind]:
        """All kinds, by number."""
        return list(self._kinds)

    def nodes(self, vjob: VJob) -> tuple[int, ...]:
        """The nodes that take VMs of a vjob on the way."""
        rules = vjob.own_rules
        if rules not in self._nodes:
            self._nodes[rules] = tuple(
                index for index, name in enumerate(self._names) if self._up[index] and vjob.allows(name)
            )
        return self._nodes[rules]

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
