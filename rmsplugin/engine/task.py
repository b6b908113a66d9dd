"""Task: one operation on one vjob while it is carried out, with its actions and its cancellation."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from rmsplugin.adapters.hypervisor.base import Progress
from rmsplugin.engine.context import Context
from rmsplugin.engine.rows import Operation, VJobRow, VMRow
from rmsplugin.errors import RmspluginError

#: VMs of one vjob that are acted on at the same time.
_PARALLEL = 32


#: How long the next VM waits for the action on the one before it to begin, should its node be slow.
_BEGIN_S = 10.0


class CancelledError(RmspluginError):
    """An operation became pointless while it was under way, mostly because its job ended: the next cycle cleans up."""


class Task:
    """One operation under way."""

    def __init__(self, context: Context, operation: Operation) -> None:
        self.context = context
        self.operation = operation
        self._cancelled = threading.Event()
        self._why_cancelled = ""
        self._poked = threading.Event()
        self._begun: dict[str, threading.Event] = defaultdict(threading.Event)

    @property
    def job_id(self) -> int:
        """The RMS's id of the job."""
        return self.operation.job_id

    def vjob(self) -> VJobRow:
        """The vjob as the ledger has it now."""
        return self.context.ledger.vjob(self.job_id)

    def vms(self) -> list[VMRow]:
        """Its VMs as the ledger has them now, sorted by host name."""
        return sorted(self.context.ledger.vms(self.job_id), key=lambda vm: vm.name)

    def event(self, kind: str, message: str, vm: str = "", node: str = "") -> None:
        """Record what happened to this vjob."""
        self.context.ledger.event(kind, message, vjob=self.vjob().display_id, vm=vm, node=node)

    # -- cancellation and waiting --------------------------------------------------------------------------------

    def cancel(self, reason: str) -> None:
        """Ask the operation to end at its next step; a save or migration under way is aborted."""
        self._why_cancelled = reason
        self._cancelled.set()
        self._poked.set()
        for vm in self.vms():
            if vm.host:
                try:
                    self.context.hypervisor.abort_job(vm.host, vm.name)
                except RmspluginError:
                    continue  # nothing to abort, or out of reach: the operation ends at its own bound

    def check_cancelled(self) -> None:
        """Raise CancelledError if ``cancel`` was called."""
        if self._cancelled.is_set():
            raise CancelledError(self._why_cancelled)

    def poke(self) -> None:
        """Something happened that the operation may be waiting for."""
        self._poked.set()

    def pause(self, seconds: float) -> None:
        """Let time pass; ends early when poked or cancelled (then raises CancelledError)."""
        self.context.clock.wait(self._poked, seconds)
        self._poked.clear()
        self.check_cancelled()

    # -- actions -------------------------------------------------------------------------------------------------

    @contextmanager
    def action(self, kind: str, vm: VMRow, source: str = "", destination: str = "") -> Iterator[Progress]:
        """Record an action's intent, progress and end around what carries it out."""
        ledger = self.context.ledger
        action = ledger.begin_action(self.operation.id, kind, vm.name, source, destination)
        self._begun[vm.name].set()
        try:
            yield lambda done, total: ledger.action_progress(action, done, total)
        except BaseException as error:
            ledger.end_action(action, str(error) or type(error).__name__)
            raise
        ledger.end_action(action)

    def each(
        self, vms: Iterable[VMRow], act: Callable[[VMRow], None], *, apart_s: float = 0.0
    ) -> dict[str, RmspluginError]:
        """Act on VMs in parallel; with ``apart_s``, each action begins that long after the one before it has begun.

        Returns:
            The errors, by VM name; empty if all went well.
        """
        errors: dict[str, RmspluginError] = {}
        with ThreadPoolExecutor(_PARALLEL, thread_name_prefix=f"vjob{self.job_id}") as pool:
            futures: dict[str, Future[None]] = {}
            for vm in vms:
                if futures and apart_s:
                    self.context.clock.sleep(apart_s)
                begun = self._begun[vm.name] = threading.Event()
                futures[vm.name] = pool.submit(act, vm)
                if apart_s:
                    _wait_for(begun, futures[vm.name])
            for name, future in futures.items():
                try:
                    future.result()
                except RmspluginError as error:
                    errors[name] = error
        return errors

    def all(self, vms: Iterable[VMRow], act: Callable[[VMRow], None]) -> None:
        """``each``, raising the first error."""
        for error in self.each(vms, act).values():
            raise error


def _wait_for(begun: threading.Event, future: Future[None]) -> None:
    """Wait until an action has begun, or has failed before it could."""
    future.add_done_callback(lambda _: begun.set())
    begun.wait(_BEGIN_S)


def first_sentence(errors: dict[str, RmspluginError]) -> str:
    """What went wrong, for a person: the first error, and how many more there are."""
    name, error = next(iter(errors.items()))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{name}: {error}{more}"
