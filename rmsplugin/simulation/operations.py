"""Operations: operations on vjobs in virtual time: how long each takes, whether it fails, and its result."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rmsplugin.model.action import Action, ActionKind, migrate, pause, resume, run, stop, suspend, unpause
from rmsplugin.model.elements import VM
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.transfers import Durations, Transfers
from rmsplugin.simulation.hosts import Hosts
from rmsplugin.simulation.measured import Measured, Went
from rmsplugin.simulation.outcome import Move
from rmsplugin.simulation.vjob import SimulatedVJob

K, S = OperationKind, VJobState

#: The state of a vjob while an operation on it is under way, and the state to which the operation leads.
_DURING = {
    K.START: S.STARTING,
    K.SUSPEND: S.SUSPENDING,
    K.RESUME: S.RESUMING,
    K.STOP: S.STOPPING,
    K.PAUSE: S.PAUSING,
    K.UNPAUSE: S.UNPAUSING,
}
_AFTER = {
    K.START: S.RUNNING,
    K.SUSPEND: S.SLEEPING,
    K.RESUME: S.RUNNING,
    K.STOP: S.TERMINATED,
    K.PAUSE: S.PAUSED,
    K.UNPAUSE: S.RUNNING,
}

#: All actions of these kinds take the same time, whatever memory a VM has.
_CONSTANT = (K.START, K.STOP, K.PAUSE, K.UNPAUSE)

#: Operations that leave a vjob as it was if they fail. A failed save of a paused vjob leaves it paused.
_HARMLESS = (K.START, K.SUSPEND, K.RESUME, K.PAUSE, K.UNPAUSE)


@dataclass(slots=True)
class Operation:
    """An operation under way on a vjob; ``left`` of its actions have not ended."""

    number: int
    vjob: SimulatedVJob
    kind: OperationKind
    hosts: Mapping[str, str]
    begin_s: float
    fails: bool
    before: VJobState  # the state of the vjob before
    local: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()
    left: int = 1


class Operations:
    """All operations under way, at most one on each vjob."""

    def __init__(
        self,
        durations: Durations,
        hosts: Hosts,
        measured: Measured,
        *,
        failure_rate: float,
        seed: int,
        ended: Callable[[Operation, float], None],
    ) -> None:
        """Begin with none; ``ended`` is called with each that ends, after it has changed the vjob."""
        self._durations = durations
        self._hosts = hosts
        self._measured = measured
        self._failure_rate = failure_rate
        self._seed = seed
        self._ended = ended
        self._transfers = Transfers(durations)
        self._of_action: dict[int, Operation] = {}
        self._actions = 0
        self._count = 0
        self._timed: list[tuple[float, int, Operation]] = []  # those whose durations are known
        self._begun: Counter[tuple[SimulatedVJob, OperationKind]] = Counter()
        self.by_vjob: dict[SimulatedVJob, Operation] = {}

    @property
    def next_s(self) -> float:
        """The time before which no operation ends; infinite if none is under way."""
        return min(self._transfers.next_event_s, self._timed[0][0] if self._timed else math.inf)

    def begin(self, vjob: SimulatedVJob, kind: OperationKind, hosts: Mapping[str, str], now: float) -> None:
        """Begin an operation on a vjob that is in the state for it.

        Args:
            vjob: a vjob on which nothing is under way.
            kind: start, suspend, resume, migrate, pause, unpause or stop.
            hosts: by VM name, the host where it will run (start, resume), or to which it moves.
            now: the time of the beginning.
        """
        self._count += 1
        stays = kind is K.UNPAUSE  # it has its memory already
        to = {name: hosts[name] for name in vjob.names if name in hosts and not stays}
        went = self._measured.went(vjob.job.job_id, kind, self._begun[vjob, kind])
        self._begun[vjob, kind] += 1
        fails = (went is not None and went.failed) or self._fails(vjob, kind)
        operation = Operation(self._count, vjob, kind, to, now, fails, vjob.state)
        self.by_vjob[vjob] = operation
        actions = self._actions_of(operation)
        self._slow_down(operation, actions)
        self._enter(operation, now)
        if went is None and kind in _CONSTANT:
            went = Went(self._durations.of(actions[0]).constant_s)
        if went is not None:
            heapq.heappush(self._timed, (now + went.seconds, self._count, operation))
            return
        operation.left = len(actions)
        gap_s = 0.0 if kind is K.MIGRATE else self._durations.pipeline_s
        for place, action in enumerate(sorted(actions, key=lambda each: (each.source or "", each.vm.name))):
            self._actions += 1
            self._of_action[self._actions] = operation
            self._transfers.begin(self._actions, action, now + place * gap_s)

    def proceed(self, now: float) -> None:
        """End all operations that end until now."""
        while self._timed and self._timed[0][0] <= now:
            self._end(heapq.heappop(self._timed)[2], now)
        while (found := self._transfers.next_end(now)) is not None:
            operation = self._of_action.pop(found[0])
            operation.left -= 1
            if not operation.left:
                self._end(operation, now)

    def _fails(self, vjob: SimulatedVJob, kind: OperationKind) -> bool:
        if not self._failure_rate:
            return False
        words = f"{self._seed} {vjob.name} {kind} {self._count}".encode()
        return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest()) < self._failure_rate * 2**64

    def _actions_of(self, operation: Operation) -> Sequence[Action]:
        vjob, to = operation.vjob, operation.hosts
        held = vjob.requested if vjob.memory is None else Resources(vjob.requested.cpus, vjob.held_mib)
        vms = [VM(name, held) for name in vjob.names]
        match operation.kind:
            case K.START:
                return [run(vm, to[vm.name]) for vm in vms]
            case K.STOP:
                return [stop(vm, vjob.hosts[vm.name]) for vm in vms]
            case K.SUSPEND:
                return [suspend(vm, vjob.hosts[vm.name]) for vm in vms]
            case K.RESUME:
                return [resume(vm, vjob.images[vm.name], to[vm.name]) for vm in vms]
            case K.PAUSE:
                return [pause(vm, vjob.hosts[vm.name]) for vm in vms]
            case K.UNPAUSE:
                return [unpause(vm, vjob.hosts[vm.name]) for vm in vms]
            case _:
                return [migrate(vm, vjob.hosts[vm.name], to[vm.name]) for vm in vms if vm.name in to]

    def _slow_down(self, operation: Operation, actions: Sequence[Action]) -> None:
        """Slow down the vjobs that compute on the nodes of a transfer, while it lasts."""
        local, remote = set(), set()
        for action in actions:
            if action.kind is ActionKind.MIGRATE or (action.kind is ActionKind.RESUME and not action.is_local):
                remote |= {action.source, action.destination}
            elif action.kind in (ActionKind.SUSPEND, ActionKind.RESUME):
                local.add(action.source)
        operation.local = tuple(sorted(node for node in local if node))
        operation.remote = tuple(sorted(node for node in remote if node))
        self._act(operation, 1)

    def _act(self, operation: Operation, sign: int) -> None:
        self._hosts.act(operation.local, remote=False, sign=sign)
        self._hosts.act(operation.remote, remote=True, sign=sign)

    def _enter(self, operation: Operation, now: float) -> None:
        vjob = operation.vjob
        self._hosts.hold(operation.hosts.values(), vjob.held_mib)
        if operation.kind is K.MIGRATE:
            vjob.moving = dict(operation.hosts)
            return
        if vjob.computes:
            vjob.count(now)
            self._hosts.compute(vjob, -1)
        if vjob.state is not _DURING[operation.kind]:  # it is in that state already where a stop is tried again
            vjob.become(_DURING[operation.kind], now)
        if operation.kind in (K.START, K.RESUME):
            vjob.hosts = dict(operation.hosts)

    def _end(self, operation: Operation, now: float) -> None:
        vjob, kind = operation.vjob, operation.kind
        del self.by_vjob[vjob]
        self._act(operation, -1)
        if not operation.fails:
            vjob.failures.pop(kind, None)
        if kind is K.MIGRATE:
            self._migrated(operation, now)
        elif not operation.fails:
            vjob.become(_AFTER[kind], now)
            self._succeeded(operation, now)
        elif kind in _HARMLESS:
            vjob.become(operation.before, now, failed=True)
            if kind in (K.START, K.RESUME):
                self._leave(vjob)
        if vjob.computes and kind is not K.MIGRATE:
            vjob.counted_s = now
            self._hosts.compute(vjob, 1)
        self._ended(operation, now)

    def _succeeded(self, operation: Operation, now: float) -> None:
        vjob = operation.vjob
        if operation.kind is K.SUSPEND:
            vjob.images = dict(vjob.hosts)
        if operation.kind in (K.SUSPEND, K.STOP):
            self._leave(vjob)
        if operation.kind is K.RESUME:
            vjob.images = {}
        if vjob.observed is not None:
            if operation.kind is K.START:
                vjob.observed.anew()
            elif operation.kind in (K.RESUME, K.UNPAUSE):
                vjob.observed.went_on(range(len(vjob.names)))

    def _leave(self, vjob: SimulatedVJob) -> None:
        self._hosts.release(vjob.hosts.values(), vjob.held_mib)
        vjob.hosts = {}

    def _migrated(self, operation: Operation, now: float) -> None:
        vjob, memory_mib = operation.vjob, operation.vjob.held_mib
        index = {name: number for number, name in enumerate(vjob.names)}
        moves = {index[name]: (vjob.hosts[name], node) for name, node in operation.hosts.items()}
        vjob.moves.append(Move(operation.begin_s, now, moves, operation.fails))
        vjob.moving = {}
        if operation.fails:
            self._hosts.release(operation.hosts.values(), memory_mib)
            return
        if vjob.computes:
            vjob.count(now)
            self._hosts.compute(vjob, -1)
        self._hosts.release([source for source, _ in moves.values()], memory_mib)
        vjob.hosts |= operation.hosts
        if vjob.computes:
            self._hosts.compute(vjob, 1)
        if vjob.observed is not None:
            vjob.observed.went_on(moves)
