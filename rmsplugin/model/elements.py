"""Elements: the parts of a configuration (nodes, vjobs and their VMs), and the locations of VMs. All frozen."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from rmsplugin.model.by_fields import ByFields
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.made_at_once import made_at_once
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Rules, admit, alone, anchored_to
from rmsplugin.model.vjob import VJobState

#: Stands for a node: a saved state that every node reaches, on storage that all of them mount.
SHARED = "shared"


class NodeState(enum.StrEnum):
    """Whether VMs may come to a node, and whether any can be there."""

    UP = "up"
    DRAINING = "draining"  # its running VMs should leave, none may come
    DOWN = "down"  # nothing on it exists any more


class VMState(enum.StrEnum):
    """The state of a VM in its life; one of the actions lies between two of these states."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"  # computes nothing, and keeps its memory on its node
    SLEEPING = "sleeping"
    TERMINATED = "terminated"

    def __init__(self, word: str) -> None:
        """Make the state of this word.

        ``holds_memory``: whether a VM in this state has its memory on a node. A cycle asks of each VM many times.
        """
        self.holds_memory = word in ("running", "paused")


@made_at_once
@dataclass(frozen=True, slots=True)
class Node(ByFields):
    """A physical host for VMs, with the resources that they may take of it."""

    name: str
    capacity: Resources
    state: NodeState = NodeState.UP
    platform: str = ""  # its VMs are of this one; empty: the site's own


@made_at_once
@dataclass(frozen=True, slots=True)
class VM(ByFields):
    """A virtual machine and its present demand."""

    name: str
    demand: Resources
    only: str | None = None  # its node, if its platform cannot move it from there (``rmsplugin.model.abiding``)


@dataclass(frozen=True, slots=True)
class Location(ByFields):
    """The location of a VM: its host if it runs or is paused, its saved state's node (or ``SHARED``) if it sleeps."""

    state: VMState
    node: str | None = None

    def __reduce__(self) -> tuple[Callable[..., Location], tuple[VMState, str | None]]:
        """In another process it is the object of all VMs there, and compared with others at once."""
        return _location, (self.state, self.node)

    def __str__(self) -> str:
        return f"{self.state} on {self.node}" if self.node else str(self.state)


WAITING = Location(VMState.WAITING)
TERMINATED = Location(VMState.TERMINATED)


@cache
def running_on(node: str) -> Location:
    """The location of a VM that runs on ``node``: the same object for all of them, for there are many."""
    return Location(VMState.RUNNING, node)


@cache
def paused_on(node: str) -> Location:
    """The location of a VM that is paused in the memory of ``node``."""
    return Location(VMState.PAUSED, node)


def _location(state: VMState, node: str | None) -> Location:
    """The location that was pickled."""
    if node is None and state is VMState.WAITING:
        return WAITING
    if node is not None and state is VMState.RUNNING:
        return running_on(node)
    return Location(state, node)


def sleeping_on(node: str) -> Location:
    """The location of a VM whose saved state lies on ``node`` (or on ``SHARED`` storage)."""
    return Location(VMState.SLEEPING, node)


def held(vm: VM, state: VMState) -> Resources:
    """The resources that a VM takes of its node: its whole demand if it runs, only its memory if it is paused."""
    if state is VMState.RUNNING:
        return vm.demand
    return Resources(0.0, vm.demand.memory_mib) if state is VMState.PAUSED else NOTHING


@made_at_once
@dataclass(frozen=True, slots=True)
class VJob(ByFields):
    """A virtualised job: VMs that are scheduled as a unit, with the facts that the decision needs.

    Times are durations, so that nothing here depends on a clock.
    """

    name: str
    vms: tuple[VM, ...]
    preemptible: bool = True  # if not: once it runs it stays running
    target: VJobState | None = None  # fixes the decision for this vjob
    preference: VJobState | None = None  # an administrator's, running or sleeping: obeyed where it can be
    rules: Rules = ()  # the rules for the places of its VMs
    priority: int = 0  # PriorityTier of its partition: a higher tier preempts a lower one
    time_limit_s: float | None = None  # as the user asked; None: no limit
    ran_s: float = 0.0  # the used part of the limit
    state_s: float | None = None  # the time in its state; None: for ever
    waited_s: float = 0.0  # the time that it has not run since it was submitted, sleeps included
    weight: float = 1.0  # the site's weight beyond its age: its expansion is multiplied by this
    together_mib: int = 0  # the most of its memory on one node; 0: that of its largest VM, or unknown
    user: str = ""  # its user, where users have a share; empty: unknown
    lost: bool = False  # a VM or saved state of it is gone: it begins anew, after its remains are stopped
    in_transit: bool = False  # operation under way, or planned: its VMs here stand for its holdings, and stay
    yields_later: bool = False  # in transit now, and preemptible once it has arrived
    leaves: bool = False  # in transit, and its VMs are gone from here once that has ended
    platform: str = ""  # the platform of its VMs; empty: the site's own
    can: Capabilities = EVERYTHING  # the abilities of that platform

    def allows(self, node: str) -> bool:
        """Whether VMs of this vjob may be on ``node``."""
        return admit(self.rules, node)

    @property
    def anchored(self) -> bool:
        """Whether there are VMs of it that can only be where they are."""
        return self.can.anchors and any(vm.only is not None for vm in self.vms)

    @property
    def own_rules(self) -> Rules:
        """The rules for the places of its VMs that do not depend on other VMs: vjobs are alike by these."""
        return alone(self.rules)

    def rules_of(self, vm: VM) -> Rules:
        """The own rules for the place of one of its VMs: the vjob's, and that a VM that cannot move stays."""
        return self.own_rules if vm.only is None else anchored_to(self.own_rules, vm.only)

    @property
    def largest_mib(self) -> int:
        """The memory that its largest VM demands."""
        if len(self.vms) == 1:
            return self.vms[0].demand.memory_mib
        return max(vm.demand.memory_mib for vm in self.vms)

    @property
    def demand(self) -> Resources:
        """The summed demand of all its VMs."""
        if len(self.vms) == 1:
            return self.vms[0].demand
        return Resources(sum(vm.demand.cpus for vm in self.vms), sum(vm.demand.memory_mib for vm in self.vms))


def vm_in_transit(vjob: str, vm: str, node: str) -> str:
    """The name of a stand-in for a VM on one of the nodes where it holds, or will soon hold, memory."""
    return f"{vjob}:{vm}@{node}"


def original_vm(name: str) -> str:
    """The name of the VM for which a ``vm_in_transit`` stands."""
    return name.partition(":")[2].rpartition("@")[0]


#: The states of VMs, and that of their vjob: the first one in which any of its VMs is.
_STATES_TO_LEAVE = tuple(
    (state, VJobState(state)) for state in (VMState.TERMINATED, VMState.WAITING, VMState.RUNNING, VMState.PAUSED)
)


#: By the state of its only VM, that of a vjob.
_STATES = {state: VJobState(state) for state in VMState}


def state_of(vjob: VJob, locations: Mapping[str, Location]) -> VJobState:
    """The state of a vjob; while its VMs differ (after a part of a plan), the state that it must leave first.

    Some VMs terminated: the job has ended. Some waiting: its start was interrupted. Running and others mixed: it is
    not asleep yet, or awake only in part, and counts as running. Paused and sleeping mixed: it is not saved yet, and
    counts as paused.
    """
    if len(vjob.vms) == 1:
        return _STATES[locations[vjob.vms[0].name].state]
    states = {locations[vm.name].state for vm in vjob.vms}
    for state, its in _STATES_TO_LEAVE:
        if state in states:
            return its
    return VJobState.SLEEPING
