"""Executor: begins operations on vjobs, at most one at a time for each, and carries them out in threads.

Intent first: the operation and the vjob's new state are in the ledger before anything acts. After a crash, `adopt`
takes up every operation that the ledger still has under way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rmsplugin.engine.context import Context
from rmsplugin.engine.operations.migrate import migrate
from rmsplugin.engine.operations.reattach import reattach
from rmsplugin.engine.operations.relocate import relocate
from rmsplugin.engine.operations.restart import restart
from rmsplugin.engine.operations.resume import resume
from rmsplugin.engine.operations.start import start
from rmsplugin.engine.operations.stop import stop
from rmsplugin.engine.operations.suspend import suspend
from rmsplugin.engine.rows import Operation, OperationKind
from rmsplugin.engine.task import CancelledError, Task
from rmsplugin.errors import LostStateError, RmspluginError
from rmsplugin.model.vjob import VJobState

log = logging.getLogger(__name__)

_ACTS: dict[OperationKind, Callable[[Task], None]] = {
    OperationKind.START: start,
    OperationKind.STOP: stop,
    OperationKind.SUSPEND: suspend,
    OperationKind.RESUME: resume,
    OperationKind.MIGRATE: migrate,
    OperationKind.REATTACH: reattach,
    OperationKind.RESTART: restart,
    OperationKind.RELOCATE: relocate,
}

#: The state that a vjob takes when an operation on it begins; the others leave it running.
_STATE_WHILE: dict[OperationKind, VJobState] = {
    OperationKind.START: VJobState.STARTING,
    OperationKind.STOP: VJobState.STOPPING,
    OperationKind.RESTART: VJobState.STOPPING,
    OperationKind.SUSPEND: VJobState.SUSPENDING,
    OperationKind.RESUME: VJobState.RESUMING,
}


class Executor:
    """Carries out operations; ``on_end`` is called, from a worker thread, whenever one has ended."""

    def __init__(self, context: Context, *, workers: int, on_end: Callable[[], None]) -> None:
        self._context = context
        self._on_end = on_end
        # Boots take long, and many begin at once: nothing that ends or moves VMs waits behind them.
        self._starts = ThreadPoolExecutor(workers, thread_name_prefix="start")
        self._others = ThreadPoolExecutor(workers, thread_name_prefix="operation")
        self._tasks: dict[int, Task] = {}
        self._lock = threading.Lock()

    def begin(
        self,
        job_id: int,
        kind: OperationKind,
        reason: str,
        *,
        requested_by: str = "engine",
        hosts: dict[str, str] | None = None,
        destinations: dict[str, str] | None = None,
        **changes: Any,
    ) -> Operation:
        """Record the intent and start to act on it.

        Args:
            job_id: the vjob.
            kind: what to do.
            reason: why, for a person.
            requested_by: a user's name, or "engine".
            hosts: where its VMs are going to run, by VM name (start, resume).
            destinations: where its VMs (or their saved states) move to, by VM name.
            changes: of the vjob's row, made in the same transaction.

        Raises:
            RefusedError: another operation on the vjob is under way.
            IllegalTransitionError: the vjob is not in a state for it.
        """
        ledger = self._context.ledger
        with ledger.transaction():
            operation = self.intend(job_id, kind, reason, requested_by=requested_by)
            for name, node in (hosts or {}).items():
                ledger.update_vm(name, host=node)
            for name, node in (destinations or {}).items():
                ledger.update_vm(name, destination=node)
            if changes:
                ledger.update_vjob(job_id, **changes)
        self.submit(operation)
        return operation

    def intend(self, job_id: int, kind: OperationKind, reason: str, *, requested_by: str = "engine") -> Operation:
        """Record the intent only, so that a caller can record more in the same transaction; `submit` follows."""
        ledger = self._context.ledger
        with ledger.transaction():
            operation = ledger.begin_operation(job_id, kind, requested_by, {"reason": reason})
            if kind in _STATE_WHILE:
                ledger.transition(job_id, _STATE_WHILE[kind], reason)
        return operation

    def adopt(self) -> int:
        """Take up all operations that an earlier engine left under way; returns how many."""
        operations = self._context.ledger.running_operations()
        for operation in operations:
            self.submit(operation)
        return len(operations)

    def busy(self) -> set[int]:
        """Job ids of the vjobs that an operation is under way on."""
        with self._lock:
            return set(self._tasks)

    def cancel(self, job_id: int, reason: str) -> None:
        """Whatever is being done to the vjob, other than ending it, is pointless, for ``reason``."""
        with self._lock:
            task = self._tasks.get(job_id)
        if task is not None and task.operation.kind not in (OperationKind.STOP, OperationKind.RESTART):
            task.cancel(reason)

    def poke(self, job_id: int) -> None:
        """Something happened that an operation on the vjob may be waiting for."""
        with self._lock:
            task = self._tasks.get(job_id)
        if task is not None:
            task.poke()

    def close(self) -> None:
        """Begin nothing more. What is under way stays in the ledger, for the next engine to take up."""
        for pool in (self._starts, self._others):
            pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, operation: Operation) -> None:
        """Act on a recorded intent."""
        task = Task(self._context, operation)
        with self._lock:
            self._tasks[operation.job_id] = task
        pool = self._starts if operation.kind is OperationKind.START else self._others
        pool.submit(self._run, task)

    def _run(self, task: Task) -> None:
        error, lost = "", False
        try:
            _ACTS[task.operation.kind](task)
        except LostStateError as failure:
            error, lost = str(failure), True
        except CancelledError as cancelled:
            error = f"cancelled: {cancelled}"
        except RmspluginError as failure:
            error = str(failure) or type(failure).__name__
        except Exception as bug:
            log.exception("operation %s on vjob %s", task.operation.kind, task.job_id)
            error = f"internal error: {bug!r}"
        self._end(task, error)
        if lost:
            self._restart(task.job_id, error)

    def _restart(self, job_id: int, reason: str) -> None:
        self._context.ledger.event("state-lost", f"{reason}; its job is requeued from the start", vjob=str(job_id))
        try:
            self.begin(job_id, OperationKind.RESTART, f"lost: {reason}")
        except RmspluginError as error:
            log.warning("vjob %s: %s; the next cycle tries again", job_id, error)

    def _end(self, task: Task, error: str) -> None:
        ledger = self._context.ledger
        log.log(
            logging.WARNING if error else logging.INFO,
            "%s of vjob %s %s",
            task.operation.kind,
            task.job_id,
            f"failed: {error}" if error else "done",
        )
        if error:
            task.event(f"{task.operation.kind}-failed", error)
        ledger.end_operation(task.operation.id, error)
        with self._lock:
            del self._tasks[task.job_id]
        self._on_end()
