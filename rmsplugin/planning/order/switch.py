"""Switch: the task between two configurations, for a search over whole states (``exact``).

Guests are only VMs that can make a difference: VMs that have to arrive, and running VMs that could make room.
The ends of each guest are a set of nodes: one node if the target is given, all that may take it if the target is free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rmsplugin.model.action import Action, ActionKind, migrate, resume, run, suspend
from rmsplugin.model.elements import SHARED, VM
from rmsplugin.planning.cost import local_cost

#: Costs are in MiB times this, and each action adds 1: among plans of equal cost the one with the fewest actions is
#: best.
UNIT = 1 << 12

#: A bound that no plan reaches.
NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Kind:
    """The facts that make guests interchangeable. Nodes are numbers; memory in MiB, CPUs in hundredths."""

    memory_mib: int
    centi_cpus: int
    ends: frozenset[int]  # the nodes where it may run in the end
    nodes: tuple[int, ...]  # the nodes where it may run on the way
    gang: int  # the vjob with whose other VMs it resumes
    preemptible: bool


class Hop(NamedTuple):
    """A guest of a kind goes from one position to another."""

    kind: int
    here: int
    there: int


class Option(NamedTuple):
    """A hop that a guest could make: its own cost, and the guest's own cost that remains after it."""

    there: int
    own: int
    later: int  # 0: it may end there


class State(NamedTuple):
    """A state between two pools: the guests' positions, the vjobs that have resumed, the number of suspended guests.

    A position is a node on which it runs; ``Switch.asleep`` plus the node that has its image; or ``Switch.waiting``.
    """

    positions: tuple[int, ...]
    resumed: int = 0
    suspended: tuple[int, int] = (0, 0)  # of preemptible vjobs, and of others


@dataclass(slots=True)
class Switch:
    """The problem; values that depend only on a guest's kind and position are computed once."""

    names: Sequence[str]  # of the nodes
    free_mib: list[int]  # by node, without guests that run, when all departures have ended
    given_back_mib: list[int]  # by node: the memory that the departures give back
    departures: Sequence[Action]
    kinds: list[Kind]
    guests: list[tuple[int, int, VM]]  # kind, position at the start, VM
    capacity: list[tuple[int, int]] | None = None  # by node: hundredths of CPUs and MiB that guests may have in the end
    most_nodes: int | None = None
    most_suspended: tuple[int, int] | None = None  # guests that may be suspended on the way; None: any number
    shared_store: bool = False
    asleep: int = field(init=False)  # added to a node's number for an image there; the one after all nodes is shared
    waiting: int = field(init=False)  # the position of a VM that was not started yet
    start: State = field(init=False)
    kind_of: list[int] = field(init=False)  # by guest
    _least: dict[tuple[int, int], int] = field(init=False, default_factory=dict)
    _options: dict[tuple[int, int], list[Option]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the guests by kind and position: equal ones are next to each other."""
        self.guests = sorted(self.guests, key=lambda guest: (guest[0], guest[1], guest[2].name))
        self.asleep, self.waiting = len(self.names), 2 * len(self.names) + 1
        self.kind_of = [kind for kind, _, _ in self.guests]
        self.start = State(tuple(position for _, position, _ in self.guests))

    # -- costs ---------------------------------------------------------------------------------------------------

    def least(self, kind: int, position: int) -> int:
        """The least own cost that a guest still has to pay; 0 if it may end where it is."""
        found = self._least.get((kind, position))
        if found is None:
            found = self._least[kind, position] = self._pays(kind, position)
        return found

    def _pays(self, kind: int, position: int) -> int:
        of, memory = self.kinds[kind], self.kinds[kind].memory_mib * UNIT
        if position < len(self.names):
            return 0 if position in of.ends else memory + 1
        if position == self.waiting:
            return 1
        image = position - self.asleep
        return (memory if image == len(self.names) or image in of.ends else 2 * memory) + 1

    def own(self, kind: int, position: int, end: int) -> int:
        """The least own cost of a guest from a position to an end."""
        memory = self.kinds[kind].memory_mib * UNIT
        if position < self.asleep:
            return 0 if position == end else memory + 1
        if position == self.waiting:
            return 1
        image = position - self.asleep
        return (memory if image in (end, len(self.names)) else 2 * memory) + 1

    def options(self, kind: int, position: int) -> list[Option]:
        """All hops of a guest."""
        found = self._options.get((kind, position))
        if found is None:
            found = self._options[kind, position] = list(self._hops(kind, position))
        return found

    def _hops(self, kind: int, position: int) -> list[Option]:
        of, memory = self.kinds[kind], self.kinds[kind].memory_mib * UNIT
        found = []
        for node in of.nodes:
            later = self.least(kind, node)
            if position < len(self.names):
                if node != position:
                    found.append(Option(node, memory + 1, later))
            elif position == self.waiting:
                if not later:  # to start it elsewhere, and migrate it, makes no wait shorter
                    found.append(Option(node, 1, 0))
            else:
                image = position - self.asleep
                remote = image not in (node, len(self.names))
                found.append(Option(node, (2 if remote else 1) * memory + 1, later))
        if position < len(self.names) and (self.most_suspended is None or self.most_suspended[not of.preemptible]):
            image = self.asleep + (len(self.names) if self.shared_store else position)
            found.append(Option(image, memory + 1, self.least(kind, image)))
        return found

    @property
    def departures_price(self) -> int:
        """The cost of the dearest departure."""
        return max((local_cost(action) * UNIT for action in self.departures), default=0)

    @property
    def departures_cost(self) -> int:
        """The cost of all departures together."""
        return sum(local_cost(action) * UNIT + 1 for action in self.departures)

    def free(self, positions: Sequence[int]) -> list[int]:
        """The memory that is free on each node, after the departures."""
        free, kinds, nodes = list(self.free_mib), self.kinds, self.asleep
        for kind, position in zip(self.kind_of, positions, strict=True):
            if position < nodes:
                free[position] -= kinds[kind].memory_mib
        return free

    # -- ends ----------------------------------------------------------------------------------------------------

    def is_end(self, state: State) -> bool:
        """Whether all guests are at ends."""
        if any(self.least(kind, position) for kind, position in zip(self.kind_of, state.positions, strict=True)):
            return False
        if self.most_nodes is not None and len(set(state.positions)) > self.most_nodes:
            return False
        return self.capacity is None or not any(
            max(self.excess(node, kinds)) > 0 for node, kinds in self._by_node(state.positions).items()
        )

    def _by_node(self, positions: Sequence[int]) -> dict[int, list[int]]:
        on: dict[int, list[int]] = defaultdict(list)
        for kind, position in zip(self.kind_of, positions, strict=True):
            if position < len(self.names):
                on[position].append(kind)
        return on

    def excess(self, node: int, kinds: Sequence[int]) -> tuple[int, int]:
        """The demand of these beyond the guests' part of a node in the end; only where the target is free."""
        centi_cpus, memory_mib = (self.capacity or [])[node]
        return (
            sum(self.kinds[kind].centi_cpus for kind in kinds) - centi_cpus,
            sum(self.kinds[kind].memory_mib for kind in kinds) - memory_mib,
        )

    # -- answers -------------------------------------------------------------------------------------------------

    def pools(self, hops: Sequence[Sequence[Hop]]) -> tuple[list[list[Action]], dict[str, int]]:
        """The actions of each pool, and the end of each guest; equal guests take turns in any order."""
        at: dict[tuple[int, int], list[VM]] = defaultdict(list)
        for kind, position, vm in self.guests:
            at[kind, position].append(vm)
        steps: list[list[tuple[VM, int, int]]] = []
        for pool in hops:
            taken = [(at[hop.kind, hop.here].pop(0), hop) for hop in pool]
            for vm, hop in taken:
                at[hop.kind, hop.there].append(vm)
            steps.append([(vm, hop.here, hop.there) for vm, hop in taken])
        last = {vm.name: number for number, pool in enumerate(steps) for vm, _, _ in pool}
        slept: set[str] = set()
        pools: list[list[Action]] = []
        for number, step in enumerate(steps):
            actions = list(self.departures) if number == 0 else []
            for vm, here, there in step:
                actions.append(self._action(vm, here, there, last[vm.name] > number, vm.name in slept))
                if actions[-1].kind is ActionKind.SUSPEND:
                    slept.add(vm.name)
            pools.append(actions)
        return pools, {vm.name: position for (_, position), vms in at.items() for vm in vms}

    def _action(self, vm: VM, here: int, there: int, goes_on: bool, slept: bool) -> Action:
        nodes = len(self.names)
        if here == self.waiting:
            return run(vm, self.names[there])
        if here >= nodes:
            image = here - nodes
            return resume(
                vm, SHARED if image == nodes else self.names[image], self.names[there], bypass=slept or goes_on
            )
        if there >= nodes:
            image = there - nodes
            return suspend(vm, self.names[here], SHARED if image == nodes else self.names[image], bypass=True)
        return migrate(vm, self.names[here], self.names[there], bypass=goes_on)
