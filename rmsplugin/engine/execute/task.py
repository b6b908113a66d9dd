"""Task: one operation on one vjob while it is carried out, with its actions and its cancellation."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial

from rmsplugin.adapters.platform.base import Progress, VMSpec
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.machines import spec_of
from rmsplugin.engine.context.restored import Restored
from rmsplugin.engine.context.thread_budget import ThreadBudget
from rmsplugin.engine.execute.identity import site_directories
from rmsplugin.engine.execute.meeting import Meeting
from rmsplugin.engine.ledger.rows import Operation, VJobRow, VMRow
from rmsplugin.errors import (
    GuestFailedError,
    LedgerUnavailableError,
    LostStateError,
    NoSpaceError,
    OperationFailedError,
    RmspluginError,
    UnavailableError,
)

log = logging.getLogger(__name__)

#: The most VMs of one vjob that are acted on at the same time.
_PARALLEL = 32


#: How long a VM of a vjob waits for the others, so that all are acted on at the same instant.
_MEET_S = 1.0

#: How long the next VM waits for the action on the VM before it to begin, if that VM's node is slow.
_BEGIN_S = 10.0

#: Kinds of actions whose failures let a node rest; not stops: a VM must be stopped where it is, whatever failed before.
_RESTING_KINDS = frozenset({"run", "suspend", "resume", "migrate", "copy"})
#: Errors that tell something about a node; a lost state or a refusal does not.
_NODE_ERRORS = (UnavailableError, OperationFailedError, NoSpaceError)

#: The number of different errors that are told of one operation.
_TOLD = 8


class CancelledError(RmspluginError):
    """An operation became pointless while under way, mostly because its job ended; the next cycle cleans up."""


class Task:
    """One operation under way."""

    def __init__(
        self, context: Context, operation: Operation, threads: ThreadBudget, restored: dict[str, Restored]
    ) -> None:
        """Take it up.

        Args:
            context: all that an operation may need of the world.
            operation: as the ledger has it.
            threads: those in which its VMs may be acted on at the same time.
            restored: by image, how long the last VM took that was restored from its template; to be kept current.
        """
        self.context = context
        self.operation = operation
        self.threads = threads
        self.restored = restored
        #: For a start: its VMs need only a moment more, so that its job may begin.
        self.nearly_up = False
        self._cancelled = threading.Event()
        self._why_cancelled = ""
        self._poked = threading.Event()
        self._begun: dict[str, threading.Event] = defaultdict(threading.Event)
        self._meeting = Meeting((), 1)

    @property
    def job_id(self) -> int:
        """The RMS's id of the job."""
        return self.operation.job_id

    def vjob(self) -> VJobRow:
        """The vjob as the ledger has it now."""
        return self.context.ledger.vjob(self.job_id)

    def vms(self) -> list[VMRow]:
        """Its VMs as the ledger has them now, by index."""
        return self.context.ledger.vms(self.job_id)

    @property
    def shared(self) -> bool:
        """Whether every node sees every saved state."""
        return self.context.settings.nodes.shared

    def spec(self, vm: VMRow) -> VMSpec:
        """The VM as the platform must know it. Raises RefusedError: as ``site_directories``."""
        context, vjob = self.context, self.vjob()
        return spec_of(context.settings, context.epoch, vjob, vm, site_directories(context.settings, vjob))

    def event(self, kind: str, message: str, vm: str = "", node: str = "") -> None:
        """Record an event of this vjob."""
        self.context.ledger.event(kind, message, vjob=self.vjob().display_id, vm=vm, node=node)

    # -- cancellation and waiting --------------------------------------------------------------------------------

    def cancel(self, reason: str) -> None:
        """Ask the operation to end at its next step, and to begin no more actions. Returns at once."""
        self._why_cancelled = reason
        self._cancelled.set()
        self._poked.set()

    def abort_jobs(self) -> None:
        """Abort the saves and migrations of its VMs that are under way. Waits until their nodes answer."""
        # A node that is out of reach aborts nothing: the operation ends at its own bound.
        self.each([vm for vm in self.vms() if vm.host], lambda vm: self.context.hypervisor.abort_job(vm.host, vm.name))

    def check_cancelled(self) -> None:
        """Raise CancelledError if ``cancel`` was called."""
        if self._cancelled.is_set():
            raise CancelledError(self._why_cancelled)

    def poke(self) -> None:
        """Wake the operation: something happened that it may be waiting for."""
        self._poked.set()

    def pause(self, seconds: float) -> None:
        """Let time pass; ends early when poked or cancelled (then raises CancelledError)."""
        self.context.clock.wait(self._poked, seconds)
        self._poked.clear()
        self.check_cancelled()

    # -- actions -------------------------------------------------------------------------------------------------

    @contextmanager
    def action(self, kind: str, vm: VMRow, source: str = "", destination: str = "") -> Iterator[Progress]:
        """Record an action's intent, progress and end around the code that carries it out.

        Raises:
            CancelledError: the operation is cancelled, so no action begins any more.
        """
        self.check_cancelled()
        ledger = self.context.ledger
        action = ledger.begin_action(self.operation.id, kind, vm.name, source, destination)
        self.has_begun(vm)

        def progress(done: int, total: int) -> None:
            with suppress(LedgerUnavailableError):  # progress is only shown: no action fails by it
                ledger.action_progress(action, done, total)

        try:
            yield progress
        except BaseException as error:
            with ledger.transaction():
                ledger.end_action(action, str(error) or type(error).__name__)
                self._count_failure(kind, destination or source, error)
            raise
        with ledger.transaction():
            ledger.end_action(action)
            if ledger.failures.node_done(destination or source, kind):
                node = destination or source
                ledger.event("node-works-again", f"a {kind} went well on {node}", node=node)

    def _count_failure(self, kind: str, node: str, error: BaseException) -> None:
        """Count a failure at the node; after several of a kind in a row it takes no new action for a while."""
        tells = isinstance(error, _NODE_ERRORS) and not isinstance(error, LostStateError)
        if not tells or kind not in _RESTING_KINDS or self._cancelled.is_set():
            return
        ledger = self.context.ledger
        once = isinstance(error, GuestFailedError)
        rest = ledger.failures.node_failed(node, kind, self.vjob().user, str(error), once=once)
        if rest is not None:
            ledger.event("node-rests", f"{node} {rest.sentence}", node=node)

    def has_begun(self, vm: VMRow) -> None:
        """Tell that the act on a VM has begun, so that ``each`` begins the next one ``apart_s`` later: in ``act``."""
        self._begun[vm.name].set()

    def each(
        self, vms: Iterable[VMRow], act: Callable[[VMRow], None], *, apart_s: float = 0.0
    ) -> dict[str, RmspluginError]:
        """Act on VMs in parallel; with ``apart_s``, each action begins that long after the one before it has begun.

        Returns:
            The errors, by VM name; empty if all went well. A fault of our own code is an OperationFailedError.
        """
        vms = list(vms)
        # A single VM needs no thread beside that of its operation.
        with self.threads.lend(min(_PARALLEL, len(vms)) if len(vms) > 1 else 0) as lent:
            self._meeting = Meeting((vm.name for vm in vms), max(1, lent))
            if lent > 1:
                return self._in_threads(lent, vms, act, apart_s)
            return self._errors({vm.name: partial(act, vm) for vm in vms})

    def meet(self, vm: VMRow) -> None:
        """Wait, in the code given to ``each``, until all VMs have come to this point; then all go on at one instant.

        VMs that share a thread cannot meet. A VM that has failed is not awaited, and no wait is long.
        """
        self._meeting.wait(vm.name, _MEET_S)

    def _in_threads(
        self, count: int, vms: Iterable[VMRow], act: Callable[[VMRow], None], apart_s: float
    ) -> dict[str, RmspluginError]:
        with ThreadPoolExecutor(count, thread_name_prefix=f"vjob{self.job_id}") as pool:
            futures: dict[str, Future[None]] = {}
            for vm in vms:
                if futures and apart_s:
                    self.context.clock.sleep(apart_s)
                if apart_s:
                    begun = self._begun[vm.name] = threading.Event()
                futures[vm.name] = pool.submit(self._act, act, vm)
                if apart_s:
                    _wait_for(begun, futures[vm.name])
            return self._errors({name: future.result for name, future in futures.items()})

    def _act(self, act: Callable[[VMRow], None], vm: VMRow) -> None:
        try:
            act(vm)
        finally:
            self._meeting.drop(vm.name)

    def _errors(self, acts: Mapping[str, Callable[[], None]]) -> dict[str, RmspluginError]:
        """Call all ``acts``. Returns the errors, by VM name."""
        errors: dict[str, RmspluginError] = {}
        for name, act in acts.items():
            try:
                act()
            except RmspluginError as error:
                errors[name] = error
            except Exception as bug:
                log.exception("%s of %s", self.operation.kind, name)
                errors[name] = OperationFailedError(f"internal error: {bug!r}")
        return errors

    def all(self, vms: Iterable[VMRow], act: Callable[[VMRow], None], *, apart_s: float = 0.0) -> None:
        """``each``, raising ``combined`` errors."""
        errors = self.each(vms, act, apart_s=apart_s)
        if errors:
            raise combined(errors)


def _wait_for(begun: threading.Event, future: Future[None]) -> None:
    """Wait until an action has begun, or has failed before it could."""
    future.add_done_callback(lambda _: begun.set())
    begun.wait(_BEGIN_S)


def sentence_of(errors: Mapping[str, RmspluginError]) -> str:
    """The errors, for a person: each once, with the VMs that had it."""
    vms: dict[str, list[str]] = {}
    for name, error in errors.items():
        vms.setdefault(str(error) or type(error).__name__, []).append(name)
    told = [f"{', '.join(names)}: {text}" for text, names in list(vms.items())[:_TOLD]]
    return "; ".join(told + ([f"and {len(vms) - _TOLD} more errors"] if len(vms) > _TOLD else []))


def combined(errors: Mapping[str, RmspluginError]) -> RmspluginError:
    """One error that tells all: a lost state or a cancellation if one of them is; UnavailableError only if all are."""
    first, *others = errors.values()
    if not others:
        return first
    for kind in (LostStateError, CancelledError):
        if any(isinstance(error, kind) for error in errors.values()):
            return kind(sentence_of(errors))
    if all(isinstance(error, UnavailableError) for error in errors.values()):
        return UnavailableError(sentence_of(errors))
    return OperationFailedError(sentence_of(errors))
