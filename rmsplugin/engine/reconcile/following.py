"""Following: compares each vjob with its job and its VMs; if they disagree, the vjob is adapted, or held back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.assess.first_sight import FirstSight
from rmsplugin.engine.assess.held_back import StateFinder
from rmsplugin.engine.assess.job_identity import JobIdentity
from rmsplugin.engine.context.accounting import Accounting
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.context.fronts import OVERDUE_S
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.one_step_plan import ENGINE
from rmsplugin.engine.execute.operations.allocation import suspend_job
from rmsplugin.engine.execute.operations.go_on import last_heard, stands_still
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.observe.absence import DOUBTFUL_ENDS, Jobs, MissingVMs, find_jobs, has_ended
from rmsplugin.engine.observe.dead_nodes import require_answers
from rmsplugin.engine.observe.ending import is_ending, tell_of_end_that_does_not_come
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.strays import strays
from rmsplugin.engine.reconcile import brake
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.engine.reconcile.native import reconcile_native
from rmsplugin.engine.reconcile.reconcile import Directive, RmsAct, reconcile
from rmsplugin.engine.reconcile.requeues import record_requeue_exits
from rmsplugin.errors import OperationFailedError, RefusedError
from rmsplugin.model.vjob import VJobState

#: States of a vjob in which its VMs are on their nodes, and nothing is under way on them.
_HAVE_VMS = (VJobState.RUNNING, VJobState.PAUSED)
#: Slurm's own default of the port of slurmd.
_PORT = 6818


class Followed(NamedTuple):
    """What one round of reconciliation found.

    Attributes:
        jobs: the jobs of the vjobs.
        changed: ids of jobs that were requeued or gated in it.
    """

    jobs: Jobs
    changed: frozenset[int]


class Following:
    """Compares and follows, once a cycle."""

    def __init__(
        self, context: Context, executor: Executor, placing: Placing, first_sight: FirstSight, identity: JobIdentity
    ) -> None:
        self._settings = context.settings
        self._native = context.settings.native
        self._ledger = context.ledger
        self._clock = context.clock
        self._rms = context.rms
        self._hypervisor = context.hypervisor
        self._nodes = context.nodes
        self._signs = context.signs
        self._hearing = context.hearing
        self._fronts = context.fronts
        self._suspensions = context.suspensions
        self._executor = executor
        self._placing = placing
        self._first_sight = first_sight
        self._identity = identity
        self.accounting = Accounting(context.rms, context.clock.now)
        self._missing = MissingVMs(context.ledger, context.hypervisor, context.sightings)
        self.brake = brake.Brake()
        self._started = context.clock.now()
        self._states: StateFinder
        self._changed: set[int] = set()
        self._overdue: dict[str, tuple[str, int]] = {}  # fronts of wrappers that are overdue
        self._unclear: dict[int, str] = {}  # by job id: a VM was not seen, which proves nothing yet

    def follow_jobs(self, seen: Observation, ours: list[RmsJob], busy: set[int], report: CycleReport) -> Followed:
        """Adapt the vjobs that disagree with their jobs or VMs."""
        self._changed = set()
        # All vjobs that have not ended, and ended ones whose jobs have come back.
        alive = [job.job_id for job in ours if job.split and job.state is not JobState.ENDED]
        vjobs = {**self._ledger.living(), **self._ledger.vjobs_among(alive)}
        self._signs.retain(vjobs)
        self._suspensions.retain(vjobs)
        record_requeue_exits(self._ledger, seen.rms.requeue_exits, vjobs.values())
        jobs = find_jobs(self._rms, self.accounting, seen, vjobs.values(), self._identity.others)
        self._missing.begin()
        self._states = StateFinder(self._settings, self._ledger, self._nodes, seen)
        self._unclear = {}
        vms = self._ledger.vms_by_job()
        gone = self._ledger.nodes.gone()
        doubtful: list[Held] = []
        self._overdue = {}

        def compare(vjob: VJobRow) -> None:
            held = self._reconcile_one(seen, vjob, vms.get(vjob.job_id, []), gone, jobs, busy, report)
            if held is not None:
                doubtful.append(held)

        report.each_alone(vjobs.values(), compare, lambda vjob: f"vjob {vjob.display_id}")
        self._fronts.watch(self._overdue)
        with report.alone("what is held back"):
            through = self._let_through(doubtful, vjobs, report)
            held_back = {held.job_id: held.directive.reason for held in self.brake.held}
            self._executor.held_back.set(self._unclear | held_back)
            for held in through:
                with report.alone(f"vjob {held.vjob}"):
                    self._follow(seen, vjobs[held.job_id], jobs.found.get(held.job_id), held.directive, report)
        return Followed(jobs, frozenset(self._changed))

    def _reconcile_one(
        self,
        seen: Observation,
        vjob: VJobRow,
        vms: list[VMRow],
        gone: Collection[str],
        jobs: Jobs,
        busy: set[int],
        report: CycleReport,
    ) -> Held | None:
        """Do the act that the vjob needs; or return it, if it follows from something that is not seen."""
        job, proved = jobs.found.get(vjob.job_id), vjob.job_id not in jobs.unknown
        if has_ended(job) and proved:
            self._executor.cancel(vjob.job_id, "its job has ended")
        if vjob.state_since >= seen.taken:
            return None  # the vjob changed after the first look
        if vjob.job_id in busy or self._executor.is_busy(vjob.job_id):
            self._look_behind_checkpoint(seen, vjob, vms)
            return None  # the vjob is changing
        directive = self._directive(seen, vjob, vms, gone, jobs)
        if directive is None and not self._native and vjob.state in _HAVE_VMS and _unseen(seen, vms):
            names = ", ".join(vm.name for vm in vms if not seen.where(vm.name))
            self._unclear[vjob.job_id] = f"{names} was not seen at the last look"
        if directive is not None and (directive.absence or directive.disputed or not proved):
            return Held(vjob.job_id, vjob.display_id, vjob.user, directive, proved and not directive.disputed)
        if directive is not None:
            self._executor.held_back.release(vjob.job_id)
            self._follow(seen, vjob, job, directive, report)
        else:
            tell_of_end_that_does_not_come(self._ledger, vjob, job, seen.taken)
        return None

    def _look_behind_checkpoint(self, seen: Observation, vjob: VJobRow, vms: list[VMRow]) -> None:
        """Make a checkpoint of lost VMs, which may go on for an hour, make way; the next cycle handles the loss."""
        if vjob.job_id in self._executor.yielding() and not vjob.finished and self._missing.gone(vjob, vms, seen):
            self._executor.make_way(vjob.job_id, "the loss of its VMs")

    def _directive(
        self, seen: Observation, vjob: VJobRow, vms: list[VMRow], gone: Collection[str], jobs: Jobs
    ) -> Directive | None:
        job = jobs.found.get(vjob.job_id)
        if self._native:
            return self._proved(vjob, reconcile_native(vjob, job), jobs)
        missing = self._missing.gone(vjob, vms, seen)
        lost = self._executor.lost(vjob.job_id)
        directive = reconcile(
            vjob,
            vms,
            job,
            missing,
            self._silent_s(seen, vjob, job),
            self._settings.engine.orphan_s,
            gone,
            self._copies(vms, seen) or strays(self._ledger, seen, vjob),
            lost,
            self._states.unknown(vms, bool(missing), job, lost),
            seen.running(vms) if vjob.state is VJobState.PAUSED else (),
            vjob.state is VJobState.RUNNING
            and stands_still(self._clock, self._signs, self._suspensions, seen, vjob, job),
        )
        if directive is None:
            return None
        suspends = directive.what is OperationKind.SUSPEND and not directive.takes_over
        if vjob.state in _HAVE_VMS and suspends and _unseen(seen, vms):
            return None  # a VM is not there to be saved; another look shows whether it is gone
        return self._proved(vjob, directive, jobs)

    def _proved(self, vjob: VJobRow, directive: Directive | None, jobs: Jobs) -> Directive | None:
        """The directive, with what is known of the job in its reason."""
        if directive is None or vjob.job_id in jobs.found:
            return directive
        if why := jobs.unknown.get(vjob.job_id):
            return replace(directive, reason=why)
        how = jobs.ended[vjob.job_id]
        absence = how in DOUBTFUL_ENDS and vjob.state is not VJobState.WAITING
        return replace(directive, reason=f"its job has ended: {how}, as accounting says", absence=absence)

    def _silent_s(self, seen: Observation, vjob: VJobRow, job: RmsJob | None) -> float:
        """For how long a job's wrapper counts as silent; there is one only where a job or its vjob runs."""
        if vjob.state is not VJobState.RUNNING and (job is None or job.state is not JobState.RUNNING):
            return 0.0
        if vjob.finished and is_ending(vjob, seen.taken, self._hearing.deaf_until(self._clock.now())):
            return 0.0  # it has told of the script's end and has gone; slurmctld hears of that later
        # While the engine was down, no wrapper could give a sign of life.
        silent_s = seen.taken - max(vjob.wrapper_seen, self._signs.last(vjob.job_id), self._started)
        if silent_s <= min(OVERDUE_S, self._settings.engine.orphan_s):
            return silent_s  # nobody asks whether it is less
        since = last_heard(self._signs, self._suspensions, self._hearing, vjob.job_id, self._clock.now())
        silent_s = min(silent_s, seen.taken - since)
        front = seen.rms.nodes.get(job.batch_host) if job is not None and job.state is JobState.RUNNING else None
        if front is None or silent_s <= OVERDUE_S:
            return silent_s
        self._overdue[front.name] = (front.address or front.name, front.port or seen.rms.daemon_port or _PORT)
        return self._fronts.silent_s(front.name, silent_s, seen.taken)

    def _copies(self, vms: list[VMRow], seen: Observation) -> dict[str, str]:
        """By VM name, a node on which the VM is seen, although it runs elsewhere and no migration takes it there."""
        for vm in vms:
            if seen.only_node(vm.name) != vm.host:
                break
        else:
            return {}  # most are on their hosts, and nowhere else
        strange = [vm for vm in vms if seen.only_node(vm.name) != vm.host]
        found = {
            vm: node
            for vm in strange
            if vm.host and not vm.phase.moves
            for node in seen.where(vm.name)
            if node != vm.host
        }
        # A VM that has just been moved may have been seen on its old node.
        arrival = self._ledger.last_arrival
        return {vm.name: node for vm, node in found.items() if arrival(vm.name, vm.host) < seen.taken}

    def _let_through(self, doubtful: list[Held], vjobs: Mapping[int, VJobRow], report: CycleReport) -> list[Held]:
        before = {held.key for held in self.brake.held}
        through = self.brake.let_through(doubtful, sum(vjob.state.is_live for vjob in vjobs.values()))
        held = self.brake.held
        if held:
            report.problems.append(brake.sentence(held))
        if not {each.key for each in held} <= before:
            self._ledger.event("held-back", brake.sentence(held))
        if before and not held:
            self._ledger.event("held-back-no-more", "what was held back is done, or need not be any more")
        return through

    def _follow(
        self, seen: Observation, vjob: VJobRow, job: RmsJob | None, directive: Directive, report: CycleReport
    ) -> None:
        failures, kind = self._ledger.failures, directive.what
        failed = failures.of_vjob(vjob.job_id, kind)
        if failed is not None and failed.rests(seen.taken):
            report.problems.append(f"vjob {vjob.display_id}: {kind}: {failed.error}; it is tried again soon")
            return
        try:
            for name, node in directive.hosts.items():
                self._ledger.touch(name, node)
            if isinstance(kind, RmsAct):
                self._follow_rms(seen, vjob, job, directive)
                if failed is not None:
                    failures.vjob_done(vjob.job_id, kind)
            elif directive.takes_over:
                self._executor.begin(
                    vjob.job_id, kind, directive.reason, hosts=directive.hosts, takes_over=True, resumes=True
                )
            elif kind is OperationKind.RESUME and directive.hosts:
                self._go_on_with(vjob, directive)
            elif kind is OperationKind.RESUME and vjob.state is VJobState.SLEEPING:
                self._resume(seen, vjob, directive.reason)
            elif kind is OperationKind.UNPAUSE and vjob.state is VJobState.PAUSED:
                self._unpause(seen, vjob, directive.reason)
            elif kind is OperationKind.SUSPEND and vjob.state in _HAVE_VMS:
                self._placing.suspend(vjob, directive.reason, resumes=directive.resumes)
            else:
                self._executor.begin(vjob.job_id, kind, directive.reason, destinations=directive.destinations)
            report.begun.append(f"{kind} {vjob.display_id}: {directive.reason}")
        except Exception as error:
            failures.vjob_failed(vjob.job_id, kind, str(error) or repr(error))
            raise

    def _go_on_with(self, vjob: VJobRow, directive: Directive) -> None:
        """Resume a vjob whose VMs run already: nothing is restored."""
        for name, node in directive.hosts.items():
            if not self._hypervisor.has_vm(node, name):
                raise OperationFailedError(f"{name} is not on {node}, which listed it")
        self._executor.begin(vjob.job_id, OperationKind.RESUME, directive.reason, hosts=directive.hosts)

    def _resume(self, seen: Observation, vjob: VJobRow, reason: str) -> None:
        try:
            require_answers(self._settings, self._ledger, self._ledger.vms(vjob.job_id))
            self._placing.resume(seen, vjob, "", reason, ENGINE)
        except RefusedError:
            # Its wrapper must not run while its VMs sleep.
            suspend_job(self._clock, self._rms, self._suspensions, vjob.job_id)
            raise

    def _unpause(self, seen: Observation, vjob: VJobRow, reason: str) -> None:
        try:
            self._placing.unpause(seen, vjob, reason, ENGINE)
        except RefusedError:
            suspend_job(self._clock, self._rms, self._suspensions, vjob.job_id)  # as above
            raise

    def _follow_rms(self, seen: Observation, vjob: VJobRow, job: RmsJob | None, directive: Directive) -> None:
        job_id = vjob.job_id
        if directive.what in (RmsAct.GATE, RmsAct.REQUEUE, RmsAct.TELL_END):
            self._changed.add(job_id)
        if directive.what is RmsAct.GATE:
            self._rms.close_gate(job_id)
        elif directive.what is RmsAct.REQUEUE:
            self._rms.requeue(job_id)
            self._ledger.event("requeue", directive.reason, vjob=vjob.display_id)
        elif directive.what is RmsAct.TELL_END:
            self._rms.tell_end(job_id, vjob.restarts, vjob.exit_code or 0, vjob.exit_signal)
            self._ledger.event("end-told", directive.reason, vjob=vjob.display_id)
        elif directive.what is RmsAct.FORGET and self._ledger.set_aside.of_vjob(job_id):
            self._executor.begin(job_id, OperationKind.STOP, directive.reason)  # its VMs are removed, too
        elif directive.what is RmsAct.FORGET:
            self._ledger.transition(job_id, VJobState.TERMINATED, directive.reason)
        elif job is not None:
            self._first_sight.renew(job)


def _unseen(seen: Observation, vms: Collection[VMRow]) -> bool:
    """Whether one of the VMs was not seen, although its host was."""
    return bool([vm for vm in vms if not seen.where(vm.name) and vm.host in seen.vms])
