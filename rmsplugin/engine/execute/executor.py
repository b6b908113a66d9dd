"""Executor: begins operations on vjobs, at most one at a time for each, and carries them out in threads.

Intent first: the operation and the vjob's new state are in the ledger before anything acts. After a crash, `adopt`
takes up every operation that the ledger still has under way. The end of an operation is in the ledger, too, with the
time that the engine waits before it tries the same again.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rmsplugin.assessment.back_off import MOST_S
from rmsplugin.engine.assess.held_back import HeldBack
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.restored import Restored
from rmsplugin.engine.context.thread_budget import ThreadBudget
from rmsplugin.engine.execute.operations import native
from rmsplugin.engine.execute.operations.allocation import NotStartedError
from rmsplugin.engine.execute.operations.checkpoint import StillPausedError, checkpoint
from rmsplugin.engine.execute.operations.go_on import go_on
from rmsplugin.engine.execute.operations.migrate import migrate
from rmsplugin.engine.execute.operations.pause import pause, unpause
from rmsplugin.engine.execute.operations.reattach import reattach
from rmsplugin.engine.execute.operations.relocate import TO_GROUP, relocate
from rmsplugin.engine.execute.operations.restart import restart
from rmsplugin.engine.execute.operations.resume import resume
from rmsplugin.engine.execute.operations.start import start
from rmsplugin.engine.execute.operations.stop import stop
from rmsplugin.engine.execute.operations.suspend import TAKES_OVER, suspend
from rmsplugin.engine.execute.task import CancelledError, Task
from rmsplugin.engine.ledger.failures import FailureCode
from rmsplugin.engine.ledger.rows import Operation, OperationKind
from rmsplugin.errors import LostStateError, OperationFailedError, RefusedError, RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

log = logging.getLogger(__name__)

K, S = OperationKind, VJobState


@dataclass(frozen=True, slots=True)
class _Act:
    """One kind of operation: its code, and its states."""

    carry_out: Callable[[Task], None]
    during: VJobState  # the vjob's state while the operation is under way; entered at its beginning, if it is another
    after: frozenset[VJobState]  # the states that it is to lead to
    also: VJobState | None = None  # the other state in which it may be carried out


_ACTS: dict[OperationKind, _Act] = {
    K.START: _Act(start, S.STARTING, frozenset({S.RUNNING})),
    K.STOP: _Act(stop, S.STOPPING, frozenset({S.TERMINATED})),
    K.SUSPEND: _Act(suspend, S.SUSPENDING, frozenset({S.SLEEPING})),
    K.RESUME: _Act(resume, S.RESUMING, frozenset({S.RUNNING})),
    K.MIGRATE: _Act(migrate, S.RUNNING, frozenset({S.RUNNING}), also=S.PAUSED),
    K.PAUSE: _Act(pause, S.PAUSING, frozenset({S.PAUSED})),
    K.UNPAUSE: _Act(unpause, S.UNPAUSING, frozenset({S.RUNNING})),
    K.CHECKPOINT: _Act(checkpoint, S.RUNNING, frozenset({S.RUNNING})),
    K.REATTACH: _Act(reattach, S.RUNNING, frozenset({S.RUNNING})),
    K.GO_ON: _Act(go_on, S.RUNNING, frozenset({S.RUNNING})),
    K.RESTART: _Act(restart, S.STOPPING, frozenset({S.WAITING, S.SLEEPING})),
    K.RELOCATE: _Act(relocate, S.SLEEPING, frozenset({S.SLEEPING})),
}

#: Groups of operations, each with threads of its own: an operation that moves VMs does not wait behind many slow boots,
#: and one that ends VMs, or has them stand still, waits behind nothing else. All others form one group, ``_MOVE``.
_GROUPS = {
    K.START: "start",
    K.REATTACH: "reattach",
    K.GO_ON: "reattach",
    K.STOP: "stop",
    K.RESTART: "stop",
    K.PAUSE: "pause",
    K.UNPAUSE: "pause",
}
_MOVE = "move"

#: Operations that read or write saved states: where one has failed, the store is looked at.
_STORES = (K.SUSPEND, K.RESUME, K.CHECKPOINT)
#: The phase of VMs that are given hosts when an operation begins: saved states that are taken over are sought there.
_AT_HOSTS = {K.RESUME: VMPhase.RESTORING, K.SUSPEND: VMPhase.LIVE}
#: The phase of VMs that are given destinations.
_ON_THE_WAY = {K.MIGRATE: VMPhase.MIGRATING, K.RELOCATE: VMPhase.MOVING}

_YIELD_LOOK_S = 0.05


class Chore(enum.Enum):
    """Kinds of what is done in the background; one waits for none of another kind."""

    CHECKPOINTS = enum.auto()
    STORES = enum.auto()
    ACCOUNTING = enum.auto()
    NOTES = enum.auto()
    MAILS = enum.auto()
    OVERSEERS = enum.auto()
    CALIBRATION = enum.auto()
    SIZES = enum.auto()


class Executor:
    """Carries out operations; ``on_end`` is called, from a worker thread, whenever an operation has ended."""

    def __init__(self, context: Context, *, workers: int, on_end: Callable[[], None]) -> None:
        self._context = context
        self._on_end = on_end
        #: The threads in which VMs of one vjob are acted on, beside that of its operation.
        self.threads = ThreadBudget()
        #: How long the last VM restored from each image's template took until it answered. In memory only.
        self.restored: dict[str, Restored] = {}
        self._groups = {
            name: ThreadPoolExecutor(workers, thread_name_prefix=name) for name in {_MOVE, *_GROUPS.values()}
        }
        self._aborts = ThreadPoolExecutor(workers, thread_name_prefix="abort")
        self._chores = ThreadPoolExecutor(len(Chore), thread_name_prefix="chore")
        self._last_chores: dict[Chore, Future[None]] = {}
        self._tasks: dict[int, Task] = {}
        self._aborting: set[Task] = set()
        self._unrecorded: list[tuple[Task, RmspluginError | None]] = []
        self._lost: dict[int, str] = {}  # by job id, why its state is lost; until an operation is begun on it
        self.held_back = HeldBack()
        self._lock = threading.Lock()

    def begin(self, job_id: int, kind: OperationKind, reason: str, **rest: Any) -> Operation:
        """Record the intent and start to act on it; arguments and errors as of `intend`."""
        operation = self.intend(job_id, kind, reason, **rest)
        self.submit(operation)
        return operation

    def intend(
        self,
        job_id: int,
        kind: OperationKind,
        reason: str,
        *,
        told: str = "",
        requested_by: str = "engine",
        hosts: Mapping[str, str] | None = None,
        destinations: Mapping[str, str] | None = None,
        takes_over: bool = False,
        to_group: str = "",
        **changes: Any,
    ) -> Operation:
        """Record the intent only, so that a caller can record more in the same transaction; `submit` follows.

        Args:
            job_id: the vjob.
            kind: what to do.
            reason: why, for a person; it still has to be true when the operation has ended.
            told: the same as long as the operation lasts; empty: the reason.
            requested_by: a user's name, or "engine".
            hosts: by VM name, the node where it is going to run (resume).
            destinations: by VM name, the node to which it (or its saved state) moves.
            takes_over: for a suspend: the saved states are there already, on ``hosts``.
            to_group: the group to which copies of its saved states go, as the ledger says.
            changes: of the vjob's row, made in the same transaction.

        Raises:
            RefusedError: another operation on the vjob is under way; or the end of the last one is not recorded yet; or
                the vjob is held back.
            IllegalTransitionError: the vjob is not in a state for it.
        """
        ledger = self._context.ledger
        with ledger.transaction():
            if (kind in (K.SUSPEND, K.PAUSE) or destinations) and any(vm.phase.moves for vm in ledger.vms(job_id)):
                raise RefusedError("a migration of it has not ended: where its VMs are is not known yet")
            self.held_back.refuse(ledger.vjob(job_id))
            arguments = {"reason": reason, **({TAKES_OVER: "1"} if takes_over else {})}
            arguments |= {TO_GROUP: to_group} if to_group else {}
            operation = ledger.begin_operation(job_id, kind, requested_by, arguments)
            if _ACTS[kind].during.is_transitional:
                ledger.transition(job_id, _ACTS[kind].during, told or reason)
            for name, node in (hosts or {}).items():
                ledger.enter_phase(name, _AT_HOSTS[kind], host=node)
            for name, node in (destinations or {}).items():
                ledger.enter_phase(name, _ON_THE_WAY[kind], destination=node)
            if changes:
                ledger.update_vjob(job_id, **changes)
        return operation

    def adopt(self) -> int:
        """Take up all operations that an earlier engine left under way; returns how many."""
        operations = self._context.ledger.running_operations()
        for operation in operations:
            self.submit(operation)
        return len(operations)

    def busy(self) -> set[int]:
        """Job ids of the vjobs that have an operation under way."""
        with self._lock:
            return set(self._tasks)

    def is_busy(self, job_id: int) -> bool:
        """Whether the vjob has an operation under way."""
        return job_id in self._tasks  # asked of each vjob: one step of a dictionary needs no lock

    def yielding(self) -> set[int]:
        """Job ids of the vjobs whose operation under way is a checkpoint, which makes way for any other."""
        with self._lock:
            return {job_id for job_id, task in self._tasks.items() if task.operation.kind is K.CHECKPOINT}

    def make_way(self, job_id: int, what: str, *, wait_s: float = 0.0) -> None:
        """Cancel a checkpoint that is under way, because ``what`` goes first; wait at most ``wait_s`` for its end."""
        if job_id not in self.yielding():
            return
        self.cancel(job_id, f"{what} goes first")
        deadline = time.monotonic() + wait_s
        while job_id in self.yielding() and time.monotonic() < deadline:
            time.sleep(_YIELD_LOOK_S)

    def chore(self, kind: Chore, act: Callable[[], None]) -> None:
        """Do something in the background that nothing waits for, unless the last one of its kind has not ended yet."""
        if not self.is_at(kind):
            self._last_chores[kind] = self._chores.submit(act)

    def is_at(self, kind: Chore) -> bool:
        """Whether the last one of the kind has not ended yet."""
        return kind in self._last_chores and not self._last_chores[kind].done()

    @property
    def chores_ended(self) -> bool:
        """Whether nothing is done in the background."""
        return all(last.done() for last in self._last_chores.values())

    def cancel(self, job_id: int, reason: str) -> None:
        """Cancel the operation on the vjob as pointless, for ``reason``, unless it ends the vjob. Waits for nothing."""
        with self._lock:
            task = self._tasks.get(job_id)
            if task is None or task in self._aborting or _GROUPS.get(task.operation.kind) == "stop":
                return
            self._aborting.add(task)
        task.cancel(reason)
        self._aborts.submit(self._abort, task)

    def _abort(self, task: Task) -> None:
        try:
            task.abort_jobs()
        except Exception:
            log.exception("the operation under way on vjob %s cannot be aborted", task.job_id)
        finally:
            with self._lock:
                self._aborting.discard(task)

    def poke(self, job_id: int) -> None:
        """Wake an operation on the vjob: something happened that it may be waiting for."""
        with self._lock:
            task = self._tasks.get(job_id)
        if task is not None:
            task.poke()

    def lost(self, job_id: int) -> str:
        """Why the vjob's state is lost, as its last operation found; empty if it found no loss."""
        return self._lost.get(job_id, "")  # as in ``is_busy``

    def nearly_up(self, job_id: int) -> bool:
        """Whether the vjob is about to run, unless an accident happens."""
        with self._lock:
            task = self._tasks.get(job_id)
        return task is not None and task.nearly_up

    @property
    def pools(self) -> tuple[ThreadPoolExecutor, ...]:
        """The pools of all threads."""
        return (*self._groups.values(), self._aborts, self._chores)

    def close(self) -> None:
        """Begin nothing more. Operations under way stay in the ledger, for the next engine to take up."""
        for pool in self.pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, operation: Operation) -> None:
        """Act on a recorded intent."""
        task = Task(self._context, operation, self.threads, self.restored)
        with self._lock:
            self._tasks[operation.job_id] = task
            self._lost.pop(operation.job_id, None)
        self._groups[_GROUPS.get(operation.kind, _MOVE)].submit(self._do_task, task)

    def _do_task(self, task: Task) -> None:
        error: RmspluginError | None = None
        try:
            self._carry_out(task)
        except RmspluginError as failure:
            error = failure
        except Exception as bug:
            log.exception("operation %s on vjob %s", task.operation.kind, task.job_id)
            error = OperationFailedError(f"internal error: {bug!r}")
        if isinstance(error, LostStateError):
            with self._lock:
                self._lost[task.job_id] = str(error)  # the next cycle restarts it, if it may
        self._end(task, error)

    def _carry_out(self, task: Task) -> None:
        act, vjob = _ACTS[task.operation.kind], task.vjob()
        if vjob.state in (act.during, act.also):
            self._code_of(task.operation.kind)(task)
        elif vjob.state not in act.after:
            # An engine was killed between the vjob's last transition and the record of the operation's end.
            raise OperationFailedError(vjob.reason)

    def _code_of(self, kind: OperationKind) -> Callable[[Task], None]:
        """The code of a kind of operation. Raises OperationFailedError: plain jobs have none of this kind."""
        if not self._context.settings.native:
            return _ACTS[kind].carry_out
        if kind not in native.ACTS:
            raise OperationFailedError(f"native has no {kind}")
        return native.ACTS[kind]

    # -- ends ----------------------------------------------------------------------------------------------------

    def record_ends(self) -> None:
        """Try again to record ends of operations that could not be recorded; for instance, the disk was full."""
        with self._lock:
            unrecorded, self._unrecorded = self._unrecorded, []
        for task, error in unrecorded:
            self._end(task, error, again=True)

    def _end(self, task: Task, error: RmspluginError | None, *, again: bool = False) -> None:
        if not again:
            _log_end(task, error)
        try:
            self._record_end(task, error)
        except Exception as failure:
            # In the ledger the operation is under way, and so it is in `busy`, until its end can be recorded.
            known = isinstance(failure, RmspluginError)
            what = f"the end of {task.operation.kind} of vjob {task.job_id} cannot be recorded yet"
            log.warning("%s: %s", what, failure, exc_info=not known)
            with self._lock:
                self._unrecorded.append((task, error))
            return
        with self._lock:
            # After the record of the end, another operation may have begun.
            if self._tasks.get(task.job_id) is task:
                del self._tasks[task.job_id]
        self._on_end()

    def _record_end(self, task: Task, error: RmspluginError | None) -> None:
        ledger, kind, job_id = self._context.ledger, task.operation.kind, task.job_id
        cancelled = isinstance(error, CancelledError)
        text = f"cancelled: {error}" if cancelled else (str(error) or type(error).__name__) if error else ""
        with ledger.transaction():
            if error is None:
                ledger.failures.vjob_done(job_id, kind)
            else:
                task.event(f"{kind}-failed", text)
                if isinstance(error, LostStateError):
                    task.event("state-lost", text)
                if not cancelled:
                    code = FailureCode.NOT_STARTED if isinstance(error, NotStartedError) else FailureCode.OTHER
                    most_s = error.most_s if isinstance(error, NotStartedError | StillPausedError) else MOST_S
                    ledger.failures.vjob_failed(job_id, kind, text, code=code, most_s=most_s)
                    if kind in _STORES:
                        self._context.stores.doubt(
                            node for vm in task.vms() for node in (vm.host, vm.image_node, *vm.touched)
                        )
            ledger.end_operation(task.operation.id, text)
            if cancelled:
                ledger.plans.step_is_needless(task.operation.id, text)


def _log_end(task: Task, error: RmspluginError | None) -> None:
    log.log(
        logging.WARNING if error else logging.INFO,
        "%s of vjob %s %s",
        task.operation.kind,
        task.job_id,
        f"failed: {error}" if error else "done",
    )
