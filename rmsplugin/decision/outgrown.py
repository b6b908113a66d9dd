"""Outgrown: handles nodes that are short of memory before the decision which vjobs run; a pure stage.

The memory that VMs demand is observed, and the capacities of nodes are their memory threshold. VMs are planned up to
it, and the memory above it is for growth until the next cycle. A node whose VMs demand more than the threshold is
*short*.

Policies relieve short nodes by migrations, and by suspending the last in the queue; they know no reservations. So this
stage looks first. A node is reserved by the seed's rule (``rmsplugin.decision.reservation``), or only if that is the
cheapest way (``rmsplugin.decision.unblocking``). The configuration for the decision then has

- the reserved node closed to all vjobs but the one for which it was reserved, or that has moved there;
- the short node with its VMs' demand as its capacity, while they wait: no VM comes, and none has to go. This is
  never more than its real memory: a node whose VMs demand more than that does not wait.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rmsplugin.decision.load import Board, NodeLoad, VMLoad
from rmsplugin.decision.reservation import Note, Reconfiguration, ReservationLimits, Reservations
from rmsplugin.decision.unblocking import Prices, Unblocking
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Node, NodeState, VJob, VMState, original_vm
from rmsplugin.model.rules import kept_off, moved_to, unadmitted
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True)
class MemoryFacts:
    """Facts that a configuration does not have.

    Args:
        real_mib: by node, all the memory that its VMs may take; a missing node has its capacity.
    """

    real_mib: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Remedy:
    """The measures for nodes that are short, taken before the decision which vjobs run.

    Attributes:
        reservations: the reservations to be remembered.
        notes: the course of reservations, and the costs of shortages.
        waiting: the short nodes that wait for a reserved one.
    """

    reservations: Reservations
    notes: tuple[Note, ...] = ()
    waiting: frozenset[str] = frozenset()

    def applied_to(self, configuration: Configuration) -> Configuration:
        """The cluster as the decision is to see it: reserved nodes closed, nodes that wait as they are.

        Args:
            configuration: the one of ``outgrown``.
        """
        if not self.reservations.held and not self.waiting:
            return configuration
        nodes = tuple(
            _as_it_is(node, configuration) if node.name in self.waiting else node for node in configuration.nodes
        )
        return replace(configuration, nodes=nodes, vjobs=_closed(configuration, self.reservations), checked=True)


@dataclass(frozen=True)
class Shortage:
    """All that a remedy depends on besides the configuration.

    Args:
        facts: facts that the configuration does not have.
        before: the reservations remembered from the cycle before.
        now_s: the time on the clock of ``before``.
        limits: the rules of reserving; a VM's faults are not looked at: it is enough that its node is short.
        prices: the costs of moving memory, where a node is reserved only if that is cheapest; None: it is
            reserved whatever else is possible, as in the seed.
    """

    facts: MemoryFacts
    before: Reservations
    now_s: float
    limits: ReservationLimits
    prices: Prices | None

    def without_solver(self) -> Shortage:
        """The same, and no compaction is looked for."""
        return self if self.prices is None else replace(self, prices=replace(self.prices, search=None))


def outgrown(configuration: Configuration, shortage: Shortage) -> Remedy:
    """Reserve, serve and release; nothing where no node is short and none was reserved.

    Args:
        configuration: with observed demands, and thresholds as capacities, but ``bearable``.
        shortage: the other facts.
    """
    before = shortage.before
    short = [node for node in configuration.nodes if _is_short(configuration, node)]
    if not before.held and not short:
        return Remedy(before)
    cycle = _cycle(configuration, shortage)
    cycle.reconfigure()
    notes = [_as_it_will_be(note) for note in cycle.notes]
    told = {note.node for note in notes}
    waiting = _waiting(cycle)
    notes += [_short(configuration, node) for node in short if node.name not in told | waiting]
    return Remedy(cycle.reservations, tuple(notes), waiting)


def _cycle(configuration: Configuration, shortage: Shortage) -> Reconfiguration:
    board, before = _board(configuration, shortage.facts), _as_seen(shortage.before, configuration)
    limits = replace(shortage.limits, serious_faults_per_s=0.0)
    if shortage.prices is None:
        return Reconfiguration(board, before, shortage.now_s, limits)
    prices = replace(shortage.prices, may_wait=False, kept_out=_kept_out(configuration))
    return Unblocking(board, before, shortage.now_s, limits, prices)


def _short(configuration: Configuration, node: Node) -> Note:
    """The note that a node is short, and that there is room enough elsewhere."""
    missing_mib = -configuration.free(node.name).memory_mib
    planned_mib = node.capacity.memory_mib
    words = f"{node.name} is short of {missing_mib} MiB: its VMs take {planned_mib + missing_mib} of {planned_mib} MiB"
    return Note("short", node.name, words, {"missing_mib": missing_mib})


def _as_it_will_be(note: Note) -> Note:
    """A note of what is done. The policy and the planner decide after this which vjobs migrate or are suspended."""
    if note.what not in ("compacted", "suspended"):
        return note
    words = f"{note.node} is short of {note.numbers['missing_mib']} MiB, and is relieved without a reservation"
    return replace(note, what="short", sentence=words + note.prices)


def bearable(configuration: Configuration) -> Configuration:
    """The configuration in which no node is short only by VMs about which nothing can be done now.

    VMs in transit, and those that are never saved, may demand more of a node than its threshold. A policy then
    finds no decision for the whole cluster, and without a decision no node is helped. A leaving vjob is no reason for
    others to go.
    """
    if not any(_is_short(configuration, node) for node in configuration.nodes):
        return configuration
    stays: Counter[str] = Counter()
    leaves: Counter[str] = Counter()
    for vjob in configuration.vjobs:
        for vm, node in _running(configuration, vjob):
            if vjob.in_transit or not vjob.preemptible or vjob.can.only_pauses:
                stays[node] += vm.demand.memory_mib
            if vjob.leaves:
                leaves[node] += vm.demand.memory_mib
    bears: dict[str, int] = {}
    for up in (node for node in configuration.nodes if node.state is NodeState.UP):
        has_mib = up.capacity.memory_mib
        used_mib = has_mib - configuration.free(up.name).memory_mib
        bears_mib = max(stays[up.name], min(used_mib, has_mib + leaves[up.name]))
        if bears_mib > has_mib:
            bears[up.name] = bears_mib
    if not bears:
        return configuration
    nodes = tuple(
        replace(node, capacity=replace(node.capacity, memory_mib=bears[node.name])) if node.name in bears else node
        for node in configuration.nodes
    )
    return replace(configuration, nodes=nodes, checked=True)


def _is_short(configuration: Configuration, node: Node) -> bool:
    return configuration.used[node.name].memory_mib > node.capacity.memory_mib and node.state is NodeState.UP


# -- the configuration as load sharing sees it -------------------------------------------------------------------------


def _board(configuration: Configuration, facts: MemoryFacts) -> Board:
    """The nodes that are up, with the VMs that run there.

    A VM is fixed if nothing may be done about it, or if its node waits for nothing: such a node is left to the policy.
    A leaving VM has its memory until it has gone.
    """
    up = [node for node in configuration.nodes if node.state is NodeState.UP]
    names = frozenset(node.name for node in up)
    here: dict[str, list[VMLoad]] = {node.name: [] for node in up}
    beyond = {node.name for node in up if not _is_within(configuration, node, facts)}
    for rank, vjob in enumerate(configuration.vjobs):
        free = _may_go_anywhere(vjob, names)
        for vm, node in _running(configuration, vjob):
            if node in here:
                here[node].append(_load(vjob, vm, rank, fixed=not free or vjob.leaves or node in beyond))
    cpus = _mean_cpus(configuration)
    return Board(
        NodeLoad(
            node.name,
            node.capacity.memory_mib,
            len(here[node.name]) + math.floor(max(0.0, configuration.free(node.name).cpus) / cpus),
            tuple(here[node.name]),
        )
        for node in up
    )


def _load(vjob: VJob, vm: VM, rank: int, *, fixed: bool) -> VMLoad:
    name = original_vm(vm.name) if vjob.in_transit else vm.name
    return VMLoad(name, vjob.name, vm.demand.memory_mib, age_s=vjob.ran_s, rank=rank, fixed=fixed)


def _running(configuration: Configuration, vjob: VJob) -> Iterator[tuple[VM, str]]:
    """The running VMs of a vjob, each with its node."""
    for vm in vjob.vms:
        at = configuration.locations[vm.name]
        if at.state is VMState.RUNNING and at.node is not None:
            yield vm, at.node


def _is_within(configuration: Configuration, node: Node, facts: MemoryFacts) -> bool:
    """Whether the VMs' demand of a node is no more than its real memory."""
    real_mib = facts.real_mib.get(node.name, node.capacity.memory_mib)
    return node.capacity.memory_mib - configuration.free(node.name).memory_mib <= real_mib


def _may_go_anywhere(vjob: VJob, nodes: frozenset[str]) -> bool:
    """Load sharing knows no forbidden nodes: a vjob that may not go everywhere is left to the policy."""
    return vjob.preemptible and not vjob.in_transit and not unadmitted(vjob.rules, nodes)


def _mean_cpus(configuration: Configuration) -> float:
    """The average CPU demand of a running VM: by it so many more VMs fit, which is the seed's CPU threshold."""
    cpus = [vm.demand.cpus for vjob in configuration.vjobs for vm in vjob.vms]
    return max(0.01, sum(cpus) / max(1, len(cpus)))


def _kept_out(configuration: Configuration) -> Mapping[str, int]:
    """By node, the number of waiting VMs that could run in its free room: others' cost of reserving it."""
    waits = [
        vm.demand
        for vjob in configuration.vjobs
        if configuration.state(vjob) in (VJobState.WAITING, VJobState.SLEEPING)
        for vm in vjob.vms
    ]
    found = {}
    for node in configuration.nodes if waits else ():
        free, count = configuration.free(node.name), 0
        for demand in waits:
            if free.holds(demand):
                free, count = free - demand, count + 1
        found[node.name] = count
    return MappingProxyType(found)


# -- what is remembered, as it is now, and the configuration that is decided about -------------------------------------


def _as_seen(before: Reservations, configuration: Configuration) -> Reservations:
    """The reservations of before; a guest that has not come yet is waited for, as long as it runs somewhere."""
    places: dict[str, set[str]] = {}
    for vjob in configuration.vjobs:
        for vm, node in _running(configuration, vjob):
            places.setdefault(original_vm(vm.name) if vjob.in_transit else vm.name, set()).add(node)
    held = []
    for each in before.held:
        come = frozenset(guest for guest in each.guests if each.node in places.get(guest, ()))
        left = [guest for guest in each.guests if places.get(guest)]
        held.append(replace(each, guests=come, vm=left[0]) if left and not come else each)
    return replace(before, held=tuple(held))


def _waiting(cycle: Reconfiguration) -> frozenset[str]:
    """The nodes that stay short because another is reserved for a VM there, and has no room yet."""
    reserving = {each.vm for each in cycle.reservations.held if not each.guests}
    return frozenset(
        name
        for name, vms in cycle.board.vms.items()
        if cycle.board.free_mib[name] < 0 and any(vm.name in reserving for vm in vms)
    )


def _as_it_is(node: Node, configuration: Configuration) -> Node:
    """A node with its VMs' demand as its capacity of memory."""
    used_mib = node.capacity.memory_mib - configuration.free(node.name).memory_mib
    return replace(node, capacity=replace(node.capacity, memory_mib=used_mib))


def _closed(configuration: Configuration, held: Reservations) -> tuple[VJob, ...]:
    """The vjobs with reserved nodes closed to all but their guests."""
    hosts: dict[str, str] = {guest: each.node for each in held.held for guest in each.guests}
    return tuple(_kept_off(configuration, vjob, held.nodes, hosts) for vjob in configuration.vjobs)


def _kept_off(configuration: Configuration, vjob: VJob, closed: frozenset[str], hosts: Mapping[str, str]) -> VJob:
    """A vjob to which nodes are closed; where it has a VM it stays, and where it is a guest it goes."""
    if vjob.in_transit:
        return vjob
    here = {node for _, node in _running(configuration, vjob)}
    guest_of = {hosts[vm.name] for vm in vjob.vms if vm.name in hosts}
    if guest_of and len(vjob.vms) == 1:
        return replace(vjob, rules=moved_to(vjob.rules, frozenset(guest_of)))
    return replace(vjob, rules=kept_off(vjob.rules, closed - here - guest_of))
