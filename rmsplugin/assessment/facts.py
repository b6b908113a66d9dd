"""Facts: what one cycle knows of nodes and vjobs, reduced to what an assessment needs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rmsplugin.model.elements import SHARED, VM, WAITING, Location, Node, NodeState, VMState
from rmsplugin.model.resources import NOTHING, Resources


class RoomUse(enum.StrEnum):
    """Whether VMs may be on a node by the room that the engine has there."""

    NONE = "none"  # no room, or one that has not begun; and nobody else has the node
    HELD = "held"
    LEAVING = "leaving"  # VMs have to leave: the room is to be given back, or another job has the node


@dataclass(frozen=True)
class NodeFacts:
    """One VM host.

    Attributes:
        name: in the RMS.
        size: the CPUs and the memory that VMs may have where the engine has its room; below nothing if the host keeps
            more for itself than there is.
        room: the engine's room there.
        out_of_reach: why nobody can act there ("its libvirt does not answer", "Slurm says that it is DOWN"); empty if
            one can.
    """

    name: str
    size: Resources
    room: RoomUse
    out_of_reach: str = ""

    @cached_property
    def as_decided_about(self) -> Node:
        """The node as a configuration has it, if nothing on it is given back by one vjob and promised to another."""
        if self.out_of_reach or self.room is RoomUse.LEAVING:
            return Node(self.name, NOTHING, NodeState.DRAINING)
        if self.room is RoomUse.NONE:
            return Node(self.name, NOTHING)
        return Node(self.name, at_least_nothing(self.size))


def at_least_nothing(amount: Resources) -> Resources:
    """The amount, without what of it is below 0."""
    if amount.cpus >= 0 and amount.memory_mib >= 0:
        return amount
    return Resources(max(0.0, amount.cpus), max(0, amount.memory_mib))


@dataclass(frozen=True, slots=True)
class VMFacts:
    """One VM: what it demands, where it is, and all nodes on which it holds memory or is about to.

    A VM that runs or is paused holds memory on its host, one that migrates on both ends, one that boots or is being
    restored on the node where it will run; one that waits or sleeps on none.

    Attributes:
        vm: its name and demand.
        location: where it is.
        holds: nodes on which it holds memory now.
        will_hold: nodes on which it will, once all that is planned for it is done; None: where it does now.
        will_compute: whether it will need its CPUs, though it is paused now: its turn to go on comes.
    """

    vm: VM
    location: Location = WAITING
    holds: frozenset[str] = frozenset()
    will_hold: frozenset[str] | None = None
    will_compute: bool = False


class Members(tuple[VMFacts, ...]):
    """The VMs of one vjob, and what every assessment asks of them: found once for as long as they stay as they are."""

    @cached_property
    def as_decided_about(self) -> tuple[VM, ...]:
        """The VMs as a configuration has them."""
        return tuple(each.vm for each in self)

    @cached_property
    def locations(self) -> Mapping[str, Location]:
        """Where each is, by name."""
        return {each.vm.name: each.location for each in self}

    @cached_property
    def states(self) -> frozenset[VMState]:
        """In which they are."""
        return frozenset(each.location.state for each in self)

    @cached_property
    def nodes(self) -> frozenset[str]:
        """Those that have anything of them: memory or a saved state, but for the storage that all nodes mount."""
        places = {each.location.node for each in self}
        return frozenset(place for place in places if place and place != SHARED).union(*(each.holds for each in self))

    @cached_property
    def computing(self) -> Mapping[str, Resources]:
        """What those that run demand together, by node."""
        found: dict[str, Resources] = {}
        for each in self:
            node = each.location.node
            if each.location.state is VMState.RUNNING and node is not None:
                found[node] = found.get(node, NOTHING) + each.vm.demand
        return found

    @cached_property
    def hold_where_they_are(self) -> bool:
        """Whether each that runs or is paused holds memory on its host, and nothing else: or they are unsettled."""
        return all(each.holds == _held_at(each.location) for each in self)


def _held_at(location: Location) -> frozenset[str]:
    """The nodes on which a settled VM holds memory."""
    if location.state.holds_memory and location.node is not None:
        return frozenset({location.node})
    return frozenset()


@dataclass(frozen=True, slots=True)
class VJobFacts:
    """One vjob.

    Attributes:
        name: as users know it.
        vms: all its VMs; while it waits, those that it will have.
        unsettled: why nothing is to be decided about it now ("is starting", "is held by its user"); empty if something
            is.
        nodes: the VM hosts that it may use.
        preemptible: whether it may be suspended for others (the PreemptMode of its partition).
        priority: PriorityTier of its partition.
        time_limit_s: as its user asked; None: no limit.
        ran_s: how much of the limit is used up, suspends left out.
        state_s: how long it has been in its state; None: for ever.
        waited_s: how long it has not run since it was submitted, sleeps included.
        weight: what the site says of it beyond its age, see ``rmsplugin.decision.expansion``.
        user: whose it is; empty: nobody knows.
    """

    name: str
    vms: Members
    nodes: frozenset[str]
    unsettled: str = ""
    preemptible: bool = True
    priority: int = 0
    time_limit_s: float | None = None
    ran_s: float = 0.0
    state_s: float | None = None
    waited_s: float = 0.0
    weight: float = 1.0
    user: str = ""


def vm_demand(
    size: Resources, overhead_mib: int, observed_cpus: float | None = None, observed_mib: int | None = None
) -> Resources:
    """What one VM demands, for decisions and bookings alike: its memory with the hypervisor's overhead, and CPUs.

    Args:
        size: the CPUs and the memory with which it is booted.
        overhead_mib: memory of the hypervisor for each VM.
        observed_cpus: of a VM that runs, see ``rmsplugin.decision.cpu_demand``; None: all that it has.
        observed_mib: likewise of its memory, see ``rmsplugin.decision.memory_demand``.
    """
    cpus = size.cpus if observed_cpus is None else observed_cpus
    memory_mib = size.memory_mib if observed_mib is None else observed_mib
    return Resources(cpus, memory_mib + overhead_mib)
