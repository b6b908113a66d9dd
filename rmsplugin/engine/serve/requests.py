"""Requests: the requests to the service, the rights that each needs, and their effects. No HTTP here."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rmsplugin.accounts import Account
from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.engine.assess.job_identity import why_other
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.execute import usage
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.identity import take_account
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.rows import Operation, RoomReport, VJobRow
from rmsplugin.engine.ledger.vjob_cache import Entry, VJobCache
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.dead_nodes import require_answers
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.reconcile.requeues import Requeue, record_requeue, why_not_attached
from rmsplugin.engine.serve import veiled_views
from rmsplugin.engine.serve.naming import Named, named, the_one
from rmsplugin.engine.serve.orders import Orders, seen_by
from rmsplugin.engine.serve.preferring import prefer
from rmsplugin.engine.serve.privacy import Privacy, Sight
from rmsplugin.engine.serve.put_aside import PutAside
from rmsplugin.engine.serve.resizing import Resizing, Size
from rmsplugin.engine.serve.rights import Rights, user_name
from rmsplugin.engine.serve.standings import Standings
from rmsplugin.engine.serve.unmet import find_unmet, unmet_view
from rmsplugin.engine.serve.views import one_vjob_view, operation_view
from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_names import parse_vm_name


@dataclass(frozen=True, slots=True)
class Several:
    """Elements of an array; nothing was begun, and the caller asks for each of them."""

    found: Named

    @property
    def view(self) -> dict[str, Any]:
        """The answer, as JSON."""
        return {"elements": self.found.states}


#: How long a request by hand waits for a checkpoint to make way.
_YIELD_S = 10.0

#: How often the report of a script's end may change, and the number of vjobs for which that is counted.
_CHANGES_MAX, _CHANGES_OF = 5, 10_000


class Requests:
    """One method for each request; each is given the caller's uid, as the operating system or munge proved it."""

    def __init__(
        self, context: Context, executor: Executor, placing: Placing, cycle: Cycle, wake: Callable[[], None]
    ) -> None:
        self._settings = context.settings
        self._ledger = context.ledger
        self._clock = context.clock
        self._hypervisor = context.hypervisor
        self._nodes = context.nodes
        self._guests = context.guests
        self._stores = context.stores
        self._signs = context.signs
        self._slurm = context.slurm
        self._jobs = context.jobs
        self._executor = executor
        self._placing = placing
        self._cycle = cycle
        self._wake = wake
        self.vjob_cache = VJobCache(context.ledger)
        self._resizing = Resizing(context.ledger, context.capabilities, context.clock.now)
        self._privacy = Privacy(cycle)
        self._grant(Rights.of_site(context.settings.engine))
        self.standings = Standings(context.settings, context.ledger, cycle)
        self._lock = threading.Lock()
        self._changes: dict[int, int] = {}  # by job id, how often its script's end was told differently; latest last

    def without_powers(self) -> Requests:
        """The same requests without powers of root, the engine's user and operators: for hosts without trust."""
        same = copy.copy(self)
        same._grant(self.rights.without_powers())
        return same

    def _grant(self, rights: Rights) -> None:
        self.rights = rights
        #: Requests that only operators may make.
        self.orders = Orders(
            self._settings, self._ledger, self._hypervisor, self._nodes, self._stores, self._cycle, self._wake, rights
        )
        #: Requests about saved states that were put aside.
        self.put_aside = PutAside(self._settings, self._ledger, self._nodes, self._stores, self._executor, rights)

    # -- rights --------------------------------------------------------------------------------------------------

    def _owned(self, uid: int, display_id: str, *, operators: bool = False) -> VJobRow:
        """The vjob, if the caller is its owner, root, the engine or, with ``operators``, an operator."""
        vjob = self._ledger.find_vjob(display_id)
        allowed = uid == vjob.uid or self.rights.is_engine(uid) or (operators and self.rights.is_operator(uid))
        if not allowed:
            if not self.sight(uid).sees(vjob):
                raise NotFoundError(f"no vjob {display_id}")
            raise ForbiddenError(f"vjob {display_id} belongs to {vjob.user}")
        return vjob

    @property
    def keeps_private(self) -> bool:
        """Whether there is anything that some callers are not told."""
        return bool(self._privacy.private)

    def sight(self, uid: int) -> Sight:
        """What the caller is told of jobs and nodes."""
        return self._privacy.sight(uid, self.rights)

    def _named(self, uid: int, name: str) -> Named:
        """The vjobs with this name, if the caller is told of all of them. Raises NotFoundError."""
        found, sight = named(self._settings, self._ledger, self._cycle.seen, name), self.sight(uid)
        if not all(map(sight.sees, found.rows)) or not all(self._sees_waiting(sight, each) for each in found.waiting):
            raise NotFoundError(f"no vjob {name}")
        return found

    def _sees_waiting(self, sight: Sight, display_id: str) -> bool:
        """Whether the caller is told of a job that the ledger does not know."""
        if sight.all_jobs:
            return True
        jobs = sight.seen.rms.jobs if sight.seen else ()
        return any(sight.sees_job(job) for job in jobs if job.display_id == display_id)

    def sees(self, uid: int, name: str) -> bool:
        """Whether the caller is told of the vjob with this name."""
        try:
            self._named(uid, name)
        except NotFoundError:
            return False
        return True

    def owned(self, uid: int, name: str, *, wrapper: bool) -> int:
        """The job id of the caller's own vjob."""
        return self._wrapped(uid, name).job_id if wrapper else self._one(uid, name).job_id

    def _one(self, uid: int, name: str) -> VJobRow:
        """The caller's one vjob with this name. Raises RefusedError if there are several."""
        self._named(uid, name)
        return self._owned(uid, the_one(self._settings, self._ledger, self._cycle.seen, name).display_id)

    def _meant(self, uid: int, name: str, chosen: Sequence[str] = ()) -> VJobRow | Several:
        """The vjob that a request of its user or an operator is about; or the elements of an array.

        Args:
            uid: of the caller.
            name: of the vjob, or of elements of an array.
            chosen: arguments that are valid for a single vjob. With any, several vjobs raise RefusedError.
        """
        found = self._named(uid, name).alive
        for row in found.rows:
            self._owned(uid, row.display_id, operators=True)
        if len(found.names) == 1 or any(chosen):
            return self._owned(
                uid, the_one(self._settings, self._ledger, self._cycle.seen, name).display_id, operators=True
            )
        return Several(found)

    def require(self, uid: int, name: str) -> None:
        """Raise NotFoundError unless there is a vjob with this name, of which the caller is told."""
        try:
            self._named(uid, name)
        except NotFoundError:
            self._find_unmet(uid, name)

    def _find_unmet(self, uid: int, name: str) -> RmsJob:
        """See ``find_unmet``."""
        return find_unmet(self._settings, self._jobs, self._cycle.seen, name, self.sight(uid).sees_job)

    def _wrapped(self, uid: int, display_id: str) -> VJobRow:
        """The vjob that a wrapper asks for.

        Without a gate Slurm starts a job before the engine has met it: before the first cycle of a new cluster, or when
        the licence was taken away. Then the absence of the job from the ledger proves nothing.

        Raises:
            UnavailableError: the engine has not met the job yet.
            NotFoundError: the engine will never meet the job.
        """
        try:
            return self._owned(uid, display_id)
        except NotFoundError:
            jobs = self._seen().rms.jobs
            found = next((job for job in jobs if display_id in (job.display_id, str(job.job_id))), None)
            if found is not None and found.partition not in self._settings.slurm.partitions:
                raise NotFoundError(
                    f"job {display_id} is no vjob: slurm.partitions of the engine has no {found.partition}"
                ) from None
            raise UnavailableError(f"the engine has not met job {display_id} yet") from None

    # -- hooks ---------------------------------------------------------------------------------------------------

    def hook(self, uid: int, job_id: int) -> None:
        """Take the call of a job's prolog or epilog: look at the job now."""
        if not self.rights.is_engine(uid):
            raise ForbiddenError("only Slurm's hooks may call this")
        self._executor.poke(job_id)
        self._wake()

    def room_report(self, uid: int, report: RoomReport) -> dict[str, Any]:
        """Take the report of a room's prolog or epilog about its node."""
        if not self.rights.is_engine(uid):
            raise ForbiddenError("only Slurm's hooks may call this")
        ledger = self._ledger
        with ledger.transaction():
            ledger.room_reports.add(report)
            kind, where = f"room-{report.hook}", f"room {report.room} on {report.node}"
            if report.problem:
                ledger.event(kind, f"{where}: {report.problem}", node=report.node)
            for vm in report.ended:
                ledger.event(kind, f"{where} ended {vm}", vjob=self._display_id(vm), vm=vm, node=report.node)
        self._wake()
        return {"ok": True}

    def _display_id(self, vm: str) -> str:
        """The display id of the vjob that a VM belongs to; empty if the ledger does not know the VM."""
        parsed = parse_vm_name(vm)
        known = self._ledger.vjobs_among([parsed[0]]) if parsed else {}
        return next((vjob.display_id for vjob in known.values()), "")

    def account(self, uid: int, job_id: int, told: Account) -> dict[str, Any]:
        """Take the user's account, as the prolog of the job's front tells it."""
        if not self.rights.is_engine(uid):
            raise ForbiddenError("only Slurm's hooks may call this")
        return {
            "changed": take_account(self._settings, self._ledger, self._guests, self._slurm, self._jobs, job_id, told)
        }

    def state(self, job_id: int) -> dict[str, Any]:
        """The state of the vjob; a job that the engine has not met yet is waiting."""
        try:
            vjob = self._ledger.vjob(job_id)
        except NotFoundError:
            return {"state": str(VJobState.WAITING), "reason": "not met yet", "starts": 0, "nearly_up": False}
        return {
            "state": str(vjob.state),
            "reason": vjob.reason,
            "starts": self._ledger.starts(job_id),
            "nearly_up": self._executor.nearly_up(job_id),
        }

    def vjob(self, uid: int, display_id: str) -> dict[str, Any]:
        """One vjob, also one that Slurm has and the engine has not met yet. Raises NotFoundError, UnavailableError."""
        sight = self.sight(uid)
        try:
            self._named(uid, display_id)
            found = the_one(self._settings, self._ledger, self._cycle.seen, display_id)
        except NotFoundError:
            job = self._find_unmet(uid, display_id)
            return veiled_views.vjob({**unmet_view(self.standings, job, display_id), "elements": 1}, sight)
        return veiled_views.vjob(one_vjob_view(self._ledger, self._clock, found, self.standings.of), sight)

    # -- the wrapper ---------------------------------------------------------------------------------------------

    def access(self, uid: int, display_id: str, *, wrapper: bool, run: int = 0) -> dict[str, Any]:
        """The way to the VMs of the caller's own vjob, once they are up; else the vjob's state.

        Args:
            uid: of the caller.
            display_id: of the vjob.
            wrapper: whether the wrapper asks.
            run: the number of requeues of its job before its run.
        """
        vjob = self._wrapped(uid, display_id) if wrapper else self._one(uid, display_id)
        if wrapper:
            self._signs.heard(vjob.job_id, self._clock.now())
        if wrapper and (other := self._cycle.identity.others.get(vjob.job_id)):
            return {"state": str(VJobState.WAITING), "reason": why_other(vjob, other)}
        if self._settings.native:
            raise RefusedError(f"vjob {vjob.display_id} is a plain job of Slurm, and has no VM; use `srun --overlap`")
        if vjob.state is not VJobState.RUNNING:
            return {"state": str(vjob.state), "reason": vjob.reason}
        if wrapper and (why := why_not_attached(vjob, run)):
            return {"state": str(VJobState.WAITING), "reason": why}
        return {
            "state": str(vjob.state),
            "job_id": vjob.job_id,
            "user": vjob.user,
            "vms": [
                {"name": vm.name, "address": vm.address, "host_key": vm.host_key_public}
                for vm in self._ledger.vms(vjob.job_id)
            ],
            "private_key": vjob.private_key,
            "start": vjob.losses + 1,
            "returns": vjob.returns,
            "returned": vjob.returned,
        }

    def started(self, uid: int, display_id: str) -> dict[str, Any]:
        """Record that the script is about to start (I5: before it does)."""
        vjob = self._wrapped(uid, display_id)
        if vjob.state is not VJobState.RUNNING:
            raise RefusedError(f"vjob {display_id} is {vjob.state}, not running")
        if not vjob.script_started:
            with self._ledger.transaction():
                self._ledger.update_vjob(vjob.job_id, script_started=True)
                self._ledger.event("script-started", "its script starts", vjob=vjob.display_id)
        return {"ok": True}

    def attached(self, uid: int, entry: Entry) -> dict[str, Any]:
        """Take the wrapper's sign of life, for a vjob of the cache. Reads nothing, and waits for nothing."""
        if uid != entry.uid and not self.rights.is_engine(uid):
            raise ForbiddenError(f"vjob {entry.job_id} belongs to {entry.user}")
        self._signs.heard(entry.job_id, self._clock.now())
        return {"state": str(entry.state), "returns": entry.returns}

    def finished(self, uid: int, display_id: str, exit_code: int, signal: int) -> dict[str, Any]:
        """Record that the script has ended and its output is delivered."""
        vjob = self._wrapped(uid, display_id)
        known = vjob.finished and (vjob.exit_code, vjob.exit_signal) == (exit_code, signal)
        if known or vjob.state is VJobState.TERMINATED:
            return {"ok": True}
        if vjob.finished:
            self._bound_changes(vjob.job_id)
        ended = f"by signal {signal}" if signal else f"with exit code {exit_code}"
        # A wrapper that repeats this must not prolong the time in which its job is expected to end.
        since = vjob.finished_at if vjob.finished else self._clock.now()
        with self._ledger.transaction():
            self._ledger.update_vjob(
                vjob.job_id, finished=True, finished_at=since, exit_code=exit_code, exit_signal=signal
            )
            self._ledger.event("script-ended", f"its script ended {ended}", vjob=vjob.display_id)
        if any(each.state is VJobState.PAUSED for each in self._ledger.vjobs()):
            self._wake()  # a paused vjob may be waiting for these CPUs: it goes on at once
        return {"ok": True}

    def requeued(self, uid: int, display_id: str, told: Requeue) -> dict[str, Any]:
        """Take the wrapper's report of a requeue on purpose. Returns whether the script itself has asked for it."""
        own = record_requeue(self._ledger, self._wrapped(uid, display_id).job_id, told)
        if own:
            self._wake()  # Slurm could start the job until it is behind the gate
        return {"own": own}

    def _bound_changes(self, job_id: int) -> None:
        """Raise RefusedError if the report of a script's end has changed too often."""
        with self._lock:
            changes = self._changes.pop(job_id, 0) + 1
            self._changes[job_id] = changes
            if len(self._changes) > _CHANGES_OF:
                del self._changes[next(iter(self._changes))]
        if changes > _CHANGES_MAX:
            raise RefusedError(f"how the script of this vjob ended was reported {changes} times, each time differently")

    def usage(self, uid: int, display_id: str) -> list[dict[str, Any]]:
        """The usage up to now of the processes of the caller's own vjob, or of elements of his job array.

        Raises:
            NotFoundError: there is no vjob with this name.
            ForbiddenError: the vjob is another user's.
        """
        ledger = self._ledger
        vjobs = self._named(uid, display_id).rows
        for vjob in vjobs:
            self._owned(uid, vjob.display_id, operators=True)
        running = [vjob for vjob in vjobs if vjob.state is VJobState.RUNNING]
        usage.ask_all(
            self._ledger, self._guests, self._hypervisor, [(vjob, ledger.vms(vjob.job_id)) for vjob in running]
        )
        return [usage.view(self._ledger, self._clock, vjob) for vjob in vjobs]

    # -- operations ----------------------------------------------------------------------------------------------

    def suspend(self, uid: int, name: str) -> Operation | Several:
        """Save a running or paused vjob, if the admin switched context switches on."""
        vjob = self._meant(uid, name)
        if isinstance(vjob, Several):
            return vjob
        seen = self._seen()
        if not site.may_suspend(seen.rms, vjob.partition):
            raise RefusedError(
                f"partition {vjob.partition} has PreemptMode=OFF: its vjobs are never suspended; "
                "an administrator switches this on with PreemptMode=SUSPEND in slurm.conf"
            )
        if vjob.state not in (VJobState.RUNNING, VJobState.PAUSED):
            raise RefusedError(f"vjob {vjob.display_id} is {vjob.state}, not running")
        self._executor.held_back.require_settled(vjob)
        user = user_name(uid)
        self._executor.make_way(vjob.job_id, "a suspend", wait_s=_YIELD_S)
        return self._placing.suspend(vjob, f"suspended by {user}", user, resumes=False)

    def resume(self, uid: int, name: str, to: str) -> Operation | Several:
        """Resume a sleeping vjob, or let a paused one go on where it is."""
        vjob = self._meant(uid, name, [to])
        if isinstance(vjob, Several):
            return vjob
        self._executor.held_back.require_settled(vjob)
        require_answers(self._settings, self._ledger, self._ledger.vms(vjob.job_id))
        user = user_name(uid)
        if vjob.state is VJobState.PAUSED:
            nodes = sorted({vm.host for vm in self._ledger.vms(vjob.job_id)})
            if to and nodes != [to]:
                where = f"vjob {vjob.display_id} is in the memory of {', '.join(nodes)}, and goes on there"
                raise RefusedError(f"{where}; `rmsplugin suspend` saves it first")
            return self._placing.unpause(self._seen(), vjob, f"resumed by {user}", user)
        return self._placing.resume(self._seen(), vjob, to, f"resumed by {user}", user)

    def migrate(self, uid: int, name: str, vm: str, to: str) -> Operation | Several:
        """Migrate one VM, or all VMs, of a running vjob."""
        if not self.rights.is_operator(uid):
            raise ForbiddenError("only operators may migrate; see engine.operators in the settings")
        vjob = self._meant(uid, name, [vm, to])
        if isinstance(vjob, Several):
            return vjob
        if vm and vm not in {row.name for row in self._ledger.vms(vjob.job_id)}:
            raise NotFoundError(f"vjob {vjob.display_id} has no VM {vm}")
        self._executor.held_back.require_settled(vjob)
        user = user_name(uid)
        self._executor.make_way(vjob.job_id, "a migration", wait_s=_YIELD_S)
        return self._placing.migrate(self._seen(), vjob, vm, to, f"migrated by {user}", user)

    def prefer(self, uid: int, name: str, state: str) -> dict[str, Any]:
        """Prefer that vjobs run, or that they do not, or take that back."""
        self.rights.require_operator(uid, "prefer what vjobs do")
        self.require(uid, name)
        done = prefer(self._settings, self._ledger, self._seen(), user_name(uid), name, state)
        self._wake()
        return done

    def resize(self, uid: int, name: str, size: Size) -> dict[str, Any]:
        """Have the VMs of running vjobs do with less than is booked for them, or take that back."""
        found = self._named(uid, name).alive
        for row in found.rows:
            self._owned(uid, row.display_id, operators=True)
        if found.waiting and not found.rows:
            raise RefusedError(f"vjob {found.waiting[0]} is waiting, and has no VMs yet")
        done = self._resizing.resize(user_name(uid), found, size)
        self._wake()
        return done

    def report_owner(self, uid: int, users: Sequence[str]) -> int | None:
        """The user whose jobs a report for this caller, on these users, may tell of: a uid, or None for all users."""
        if self.rights.is_operator(uid):
            return None
        if any(user != user_name(uid) for user in users):
            raise ForbiddenError(
                "you are told of your own jobs only; reports on other users' jobs are for operators (engine.operators)"
            )
        return uid

    # -- progress ------------------------------------------------------------------------------------------------

    def operation(self, uid: int, operation_id: int) -> dict[str, Any]:
        """The progress of an operation."""
        operation = self._ledger.operation(operation_id)
        self._owned(uid, str(operation.job_id), operators=True)
        return operation_view(self._ledger, operation)

    def _seen(self) -> Observation:
        return seen_by(self._cycle)
