"""Switches: carries out cluster-wide context switches on the simulated cluster; a step waits for its needs."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rmsplugin.model.action import ActionKind
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.steps import PlannedStep
from rmsplugin.simulation.operations import Operation, Operations
from rmsplugin.simulation.outcome import SwitchRun
from rmsplugin.simulation.vjob import SimulatedVJob

K = OperationKind

#: The states in which a vjob may be for a step.
_BEFORE = {
    K.START: (VJobState.WAITING,),
    K.RESUME: (VJobState.SLEEPING,),
    K.SUSPEND: (VJobState.RUNNING, VJobState.PAUSED),
    K.MIGRATE: (VJobState.RUNNING, VJobState.PAUSED),
    K.PAUSE: (VJobState.RUNNING,),
    K.UNPAUSE: (VJobState.PAUSED,),
}


class _How(enum.Enum):
    PLANNED = enum.auto()
    RUNNING = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()  # or skipped, because a step that it waits for failed


_OPEN = (_How.PLANNED, _How.RUNNING)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The forecast of a context switch: its cost, its duration, its actions by kind."""

    cost_mib: int
    expected_s: float
    actions: Mapping[str, int]

    @classmethod
    def of(cls, proposal: Proposal) -> Foreseen:
        """The forecast of a proposal."""
        actions = Counter(
            "remote_resume" if action.kind is ActionKind.RESUME and not action.is_local else str(action.kind)
            for action in proposal.plan.actions()
        )
        return cls(proposal.plan.cost, proposal.estimate.by_dependencies_s, dict(sorted(actions.items())))


@dataclass
class _Switch:
    begin_s: float
    foreseen: Foreseen
    steps: list[PlannedStep]
    how: list[_How]


#: By name, nodes in place of others to which VMs come, which are not on: of those, of all that VMs come to, at a time.
Instead = Callable[[Collection[str], Callable[[], Collection[str]], float], Mapping[str, str]]


class Switches:
    """All context switches under way, and the results of the others."""

    def __init__(
        self,
        operations: Operations,
        vjobs: Mapping[str, SimulatedVJob],
        have_room: Callable[[SimulatedVJob, Mapping[str, str]], bool],
        are_on: Callable[[str, Collection[str], float], bool] = lambda _vjob, _nodes, _now: True,
        instead: Instead = lambda _nodes, _taken, _now: {},
    ) -> None:
        """Begin with none.

        Args:
            operations: what is done to vjobs.
            vjobs: all that have not ended, by name.
            have_room: whether a vjob's VMs have room where they come to.
            are_on: whether these nodes are on, for a step of a vjob, at a time; the step waits until they are.
            instead: nodes that are on in place of others, for a step that would wait.
        """
        self._operations = operations
        self._vjobs = vjobs
        self._have_room, self._are_on, self._instead = have_room, are_on, instead
        self._under_way: list[_Switch] = []
        self._running: dict[SimulatedVJob, tuple[_Switch, int]] = {}
        self.done: list[SwitchRun] = []

    def open_steps(self) -> Iterator[PlannedStep]:
        """All steps that have not ended, in their order."""
        for switch in self._under_way:
            for step, how in zip(switch.steps, switch.how, strict=True):
                if how in _OPEN:
                    yield step

    def add(self, foreseen: Foreseen, steps: Sequence[PlannedStep], now: float) -> None:
        """Begin a context switch; ``advance`` begins its steps."""
        self._under_way.append(_Switch(now, foreseen, list(steps), [_How.PLANNED] * len(steps)))

    def ended(self, operation: Operation) -> None:
        """Handle the end of an operation, which may have been a step."""
        found = self._running.pop(operation.vjob, None)
        if found is not None:
            switch, number = found
            switch.how[number] = _How.FAILED if operation.fails else _How.DONE

    def advance(self, now: float) -> bool:
        """Begin the steps that can begin, skip those that no longer can. Returns whether a step was skipped."""
        skipped = False
        for switch in list(self._under_way):
            for number, step in enumerate(switch.steps):
                if switch.how[number] is _How.PLANNED:
                    switch.how[number] = self._advanced(switch, number, step, now)
                    skipped |= switch.how[number] is _How.FAILED
            if not any(how in _OPEN for how in switch.how):
                self._under_way.remove(switch)
                self.done.append(_told(switch, now))
        return skipped

    def _advanced(self, switch: _Switch, number: int, step: PlannedStep, now: float) -> _How:
        needs = [switch.how[need] for need in step.needs]
        if _How.FAILED in needs:
            return _How.FAILED
        vjob = self._vjobs.get(step.vjob)
        if vjob is None:  # its work was done, and its VMs were stopped, before the step's turn came
            return _How.FAILED
        if any(how is not _How.DONE for how in needs) or vjob in self._operations.by_vjob:
            return _How.PLANNED
        step = switch.steps[number] = self._to_nodes_on(step, now)
        comes = {} if step.kind is K.UNPAUSE else step.hosts
        if vjob.state not in _BEFORE[step.kind] or vjob.end_s is not None or not self._have_room(vjob, comes):
            return _How.FAILED
        if not self._are_on(step.vjob, comes.values(), now):
            return _How.PLANNED
        self._operations.begin(vjob, step.kind, step.hosts, now)
        self._running[vjob] = (switch, number)
        return _How.RUNNING

    def _to_nodes_on(self, step: PlannedStep, now: float) -> PlannedStep:
        """The same step to nodes that are on and to which nobody else comes, in place of others that are not."""
        instead = self._instead(step.hosts.values(), self._taken, now)
        if not instead:
            return step
        return replace(step, hosts={vm: instead.get(node, node) for vm, node in step.hosts.items()})

    def _taken(self) -> set[str]:
        return {node for step in self.open_steps() for node in step.hosts.values()}


def _told(switch: _Switch, now: float) -> SwitchRun:
    return SwitchRun(
        begin_s=switch.begin_s,
        end_s=now,
        cost_mib=switch.foreseen.cost_mib,
        expected_s=switch.foreseen.expected_s,
        actions=switch.foreseen.actions,
        steps=Counter(step.kind.value for step in switch.steps),
        failed=sum(how is _How.FAILED for how in switch.how),
    )
