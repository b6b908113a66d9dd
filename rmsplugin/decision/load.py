"""Load: load sharing's knowledge of a cluster: per node memory and VMs, per VM the observed demand.

Nobody is asked how much memory a VM will need: a demand is the VM's present working set (seed 004: "without the
knowledge of their memory allocation sizes"). Times are durations, so that nothing here depends on a clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class VMLoad:
    """A running VM, as it was observed."""

    name: str
    vjob: str
    memory_mib: int  # its working set
    faults_per_s: float = 0.0  # page faults for which it waited, a second
    stalled: float = 0.0  # the share of its time in which it waited for pages, 0 to 1
    age_s: float = 0.0  # since it was started
    rank: int = 0  # the place of its vjob in the queue: 0 is the head
    fixed: bool = False  # it stays where it is: not preemptible, or an operation on it is under way


@dataclass(frozen=True)
class NodeLoad:
    """A node with its VMs; VMs on their way to it are here already, and ``fixed``."""

    name: str
    memory_mib: int  # memory that VMs may take of it: the memory threshold
    slots: int  # the number of VMs that it takes: the CPU threshold
    vms: tuple[VMLoad, ...] = ()

    @cached_property
    def demand_mib(self) -> int:
        """The summed demand of all its VMs."""
        return sum(vm.memory_mib for vm in self.vms)

    @property
    def idle_mib(self) -> int:
        """The memory that no VM demands."""
        return max(0, self.memory_mib - self.demand_mib)


@dataclass(frozen=True, slots=True)
class Move:
    """A migration of one VM."""

    vm: str
    source: str
    destination: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """A vjob that waits for room.

    Args:
        vjob: its name.
        estimates_mib: the expected need of each of its VMs, by VM name.
        home: the node where it was submitted, which is taken if it qualifies; None: there is one queue for all nodes.
    """

    vjob: str
    estimates_mib: Mapping[str, int]
    home: str | None = None


class Board:
    """The places of VMs, and the free memory, while moves are tried on it."""

    def __init__(self, nodes: Iterable[NodeLoad]) -> None:
        self.nodes: dict[str, NodeLoad] = {node.name: node for node in nodes}
        self.vms: dict[str, list[VMLoad]] = {name: list(node.vms) for name, node in self.nodes.items()}
        self.free_mib = {name: node.memory_mib - node.demand_mib for name, node in self.nodes.items()}
        self.free_slots = {name: node.slots - len(node.vms) for name, node in self.nodes.items()}
        self.place = {vm.name: name for name, vms in self.vms.items() for vm in vms}
        self._members: defaultdict[str, list[VMLoad]] = defaultdict(list)
        for vms in self.vms.values():
            for vm in vms:
                self._members[vm.vjob].append(vm)
        self.moves: list[Move] = []
        self.suspended: list[str] = []  # names of vjobs
        self._moved: set[str] = set()

    def is_short(self, node: str) -> bool:
        """Whether a node has less memory than its VMs demand, or more VMs than slots."""
        return self.free_mib[node] < 0 or self.free_slots[node] < 0

    def idle_mib(self, closed: Collection[str] = ()) -> int:
        """The summed idle memory of all nodes that are not closed."""
        return sum(max(0, free) for name, free in self.free_mib.items() if name not in closed)

    def least_loaded(self, memory_mib: int, closed: Collection[str]) -> str | None:
        """The node with the fewest VMs, then with most room, among open nodes with room for a VM."""
        best, best_key = None, (math.inf, math.inf, "")
        for name, free in self.free_mib.items():
            if free >= memory_mib and self.free_slots[name] > 0 and name not in closed:
                key = (self.nodes[name].slots - self.free_slots[name], -free, name)
                if key < best_key:
                    best, best_key = name, key
        return best

    def tightest(self, memory_mib: int, closed: Collection[str]) -> str | None:
        """The node with the least left, among open nodes with room for a VM: best fit."""
        best, best_key = None, (math.inf, "")
        for name, free in self.free_mib.items():
            if free >= memory_mib and self.free_slots[name] > 0 and name not in closed:
                key = (free, name)
                if key < best_key:
                    best, best_key = name, key
        return best

    def most_free_mib(self, closed: Collection[str]) -> int:
        """The most free memory of one open node that has a slot; below 0: there is no such node."""
        slots = self.free_slots
        return max((free for name, free in self.free_mib.items() if slots[name] > 0 and name not in closed), default=-1)

    def movable(self, node: str) -> list[VMLoad]:
        """The VMs of a node that may move, and have not been moved on this board yet."""
        return [vm for vm in self.vms[node] if not vm.fixed and vm.name not in self._moved]

    def book(self, vm: VMLoad, node: str, count: int = 1) -> None:
        """Count a VM on a node; with -1 discount it."""
        self.free_mib[node] -= count * vm.memory_mib
        self.free_slots[node] -= count

    def add(self, vm: VMLoad, node: str) -> None:
        """Put a VM on a node."""
        self.vms[node].append(vm)
        self._members[vm.vjob].append(vm)
        self.place[vm.name] = node
        self.book(vm, node)

    def remove(self, vm: VMLoad, node: str) -> None:
        """Take a VM from a node."""
        self.vms[node].remove(vm)
        self._members[vm.vjob].remove(vm)
        del self.place[vm.name]
        self.book(vm, node, -1)

    def move(self, vm: VMLoad, source: str, destination: str) -> None:
        """Migrate a VM; it is not migrated again on this board."""
        self.remove(vm, source)
        self.add(vm, destination)
        self._moved.add(vm.name)
        self.moves.append(Move(vm.name, source, destination, vm.memory_mib))

    def suspend(self, vjob: str) -> None:
        """Take all VMs of a vjob away."""
        for vm in self.members(vjob):
            self.remove(vm, self.place[vm.name])
        self.suspended.append(vjob)

    def members(self, vjob: str) -> list[VMLoad]:
        """The VMs of a vjob."""
        return list(self._members[vjob])


def mean_memory_mib(nodes: Sequence[NodeLoad]) -> float:
    """The mean user memory of nodes; 0 if there are none."""
    return sum(node.memory_mib for node in nodes) / max(1, len(nodes))
