"""Facts: the knowledge of one cycle about nodes and vjobs, reduced to the needs of an assessment."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.elements import SHARED, VM, WAITING, Location, Node, NodeState, VMState
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.overbooking import overbooked
from rmsplugin.model.resources import NOTHING, Resources, amount
from rmsplugin.model.vjob import VJobState


class RoomUse(enum.StrEnum):
    """Whether VMs may be on a node, by the engine's room there."""

    NONE = "none"  # no room, or one that has not begun; and no other job has the node
    HELD = "held"
    LEAVING = "leaving"  # VMs have to leave: the room is to be given back, or another job has the node


@dataclass(frozen=True)
class NodeFacts:
    """One VM host.

    Attributes:
        name: in the RMS.
        size: the CPUs and the memory that VMs may have where the engine has its room; below 0 if the host keeps
            more for itself than there is.
        room: the engine's room there.
        out_of_reach: the reason why nobody can act there ("its libvirt does not answer", "Slurm says that it is DOWN");
            empty if one can.
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
    """The amount, with numbers below 0 raised to 0."""
    if amount.cpus >= 0 and amount.memory_mib >= 0:
        return amount
    return Resources(max(0.0, amount.cpus), max(0, amount.memory_mib))


@made_at_once
@dataclass(frozen=True, slots=True)
class VMFacts:
    """A VM: its demand, its location, and all nodes on which it holds memory or soon will.

    A VM that runs or is paused holds memory on its host. A VM that migrates holds it on both ends. A VM that boots or
    is being restored holds it on the node where it will run. A VM that waits or sleeps holds none.

    Attributes:
        vm: its name and demand.
        location: its location.
        holds: the nodes on which it holds memory now.
        will_hold: the nodes on which it will hold memory after all planned steps for it; None: the present ones.
        will_compute: whether it will need its CPUs though it is paused now, because it is about to go on.
    """

    vm: VM
    location: Location = WAITING
    holds: frozenset[str] = frozenset()
    will_hold: frozenset[str] | None = None
    will_compute: bool = False


#: So many sets of nodes are shared; most are of one node.
_SETS = 1 << 16
_ONE_STATE = {state: frozenset({state}) for state in VMState}


@lru_cache(maxsize=_SETS)
def shared(nodes: frozenset[str]) -> frozenset[str]:
    """The first set that was equal to this one: there are as many as vjobs, and few different ones."""
    return nodes


class Members(tuple[VMFacts, ...]):
    """The VMs of a vjob, and the facts that assessments need of them: computed once until the VMs change."""

    @cached_property
    def as_decided_about(self) -> tuple[VM, ...]:
        """The VMs as a configuration has them."""
        return tuple(each.vm for each in self)

    @cached_property
    def locations(self) -> Mapping[str, Location]:
        """The location of each VM, by name."""
        return {each.vm.name: each.location for each in self}

    @cached_property
    def states(self) -> frozenset[VMState]:
        """The states of the VMs."""
        found = frozenset(each.location.state for each in self)
        return _ONE_STATE[next(iter(found))] if len(found) == 1 else found

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes that have memory or a saved state of the VMs, except the storage that all nodes mount."""
        places = {each.location.node for each in self}
        on_nodes = frozenset(place for place in places if place and place != SHARED)
        return shared(on_nodes.union(*(each.holds for each in self)))

    @cached_property
    def computing(self) -> Mapping[str, Resources]:
        """The summed demands of the running VMs, by node."""
        found: dict[str, Resources] = {}
        for each in self:
            node = each.location.node
            if each.location.state is VMState.RUNNING and node is not None:
                found[node] = found.get(node, NOTHING) + each.vm.demand
        return found

    @cached_property
    def hold_where_they_are(self) -> bool:
        """Whether each VM that runs or is paused holds memory on its host alone; otherwise the VMs are unsettled."""
        return all(each.holds == _held_at(each.location) for each in self)


def _held_at(location: Location) -> frozenset[str]:
    """The nodes on which a settled VM holds memory."""
    if location.state.holds_memory and location.node is not None:
        return frozenset({location.node})
    return frozenset()


class VJobFacts(NamedTuple):
    """One vjob. Each cycle makes one of each, which a tuple does in half the time of a dataclass.

    Attributes:
        name: its name as users know it.
        vms: all its VMs; while it waits, its future VMs.
        unsettled: the reason why nothing is to be decided about it now ("is starting", "is held by its user"); empty
            if there is none.
        nodes: the VM hosts that it may use.
        preemptible: whether it may be suspended for others (the PreemptMode of its partition).
        priority: the PriorityTier of its partition.
        time_limit_s: the limit of its user; None: no limit.
        ran_s: the used part of the limit, suspends left out.
        state_s: the time that it has been in its state; None: for ever.
        waited_s: the time that it has not run since its submission, sleeps included.
        weight: the site's weight of it beyond its age, see ``rmsplugin.decision.expansion``.
        user: its user; empty: unknown.
        can: what the platform can do with its VMs.
        preference: an administrator's: running, sleeping, or none.
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
    can: Capabilities = EVERYTHING
    preference: VJobState | None = None


def vm_demand(
    size: Resources,
    overhead_mib: int,
    observed_cpus: float | None = None,
    observed_mib: int | None = None,
    overbooking: float = 1.0,
) -> Resources:
    """The demand of a VM, for decisions and bookings alike: its memory with the hypervisor's overhead, and CPUs.

    Args:
        size: the CPUs and the memory with which it is booted.
        overhead_mib: the hypervisor's memory for each VM.
        observed_cpus: the demand of a running VM, see ``rmsplugin.decision.cpu_demand``; None: all of its CPUs.
        observed_mib: the same for its memory, see ``rmsplugin.decision.memory_demand``.
        overbooking: see ``rmsplugin.model.overbooking``; it is the requested CPUs that are overbooked.
    """
    cpus = size.cpus if overbooking == 1 else overbooked(size.cpus, overbooking)
    if observed_cpus is not None:
        cpus = observed_cpus if overbooking == 1 else min(cpus, observed_cpus)
    memory_mib = size.memory_mib if observed_mib is None else observed_mib
    return amount(cpus, memory_mib + overhead_mib)
