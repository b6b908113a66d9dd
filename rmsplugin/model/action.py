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

    Raises:
        ValueError: it lacks what its kind needs, or has what its kind does not know.
    """

    kind: ActionKind
    vm: VM
    source: str | None = None
    destination: str | None = None
    bypass: bool = False
    requeue: bool = False

    def __post_init__(self) -> None:
        """Refuse what would leave the executor a choice."""
        wants_source, wants_destination = self.kind is not ActionKind.RUN, self.kind is not ActionKind.STOP
        if wants_source != bool(self.source) or wants_destination != bool(self.destination):
            raise ValueError(
                f"{self.kind} {self.vm.name} needs {'a' if wants_source else 'no'} source and "
                f"{'a' if wants_destination else 'no'} destination, not {self.source!r} and {self.destination!r}"
            )
        if self.bypass and self.kind in (ActionKind.RUN, ActionKind.STOP):
            raise ValueError(f"{self.kind} {self.vm.name}: only migrate, suspend and resume can be a bypass")
        if self.requeue and self.kind is not ActionKind.STOP:
            raise ValueError(f"{self.kind} {self.vm.name}: only a stop can be followed by a requeue")

    @property
    def is_local(self) -> bool:
        """Whether a resume finds the saved state on its destination (or on shared storage), and copies nothing."""
        return self.source in (self.destination, SHARED)

    @property
    def demands(self) -> str | None:
        """The node on which it needs room for the VM; None if on none."""
        return self.destination if self.kind in (ActionKind.RUN, ActionKind.MIGRATE, ActionKind.RESUME) else None

    def frees(self, configuration: Configuration) -> str | None:
        """The node on which it gives back what the VM holds; None if on none."""
        location = configuration.locations.get(self.vm.name)
        return self.source if location is not None and location.state is VMState.RUNNING else None

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
        """Whether it can begin now: the VM is there, its destination takes it and has the memory free (I3)."""
        return self.obstacle(configuration) is None

    def obstacle(self, configuration: Configuration) -> str | None:
        """Why it cannot begin now, with the numbers; None if it can.

        What counts is what the VM demands by ``configuration``, whatever it did when the action was planned.
        """
        name, destination = self.vm.name, self.destination
        if not self.is_applicable(configuration):
            return f"{name} is {configuration.locations.get(name) or 'unknown'}"
        if self.kind is ActionKind.SUSPEND and destination not in (self.source, SHARED):
            return f"a state is saved where the VM runs, or on {SHARED} storage"
        if self.demands is None:
            return None
        node = configuration.node_by_name.get(self.demands)
        if node is None:
            return f"there is no node {self.demands!r}"
        if node.state is not NodeState.UP:
            return f"{node.name} is {node.state}"
        if node.name == self.source and self.kind is ActionKind.MIGRATE:
            return f"{name} is there already"
        vjob = configuration.vjob_by_vm[name]
        if not vjob.allows(node.name):
            return f"vjob {vjob.name} may not be on {node.name}"
        needed, free = configuration.vm_by_name[name].demand.memory_mib, configuration.free(node.name).memory_mib
        return f"{node.name} has {free} MiB free, it needs {needed}" if needed > free else None

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
        why = ", to begin anew" if self.requeue else ""
        return f"{'bypass ' if self.bypass else ''}{self.kind} {self.vm.name}{way}{why}"


class InfeasibleActionError(ValueError):
    """An action was applied to a configuration in which it cannot begin."""

    def __init__(self, action: Action, configuration: Configuration) -> None:
        super().__init__(f"{action} is not feasible: {action.obstacle(configuration)}")


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
