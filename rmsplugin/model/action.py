"""Action: one of the five VM context switches (run, stop, migrate, suspend, resume), with its own semantics.

RR-6929 section 4.1: suspend and stop free what the VM holds on its host and are always feasible; run and resume
demand room on their destination; migrate does both. What an action needs while it is carried out is memory (invariant
I3); that every VM also has its CPUs holds at the end of a plan.
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
    running_on,
    sleeping_on,
)


class ActionKind(enum.StrEnum):
    """The five actions."""

    RUN = "run"
    STOP = "stop"
    MIGRATE = "migrate"
    SUSPEND = "suspend"
    RESUME = "resume"


#: For each action, the states of a VM that it can begin in, and those that it can end in. There are no others.
TRANSITIONS: dict[ActionKind, tuple[frozenset[VMState], frozenset[VMState]]] = {
    # boots from its image
    ActionKind.RUN: (frozenset({VMState.WAITING}), frozenset({VMState.RUNNING})),
    # the job has ended; or (requeue) it begins anew, and what is left of it goes. A saved state goes the same way.
    ActionKind.STOP: (
        frozenset({VMState.RUNNING, VMState.SLEEPING}),
        frozenset({VMState.TERMINATED, VMState.WAITING}),
    ),
    # live: the guest goes on
    ActionKind.MIGRATE: (frozenset({VMState.RUNNING}), frozenset({VMState.RUNNING})),
    # its state is saved where it ran, or on shared storage
    ActionKind.SUSPEND: (frozenset({VMState.RUNNING}), frozenset({VMState.SLEEPING})),
    # local where its saved state is, remote elsewhere: then that is copied first
    ActionKind.RESUME: (frozenset({VMState.SLEEPING}), frozenset({VMState.RUNNING})),
}


@dataclass(frozen=True, slots=True)
class Action:
    """One action on one VM; it leaves the executor no choice.

    ``source`` is the host of a running VM or the place of a sleeping one's saved state; ``destination`` is where the VM
    runs afterwards, or where a suspend leaves the saved state. ``bypass`` marks an action that is there only to break a
    cycle; ``requeue`` a stop after which the VM waits to begin anew.
    """

    kind: ActionKind
    vm: VM
    source: str | None = None
    destination: str | None = None
    bypass: bool = False
    requeue: bool = False

    @property
    def is_local(self) -> bool:
        """Whether a resume finds the saved state on its destination, and copies nothing."""
        return self.source in (self.destination, SHARED)

    @property
    def demands(self) -> str | None:
        """The node on which it needs room for the VM; None if on none."""
        return self.destination if self.kind in (ActionKind.RUN, ActionKind.MIGRATE, ActionKind.RESUME) else None

    def frees(self, configuration: Configuration) -> str | None:
        """The node on which it gives back what the VM holds; None if on none."""
        return self.source if configuration.locations[self.vm.name].state is VMState.RUNNING else None

    @property
    def before(self) -> Location | None:
        """Where the VM must be when it begins; None for a stop, which takes it from where ``source`` says."""
        match self.kind:
            case ActionKind.RUN:
                return WAITING
            case ActionKind.RESUME:
                return sleeping_on(self.source or "")
            case ActionKind.STOP:
                return None
            case _:
                return running_on(self.source or "")

    @property
    def after(self) -> Location:
        """Where the VM is when it has ended."""
        match self.kind:
            case ActionKind.STOP:
                return WAITING if self.requeue else TERMINATED
            case ActionKind.SUSPEND:
                return sleeping_on(self.destination or "")
            case _:
                return running_on(self.destination or "")

    def is_applicable(self, configuration: Configuration) -> bool:
        """Whether the VM is where the action takes it from."""
        location = configuration.locations.get(self.vm.name)
        if location is None:
            return False
        if self.kind is ActionKind.STOP:
            return location.state in TRANSITIONS[self.kind][0] and location.node == self.source
        return location == self.before

    def is_feasible(self, configuration: Configuration) -> bool:
        """Whether it can begin now: the VM is there, its destination takes VMs and has the memory free (I3)."""
        if not self.is_applicable(configuration):
            return False
        if self.demands is None:
            return True
        node = configuration.node_by_name.get(self.demands)
        return (
            node is not None
            and node.state is NodeState.UP
            and self.vm.demand.memory_mib <= configuration.free(node.name).memory_mib
        )

    def apply(self, configuration: Configuration) -> Configuration:
        """The configuration after it.

        Raises:
            InfeasibleActionError: it is not feasible in ``configuration``.
        """
        if not self.is_feasible(configuration):
            raise InfeasibleActionError(self, configuration)
        return configuration.with_locations({self.vm.name: self.after})

    def __str__(self) -> str:
        way = f"{' from ' + self.source if self.source else ''}{' to ' + self.destination if self.destination else ''}"
        return f"{'bypass ' if self.bypass else ''}{self.kind} {self.vm.name}{way}"


class InfeasibleActionError(ValueError):
    """An action was applied to a configuration in which it cannot begin."""

    def __init__(self, action: Action, configuration: Configuration) -> None:
        location = configuration.locations.get(action.vm.name)
        where = f"{action.vm.name} is {location or 'unknown'}"
        if action.demands in configuration.node_by_name:
            free = configuration.free(action.demands or "")
            where += f", {action.demands} has {free.memory_mib} MiB free, it needs {action.vm.demand.memory_mib}"
        super().__init__(f"{action} is not feasible: {where}")


def run(vm: VM, to: str) -> Action:
    """Boot a waiting VM on ``to``."""
    return Action(ActionKind.RUN, vm, None, to)


def stop(vm: VM, source: str, requeue: bool = False) -> Action:
    """End a running VM, or drop the saved state of a sleeping one, on ``source``."""
    return Action(ActionKind.STOP, vm, source, None, requeue=requeue)


def migrate(vm: VM, source: str, to: str, bypass: bool = False) -> Action:
    """Move a running VM live."""
    return Action(ActionKind.MIGRATE, vm, source, to, bypass)


def suspend(vm: VM, source: str, image: str | None = None, bypass: bool = False) -> Action:
    """Save a running VM's state on its host, or on ``image`` if that is given (``SHARED``)."""
    return Action(ActionKind.SUSPEND, vm, source, image or source, bypass)


def resume(vm: VM, image: str, to: str, bypass: bool = False) -> Action:
    """Let a sleeping VM go on, on ``to``."""
    return Action(ActionKind.RESUME, vm, image, to, bypass)
