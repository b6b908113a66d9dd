"""Replacement: the VM Replacement Problem (VMRP) of one decision, in classes of equal VMs (VEE'09 section 4.3).

The states are decided; the choice that is left is the host of each VM that shall run. Every arrival of a VM
at a node costs the same wherever it arrives (RR-6929, table 1): only staying, and resuming where the saved state lies,
is cheaper. So arrivals need no identity: the search is only about the number of VMs of a class that arrive at a node,
and about which of a node's VMs stay. VMs of a class are equal in demands and in the nodes that may take them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Rules, admit
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True, slots=True)
class VMClass:
    """The facts that make VMs interchangeable: demands (hundredths of a CPU, MiB), and allowed nodes, by index."""

    centi_cpus: int
    memory_mib: int
    nodes: frozenset[int] | None  # None: every node that takes VMs

    def may_go(self, node: int) -> bool:
        """Whether the node takes VMs of this class."""
        return self.nodes is None or node in self.nodes


@dataclass(slots=True)
class Place:
    """One node, as the search sees it. Amounts in hundredths of a CPU and MiB."""

    node: Node
    capacity_c: int  # the part that VMs to be placed may have in the end
    capacity_m: int
    early_m: int  # memory that arrivals of the first pool may take
    residents: dict[int, list[str]] = field(default_factory=dict)  # by class: VMs that run here and may stay
    images: dict[tuple[int, int], list[str]] = field(default_factory=dict)  # by class and group: may resume here
    overloaded: bool = False  # by VMs that have to stay

    @property
    def takes(self) -> bool:
        """Whether VMs may come."""
        return self.node.state is NodeState.UP and not self.overloaded


@dataclass(slots=True)
class Mover:
    """A VM that has to arrive somewhere: it has no place where it could stay or resume locally."""

    name: str
    vm_class: int
    cost: int  # MiB: its arrival's cost wherever it goes (0 for a run)
    group: int | None = None  # the vjob with whose other VMs it resumes


@dataclass(slots=True)
class Replacement:
    """The whole problem; see ``replacement``."""

    places: list[Place]
    classes: list[VMClass] = field(default_factory=list)
    movers: list[Mover] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)  # names of vjobs that resume
    group_sizes: list[int] = field(default_factory=list)  # VMs that resume, each
    fixed: dict[str, Location] = field(default_factory=dict)  # the ends of VMs about which there is no choice
    fixed_cost: int = 0  # MiB: suspends, and the least cost of resumes and forced migrations
    suspend_mib: int = 0  # the dearest suspend: all later actions wait for it; 0 if there is none

    def totals(self) -> list[int]:
        """The number of VMs of each class that shall run and have no fixed place."""
        totals = [0] * len(self.classes)
        for place in self.places:
            for k, names in place.residents.items():
                totals[k] += len(names)
            for (k, _), names in place.images.items():
                totals[k] += len(names)
        for mover in self.movers:
            totals[mover.vm_class] += 1
        return totals

    @property
    def wait_mib(self) -> int:
        """The least cost of the wait of an action that cannot be in the first pool that costs anything, in MiB."""
        if self.suspend_mib:
            return self.suspend_mib
        costs = {mover.cost for mover in self.movers}
        for place in self.places:
            costs |= {self.classes[k].memory_mib for k in place.residents}
            costs |= {self.classes[k].memory_mib for k, _ in place.images}
        return min((cost for cost in costs if cost > 0), default=0)


def replacement(
    source: Configuration,
    states: Mapping[str, VJobState],
    sample: Mapping[str, str] | None,
    shared_store: bool = False,
) -> Replacement:
    """State the problem.

    Args:
        source: the present configuration.
        states: the decided state of every vjob, by name.
        sample: the node of every VM that shall run, in the configuration with which the decision proved itself; None:
            it leaves none on a node that drains or is overloaded.
        shared_store: whether suspended VMs are saved on storage that all nodes mount, and not on their hosts.
    """
    builder = _Builder(source, states, sample, shared_store)
    for vjob in source.vjobs:
        builder.add(vjob, states[vjob.name])
    return builder.finish()


class _Builder:
    """Sorts the VMs into fixed ones and those with a choice."""

    def __init__(
        self,
        source: Configuration,
        states: Mapping[str, VJobState],
        sample: Mapping[str, str] | None,
        shared_store: bool,
    ) -> None:
        self._source = source
        self._sample = sample or {}
        self._shared_store = shared_store
        nodes = [node for node in source.nodes if node.state is not NodeState.DOWN]
        self._index = {node.name: i for i, node in enumerate(nodes)}
        keeping = frozenset[str]() if sample is None else nodes_that_keep(source, states, sample)
        self._problem = Replacement([_place(node, source, node.name in keeping) for node in nodes])
        self._class_ids: dict[VMClass, int] = {}
        self._last: tuple[VJob, Resources, int] | None = None  # vjob, demand and class of the last call
        self._allowed: dict[Rules, frozenset[int] | None] = {}
        self._stopped_m = dict.fromkeys(self._index, 0)
        self._pinned_on = keeping

    def add(self, vjob: VJob, state: VJobState) -> None:
        """Take up one vjob."""
        for vm in vjob.vms:
            location = self._source.locations[vm.name]
            if state is VJobState.RUNNING:
                self._add_running(vjob, vm, location)
            else:
                self._add_fixed(vjob, vm, location, state)

    def finish(self) -> Replacement:
        """The problem, once all vjobs were added."""
        if not self._problem.suspend_mib:
            # Stops cost nothing: the room that they free is there before any action that costs begins.
            for place in self._problem.places:
                place.early_m += self._stopped_m[place.node.name]
        return self._problem

    def _add_fixed(self, vjob: VJob, vm: VM, location: Location, state: VJobState) -> None:
        problem, memory = self._problem, vm.demand.memory_mib
        match state, location.state:
            case VJobState.SLEEPING, VMState.RUNNING:
                shared = self._shared_store and vjob.can.elsewhere
                problem.fixed[vm.name] = sleeping_on(SHARED if shared else location.node or "")
                problem.fixed_cost += memory
                problem.suspend_mib = max(problem.suspend_mib, memory)
            case VJobState.SLEEPING, _:
                problem.fixed[vm.name] = location
            case _, _:
                problem.fixed[vm.name] = TERMINATED if state is VJobState.TERMINATED else WAITING
                if location.state is VMState.RUNNING:
                    self._stopped_m[location.node or ""] += memory

    def _add_running(self, vjob: VJob, vm: VM, location: Location) -> None:
        problem, memory = self._problem, vm.demand.memory_mib
        k = self._class(vjob, vm)
        here = self._index.get(location.node or "")
        is_fit = here is not None and problem.classes[k].may_go(here)
        match location.state:
            case VMState.RUNNING if here is not None and self._stays(vm, location, is_fit):
                place = problem.places[here]
                place.capacity_c = max(0, place.capacity_c - vm.demand.centi_cpus)
                place.capacity_m = max(0, place.capacity_m - memory)
                problem.fixed[vm.name] = location
            case VMState.RUNNING if is_fit and here is not None and problem.places[here].node.state is NodeState.UP:
                problem.places[here].residents.setdefault(k, []).append(vm.name)
            case VMState.RUNNING:
                problem.fixed_cost += memory
                problem.movers.append(Mover(vm.name, k, memory))
            case VMState.SLEEPING:
                group = self._group(vjob)
                problem.fixed_cost += memory
                if is_fit and here is not None and problem.places[here].takes:
                    problem.places[here].images.setdefault((k, group), []).append(vm.name)
                    return
                remote = location.node != SHARED
                problem.fixed_cost += memory if remote else 0
                problem.movers.append(Mover(vm.name, k, memory * (2 if remote else 1), group))
            case _:
                problem.movers.append(Mover(vm.name, k, 0))

    def _stays(self, vm: VM, location: Location, is_fit: bool) -> bool:
        """Whether the decision left a VM on a node where it should not be: no better place was found."""
        return self._sample.get(vm.name) == location.node and (location.node in self._pinned_on or not is_fit)

    def _group(self, vjob: VJob) -> int:
        problem = self._problem
        if not problem.groups or problem.groups[-1] != vjob.name:
            problem.groups.append(vjob.name)
            problem.group_sizes.append(0)
        problem.group_sizes[-1] += 1
        return len(problem.groups) - 1

    def _class(self, vjob: VJob, vm: VM) -> int:
        if self._last is not None and self._last[0] is vjob and self._last[1] is vm.demand and vm.only is None:
            return self._last[2]  # equal VMs of one vjob
        rules = vjob.rules_of(vm)
        if rules not in self._allowed:
            takes = frozenset(i for name, i in self._index.items() if admit(rules, name)) if rules else None
            self._allowed[rules] = takes
        found = VMClass(vm.demand.centi_cpus, vm.demand.memory_mib, self._allowed[rules])
        if found not in self._class_ids:
            self._class_ids[found] = len(self._problem.classes)
            self._problem.classes.append(found)
        self._last = (vjob, vm.demand, self._class_ids[found]) if vm.only is None else None
        return self._class_ids[found]


def _place(node: Node, source: Configuration, keeps: bool) -> Place:
    """``keeps``: the decision left VMs there although the node drains or they overload it."""
    capacity, used = node.capacity, source.used[node.name]
    is_up = node.state is NodeState.UP
    return Place(
        node,
        capacity.centi_cpus if is_up else 0,
        capacity.memory_mib if is_up else 0,
        max(0, capacity.memory_mib - used.memory_mib) if is_up else 0,
        overloaded=keeps and is_up,
    )


def nodes_that_keep(
    source: Configuration, states: Mapping[str, VJobState], sample: Mapping[str, str]
) -> frozenset[str]:
    """Nodes on which the decision left VMs although they drain or are overloaded: no better place was found."""
    used_c: dict[str, int] = {}
    used_m: dict[str, int] = {}
    for vjob in source.vjobs:
        if states[vjob.name] is VJobState.RUNNING:
            for vm in vjob.vms:
                node = sample[vm.name]
                used_c[node] = used_c.get(node, 0) + vm.demand.centi_cpus
                used_m[node] = used_m.get(node, 0) + vm.demand.memory_mib
    return frozenset(
        node.name
        for node in source.nodes
        if node.name in used_c
        and (
            node.state is not NodeState.UP
            or used_c[node.name] > node.capacity.centi_cpus
            or used_m[node.name] > node.capacity.memory_mib
        )
    )
