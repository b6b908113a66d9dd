"""Action: one of the VM context switches (run, stop, migrate, suspend, resume, pause, unpause), with its own semantics.

RR-6929 section 4.1: suspend and stop free the VM's resources on its host and are always feasible; run and resume
demand room on their destination; migrate does both. While actions are carried out, this room is memory (invariant
I3); every VM has also its CPUs only at the end of a plan. A pause frees the CPUs at once and keeps the memory; an
unpause needs the CPUs, where the VM is (RR-6929, section 7: "suspended to ram").
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    NodeState,
    VMState,
    paused_on,
    running_on,
    sleeping_on,
)


class ActionKind(enum.StrEnum):
    """The five actions of the papers, and the two that lead into a node's memory and out of it."""

    RUN = "run"
    STOP = "stop"
    MIGRATE = "migrate"
    SUSPEND = "suspend"
    RESUME = "resume"
    PAUSE = "pause"
    UNPAUSE = "unpause"


_ENDED = frozenset({VMState.TERMINATED, VMState.WAITING})

#: For each action, the states of a VM in which it can begin, and the results of each. There are no others.
TRANSITIONS: dict[ActionKind, dict[VMState, frozenset[VMState]]] = {
    # boots from its image
    ActionKind.RUN: {VMState.WAITING: frozenset({VMState.RUNNING})},
    # the job has ended; or (requeue) it begins anew, and its remains are removed. A saved state goes the same way
    ActionKind.STOP: {VMState.RUNNING: _ENDED, VMState.PAUSED: _ENDED, VMState.SLEEPING: _ENDED},
    # live: the guest goes on; one that is paused stays so
    ActionKind.MIGRATE: {
        VMState.RUNNING: frozenset({VMState.RUNNING}),
        VMState.PAUSED: frozenset({VMState.PAUSED}),
    },
    # its state is saved where it is, or on shared storage; saving a paused VM disturbs nobody
    ActionKind.SUSPEND: {
        VMState.RUNNING: frozenset({VMState.SLEEPING}),
        VMState.PAUSED: frozenset({VMState.SLEEPING}),
    },
    # local where its saved state is, remote elsewhere: then the state is copied first
    ActionKind.RESUME: {VMState.SLEEPING: frozenset({VMState.RUNNING})},
    # it computes nothing, and keeps its memory
    ActionKind.PAUSE: {VMState.RUNNING: frozenset({VMState.PAUSED})},
    # it goes on where it is
    ActionKind.UNPAUSE: {VMState.PAUSED: frozenset({VMState.RUNNING})},
}

#: Actions that lead to no other place: a pause leaves the VM at its source, a stop leaves nothing.
_NO_DESTINATION = (ActionKind.STOP, ActionKind.PAUSE)

#: Actions that can be there only to break a cycle.
_BYPASSES = (ActionKind.MIGRATE, ActionKind.SUSPEND, ActionKind.RESUME)

#: Actions that a VM can undergo while it is paused; they are marked then.
_WHILE_PAUSED = (ActionKind.MIGRATE, ActionKind.SUSPEND)


@dataclass(frozen=True, slots=True)
class Action:
    """One action on one VM; it leaves the executor no choice.

    ``source`` is the node of a running or paused VM, or the place of a sleeping one's saved state; ``destination`` is
    the VM's place afterwards, or the place of the saved state after a suspend. ``bypass`` marks an action that only
    breaks a cycle; ``requeue`` a stop after which the VM waits to begin anew; ``paused`` a migration or a suspend of
    a VM that is paused.

    Raises:
        ValueError: it lacks a field that its kind needs, or has one that its kind does not know.
    """

    kind: ActionKind
    vm: VM
    source: str | None = None
    destination: str | None = None
    bypass: bool = False
    requeue: bool = False
    paused: bool = False

    def __post_init__(self) -> None:
        """Refuse an action that would leave the executor a choice."""
        wants_source, wants_destination = self.kind is not ActionKind.RUN, self.kind not in _NO_DESTINATION
        if wants_source != bool(self.source) or wants_destination != bool(self.destination):
            raise ValueError(
                f"{self.kind} {self.vm.name} needs {'a' if wants_source else 'no'} source and "
                f"{'a' if wants_destination else 'no'} destination, not {self.source!r} and {self.destination!r}"
            )
        if self.kind is ActionKind.UNPAUSE and self.source != self.destination:
            raise ValueError(f"{self.kind} {self.vm.name}: it goes on where it is, and not on {self.destination!r}")
        if self.bypass and self.kind not in _BYPASSES:
            raise ValueError(f"{self.kind} {self.vm.name}: only migrate, suspend and resume can be a bypass")
        if self.requeue and self.kind is not ActionKind.STOP:
            raise ValueError(f"{self.kind} {self.vm.name}: only a stop can be followed by a requeue")
        if self.paused and self.kind not in _WHILE_PAUSED:
            raise ValueError(f"{self.kind} {self.vm.name}: only migrate and suspend can be of a paused VM")

    @property
    def is_local(self) -> bool:
        """Whether a resume finds the saved state on its destination (or on shared storage), and copies nothing."""
        return self.source in (self.destination, SHARED)

    @property
    def demands(self) -> str | None:
        """The node on which it needs memory for the VM; None if it needs none."""
        return self.destination if self.kind in (ActionKind.RUN, ActionKind.MIGRATE, ActionKind.RESUME) else None

    def frees(self, configuration: Configuration) -> str | None:
        """The node on which it gives back the VM's memory; None if it gives back none."""
        if self.kind in (ActionKind.PAUSE, ActionKind.UNPAUSE):
            return None
        location = configuration.locations.get(self.vm.name)
        return self.source if location is not None and location.state.holds_memory else None

    @property
    def before(self) -> Location | None:
        """The VM's location when it begins; None for a stop, which takes the VM from ``source`` in several states."""
        match self.kind:
            case ActionKind.RUN:
                return WAITING
            case ActionKind.RESUME:
                return sleeping_on(self.source or "")
            case ActionKind.STOP:
                return None
            case ActionKind.UNPAUSE:
                return paused_on(self.source or "")
            case _:
                return paused_on(self.source or "") if self.paused else running_on(self.source or "")

    @property
    def after(self) -> Location:
        """The VM's location when it has ended."""
        match self.kind:
            case ActionKind.STOP:
                return WAITING if self.requeue else TERMINATED
            case ActionKind.SUSPEND:
                return sleeping_on(self.destination or "")
            case ActionKind.PAUSE:
                return paused_on(self.source or "")
            case ActionKind.MIGRATE if self.paused:
                return paused_on(self.destination or "")
            case _:
                return running_on(self.destination or "")

    def is_applicable(self, configuration: Configuration) -> bool:
        """Whether the VM is where the action takes it from."""
        location = configuration.locations.get(self.vm.name)
        if location is None:
            return False
        if self.kind is ActionKind.STOP:
            return location.state in TRANSITIONS[self.kind] and location.node == self.source
        return location == self.before

    def is_feasible(self, configuration: Configuration) -> bool:
        """Whether it can begin now: the VM is there, its destination accepts it and has the memory free (I3).

        An unpause needs the CPUs instead: it has the memory.
        """
        return self.obstacle(configuration) is None

    def obstacle(self, configuration: Configuration) -> str | None:
        """The reason why it cannot begin now, with the numbers; None if it can.

        The VM's demand in ``configuration`` counts, whatever it was when the action was planned.
        """
        name = self.vm.name
        if not self.is_applicable(configuration):
            return f"{name} is {configuration.locations.get(name) or 'unknown'}"
        if self.kind is ActionKind.SUSPEND and self.destination not in (self.source, SHARED):
            return f"a state is saved where the VM is, or on {SHARED} storage"
        if self.kind in (ActionKind.STOP, ActionKind.SUSPEND, ActionKind.PAUSE):
            return None
        return self._unwelcome(configuration) or self._lacking(configuration)

    def _unwelcome(self, configuration: Configuration) -> str | None:
        """The reason why its destination accepts no VM, or not this one."""
        node = configuration.node_by_name.get(self.destination or "")
        if node is None:
            return f"there is no node {self.destination!r}"
        if node.state is not NodeState.UP:
            return f"{node.name} is {node.state}"
        if node.name == self.source and self.kind is ActionKind.MIGRATE:
            return f"{self.vm.name} is there already"
        vjob = configuration.vjob_by_vm[self.vm.name]
        return None if vjob.allows(node.name) else f"vjob {vjob.name} may not be on {node.name}"

    def _lacking(self, configuration: Configuration) -> str | None:
        """The resources that its destination lacks."""
        demand, free = configuration.vm_by_name[self.vm.name].demand, configuration.free(self.destination or "")
        if self.kind is ActionKind.UNPAUSE:
            if demand.centi_cpus <= max(0, free.centi_cpus):
                return None
            return f"{self.destination} has {free.centi_cpus / 100:g} CPUs free, it needs {demand.centi_cpus / 100:g}"
        if demand.memory_mib <= free.memory_mib:
            return None
        return f"{self.destination} has {free.memory_mib} MiB free, it needs {demand.memory_mib}"

    def apply(self, configuration: Configuration) -> Configuration:
        """The configuration after the action.

        Raises:
            InfeasibleActionError: it is not feasible in ``configuration``.
        """
        if not self.is_feasible(configuration):
            raise InfeasibleActionError(self, configuration)
        return configuration.with_locations({self.vm.name: self.after})

    def __str__(self) -> str:
        way = f"{' from ' + self.source if self.source else ''}{' to ' + self.destination if self.destination else ''}"
        why = ", to begin anew" if self.requeue else ""
        what = f"{self.kind} paused" if self.paused else str(self.kind)
        return f"{'bypass ' if self.bypass else ''}{what} {self.vm.name}{way}{why}"


class InfeasibleActionError(ValueError):
    """An action was applied to a configuration in which it cannot begin."""

    def __init__(self, action: Action, configuration: Configuration) -> None:
        super().__init__(f"{action} is not feasible: {action.obstacle(configuration)}")


def run(vm: VM, to: str) -> Action:
    """Boot a waiting VM on ``to``."""
    return Action(ActionKind.RUN, vm, None, to)


def stop(vm: VM, source: str, requeue: bool = False) -> Action:
    """End a running or paused VM, or drop the saved state of a sleeping one, on ``source``."""
    return Action(ActionKind.STOP, vm, source, None, requeue=requeue)


def migrate(vm: VM, source: str, to: str, bypass: bool = False, paused: bool = False) -> Action:
    """Move a running VM live, or a paused one."""
    return Action(ActionKind.MIGRATE, vm, source, to, bypass, paused=paused)


def suspend(vm: VM, source: str, image: str | None = None, bypass: bool = False, paused: bool = False) -> Action:
    """Save the state of a VM on its node, or on ``image`` if that is given (``SHARED``)."""
    return Action(ActionKind.SUSPEND, vm, source, image or source, bypass, paused=paused)


def resume(vm: VM, image: str, to: str, bypass: bool = False) -> Action:
    """Let a sleeping VM go on, on ``to``."""
    return Action(ActionKind.RESUME, vm, image, to, bypass)


def pause(vm: VM, source: str) -> Action:
    """Let a running VM hold still in the memory of its host."""
    return Action(ActionKind.PAUSE, vm, source)


def unpause(vm: VM, source: str) -> Action:
    """Let a paused VM go on where it is."""
    return Action(ActionKind.UNPAUSE, vm, source, source)
