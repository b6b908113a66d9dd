"""Cycle: observe once, reconcile every vjob, decide which waiting ones start, begin what follows, record."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.assess.first_sight import FirstSight
from rmsplugin.engine.assess.held_back import StateFinder
from rmsplugin.engine.assess.job_identity import JobIdentity
from rmsplugin.engine.assess.queue import Waiting, queue_order
from rmsplugin.engine.assess.rooms_wanted import rooms_wanted
from rmsplugin.engine.capacity.demands import Demands
from rmsplugin.engine.capacity.memory_care import MemoryCare
from rmsplugin.engine.capacity.priorities import Priorities, priority_of
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.decide.deciding import Deciding, Found, Proposes
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.operations.allocation import suspend_job
from rmsplugin.engine.execute.operations.go_on import last_heard, stands_still
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.execute.single import ENGINE
from rmsplugin.engine.execute.switch import Switch
from rmsplugin.engine.ledger.failures import LOSS
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.absence import DOUBTFUL_ENDS, Jobs, MissingVMs, find_jobs, has_ended
from rmsplugin.engine.observe.ending import tell_of_end_that_does_not_come
from rmsplugin.engine.observe.gone import clear_left_behind, require_answers
from rmsplugin.engine.observe.observation import Observation, observe
from rmsplugin.engine.observe.strays import stop_strays, strays
from rmsplugin.engine.observe.unentered import Unentered
from rmsplugin.engine.reconcile import brake
from rmsplugin.engine.reconcile.brake import Held
from rmsplugin.engine.reconcile.fencing import Fencing
from rmsplugin.engine.reconcile.limits import Limits
from rmsplugin.engine.reconcile.reconcile import Directive, RmsAct, reconcile
from rmsplugin.engine.reconcile.requeues import record_requeue_exits
from rmsplugin.engine.upkeep.borrowing import Borrowing
from rmsplugin.engine.upkeep.checkpointing import Checkpointing
from rmsplugin.engine.upkeep.evacuation import Evacuation
from rmsplugin.engine.upkeep.gate import Gate
from rmsplugin.errors import OperationFailedError, RefusedError, RmspluginError
from rmsplugin.latency import uncollected
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState

log = logging.getLogger(__name__)

#: States of a vjob in which its VMs are on their nodes, and nothing is under way on them.
_HAVE_VMS = (VJobState.RUNNING, VJobState.PAUSED)
#: What lets a vjob go on that has begun.
_WAKES = {VJobState.SLEEPING: OperationKind.RESUME, VJobState.PAUSED: OperationKind.UNPAUSE}


class Cycle:
    """Runs cycles and previews, one at a time; whoever holds ``lock`` is sure that none of them runs."""

    def __init__(
        self,
        context: Context,
        memory_care: MemoryCare,
        executor: Executor,
        placing: Placing,
        switch: Switch,
        proposes: Proposes,
    ) -> None:
        self.lock = threading.RLock()
        self._context = context
        self.memory_care = memory_care
        self._demands = Demands(context)
        self._deciding = Deciding(context, memory_care, switch, proposes)
        self._executor = executor
        self._placing = placing
        self._first_sight = FirstSight(context)
        self.identity = JobIdentity(context)
        self._gate = Gate(context)
        self._limits = Limits()
        self._unentered = Unentered(context)
        self._priorities = Priorities(context)
        self._evacuation = Evacuation(context, executor, placing)
        self._borrowing = Borrowing(context, placing)
        self._checkpointing = Checkpointing(context, executor)
        self._missing = MissingVMs(context)
        self.fencing = Fencing(context)
        self.brake = brake.Brake()
        self._started = context.clock.now()
        self._states: StateFinder
        self._unclear: dict[int, str] = {}  # vjobs of which a VM was not seen, before that proves anything
        self.report = CycleReport()
        self.number, self.seconds = 0, 0.0  # of all cycles of this engine
        self.seen: Observation | None = None

    def run(self) -> CycleReport:
        """One cycle. What goes wrong is in the report; the next cycle tries again."""
        with self.lock, uncollected():
            return self._run_reported()

    def _run_reported(self) -> CycleReport:
        clock = self._context.clock
        report = CycleReport(time=clock.now())
        try:
            self._run(report)
        except RmspluginError as error:
            report.problems.append(str(error))
        report.seconds = clock.now() - report.time
        self.number, self.seconds = self.number + 1, self.seconds + report.seconds
        for problem in report.problems:
            if problem not in self.report.problems:
                log.warning("%s", problem)
        if report.begun:
            log.info("%s", report.sentence)
        self.report = report
        return report

    def _run(self, report: CycleReport) -> None:
        self._executor.record_ends()
        # Asked before looking: an operation that ends meanwhile has changed what is being looked at.
        busy = self._executor.busy()
        with report.alone("the memory of VMs"):
            self.memory_care.watch()
        seen = self.seen = observe(self._context)
        self._demands.look(seen)
        with report.alone("the memory of VMs"):
            self.memory_care.look(seen)
        report.problems += [f"{node} is unreachable: {why}" for node, why in seen.unreachable.items()]
        report.problems += site.problems(self._context.settings, seen.rms)
        report.problems += filter(None, [self._context.clock.problem()])
        report.problems += self._not_ours_any_more() + self._unentered.problems()
        if gate := self._gate.keep(seen.rms):
            report.problems.append(gate)
        ours = [job for job in seen.rms.jobs if job.partition in self._context.settings.slurm.partitions]
        self._limits.look(seen)
        self._priorities.look(seen)
        with report.alone("the identity of jobs"):
            self.identity.look(seen.rms.jobs)
        self._first_sight.meet(ours, self.identity.others, report)
        with report.alone("interrupted checkpoints"):
            report.begun += self._checkpointing.recover(seen, busy | self._executor.held_back.now())
        observes_only = bool(site.time_slices(seen.rms))
        if not observes_only and self._executor.held_back.compared:
            with report.alone("evacuation"):
                report.begun += self._evacuation.run(seen, busy | self._executor.held_back.now())
        jobs = self._reconcile(seen, ours, busy, report)
        stop_strays(self._context, seen, jobs, report)
        with report.alone("dead nodes"):
            report.problems += clear_left_behind(self._context, seen) + self.fencing.look(seen)
        if not observes_only:
            wanted: frozenset[str] = frozenset()
            with report.alone("the decision"):
                wanted = self._decide(seen, ours, report)
            with report.alone("rooms"):
                report.begun += self._borrowing.run(seen, wanted)
            with report.alone("checkpoints"):
                busy = self._executor.busy() | self._executor.held_back.now()
                report.begun += self._checkpointing.run(seen, busy)

    def _not_ours_any_more(self) -> list[str]:
        """Partitions of vjobs that the settings do not have: a typo, or one that was taken away."""
        found = {vjob.partition for vjob in self._context.ledger.vjobs()} - set(self._context.settings.slurm.partitions)
        what = "which slurm.partitions does not have: they are kept as they are, and none is started or resumed there"
        return [f"there are vjobs in partition {name}, {what}" for name in sorted(found)]

    # -- reconciliation ------------------------------------------------------------------------------------------

    def _reconcile(self, seen: Observation, ours: list[RmsJob], busy: set[int], report: CycleReport) -> Jobs:
        """Follow what disagrees. Returns the jobs of the vjobs."""
        context = self._context
        # All that have not ended, and those that have but whose jobs have come back.
        alive = [job.job_id for job in ours if job.split and job.state is not JobState.ENDED]
        vjobs = {vjob.job_id: vjob for vjob in context.ledger.vjobs()} | context.ledger.vjobs_among(alive)
        context.signs.retain(vjobs)
        context.suspensions.retain(vjobs)
        record_requeue_exits(context, seen.rms.requeue_exits, vjobs.values())
        jobs = find_jobs(context, seen, vjobs.values(), self.identity.others)
        self._missing.begin()
        self._states = StateFinder(context, seen)
        self._unclear = {}
        vms: dict[int, list[VMRow]] = defaultdict(list)
        for vm in context.ledger.vms():
            vms[vm.job_id].append(vm)
        gone = context.ledger.nodes.gone()
        doubtful = []
        for vjob in vjobs.values():
            with report.alone(f"vjob {vjob.display_id}"):
                held = self._reconcile_one(seen, vjob, vms[vjob.job_id], gone, jobs, busy, report)
                if held is not None:
                    doubtful.append(held)
        with report.alone("what is held back"):
            through = self._let_through(doubtful, vjobs, report)
            held_back = {held.job_id: held.directive.reason for held in self.brake.held}
            self._executor.held_back.set(self._unclear | held_back)
            for held in through:
                with report.alone(f"vjob {held.vjob}"):
                    self._follow(seen, vjobs[held.job_id], jobs.found.get(held.job_id), held.directive, report)
        return jobs

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
        """Do what has to be done to the vjob, or return it, when it follows from something that is not seen."""
        job, proved = jobs.found.get(vjob.job_id), vjob.job_id not in jobs.unknown
        if has_ended(job) and proved:
            self._executor.cancel(vjob.job_id, "its job has ended")
        if vjob.state_since >= seen.taken:
            return None  # it moved after the first look
        if vjob.job_id in busy | self._executor.busy():
            self._look_behind_checkpoint(seen, vjob, vms)
            return None  # it moves
        directive = self._directive(seen, vjob, vms, gone, jobs)
        if directive is None and vjob.state in _HAVE_VMS and _unseen(seen, vms):
            names = ", ".join(vm.name for vm in vms if not seen.where(vm.name))
            self._unclear[vjob.job_id] = f"{names} was not seen at the last look"
        if directive is not None and (directive.absence or directive.disputed or not proved):
            return Held(vjob.job_id, vjob.display_id, vjob.user, directive, proved and not directive.disputed)
        if directive is not None:
            self._executor.held_back.release(vjob.job_id)
            self._follow(seen, vjob, job, directive, report)
        else:
            tell_of_end_that_does_not_come(self._context, vjob, job, seen.taken)
        return None

    def _look_behind_checkpoint(self, seen: Observation, vjob: VJobRow, vms: list[VMRow]) -> None:
        """A checkpoint of VMs that are gone may go on for an hour: it makes way. The next cycle sees to the loss."""
        if vjob.job_id in self._executor.yielding() and not vjob.finished and self._missing.gone(vjob, vms, seen):
            self._executor.make_way(vjob.job_id, "the loss of its VMs")

    def _directive(
        self, seen: Observation, vjob: VJobRow, vms: list[VMRow], gone: Collection[str], jobs: Jobs
    ) -> Directive | None:
        context = self._context
        # While the engine was down no wrapper could give a sign of life.
        heard = max(vjob.wrapper_seen, last_heard(context, vjob.job_id), self._started)
        job, missing = jobs.found.get(vjob.job_id), self._missing.gone(vjob, vms, seen)
        lost = self._executor.lost(vjob.job_id)
        directive = reconcile(
            vjob,
            vms,
            job,
            missing,
            seen.taken - heard,
            context.settings.engine.orphan_s,
            gone,
            self._copies(vms, seen) or strays(context, seen, vjob),
            lost,
            self._states.unknown(vms, bool(missing), job, lost),
            seen.running(vms) if vjob.state is VJobState.PAUSED else (),
            stands_still(context, seen, vjob, job),
        )
        if directive is None:
            return None
        suspends = directive.what is OperationKind.SUSPEND and not directive.takes_over
        if vjob.state in _HAVE_VMS and suspends and _unseen(seen, vms):
            return None  # there is nothing to be saved; whether they are gone shows in another look
        if vjob.job_id in jobs.found:
            return directive
        if why := jobs.unknown.get(vjob.job_id):
            return replace(directive, reason=why)
        how = jobs.ended[vjob.job_id]
        absence = how in DOUBTFUL_ENDS and vjob.state is not VJobState.WAITING
        return replace(directive, reason=f"its job has ended: {how}, as accounting says", absence=absence)

    def _copies(self, vms: list[VMRow], seen: Observation) -> dict[str, str]:
        """Nodes on which VMs are seen, by VM name, that are not where they run and where no migration takes them."""
        found = {
            vm: node for vm in vms if vm.host and not vm.destination for node in seen.where(vm.name) if node != vm.host
        }
        # One that has just been moved may have been seen where it was before.
        arrival = self._context.ledger.last_arrival
        return {vm.name: node for vm, node in found.items() if arrival(vm.name, vm.host) < seen.taken}

    def _let_through(self, doubtful: list[Held], vjobs: Mapping[int, VJobRow], report: CycleReport) -> list[Held]:
        before = {held.key for held in self.brake.held}
        through = self.brake.let_through(doubtful, sum(vjob.state.is_live for vjob in vjobs.values()))
        held = self.brake.held
        if held:
            report.problems.append(brake.sentence(held))
        if not {each.key for each in held} <= before:
            self._context.ledger.event("held-back", brake.sentence(held))
        if before and not held:
            self._context.ledger.event("held-back-no-more", "what was held back is done, or need not be any more")
        return through

    def _follow(
        self, seen: Observation, vjob: VJobRow, job: RmsJob | None, directive: Directive, report: CycleReport
    ) -> None:
        failures, kind = self._context.ledger.failures, directive.what
        failed = failures.of_vjob(vjob.job_id, kind)
        if failed is not None and failed.rests(seen.taken):
            report.problems.append(f"vjob {vjob.display_id}: {kind}: {failed.error}; it is tried again soon")
            return
        try:
            for name, node in directive.hosts.items():
                self._context.ledger.touch(name, node)
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
            if not self._context.hypervisor.has_vm(node, name):
                raise OperationFailedError(f"{name} is not on {node}, which listed it")
        self._executor.begin(vjob.job_id, OperationKind.RESUME, directive.reason, hosts=directive.hosts)

    def _resume(self, seen: Observation, vjob: VJobRow, reason: str) -> None:
        try:
            require_answers(self._context, self._context.ledger.vms(vjob.job_id))
            self._placing.resume(seen, vjob, "", reason, ENGINE)
        except RefusedError:
            # Its wrapper must not run while its VMs sleep.
            suspend_job(self._context, vjob.job_id)
            raise

    def _unpause(self, seen: Observation, vjob: VJobRow, reason: str) -> None:
        try:
            self._placing.unpause(seen, vjob, reason, ENGINE)
        except RefusedError:
            suspend_job(self._context, vjob.job_id)  # as above
            raise

    def _follow_rms(self, seen: Observation, vjob: VJobRow, job: RmsJob | None, directive: Directive) -> None:
        context, job_id = self._context, vjob.job_id
        if directive.what in (RmsAct.GATE, RmsAct.REQUEUE):
            seen.changed.add(job_id)
        if directive.what is RmsAct.GATE:
            context.rms.close_gate(job_id)
        elif directive.what is RmsAct.REQUEUE:
            context.rms.requeue(job_id)
            context.ledger.event("requeue", directive.reason, vjob=vjob.display_id)
        elif directive.what is RmsAct.FORGET and context.ledger.asides.of_vjob(job_id):
            self._executor.begin(job_id, OperationKind.STOP, directive.reason)  # they are removed, too
        elif directive.what is RmsAct.FORGET:
            context.ledger.transition(job_id, VJobState.TERMINATED, directive.reason)
        elif job is not None:
            self._first_sight.renew(job)

    # -- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, seen: Observation, ours: list[RmsJob], report: CycleReport) -> frozenset[str]:
        """Decide, and begin what was decided. Returns the nodes without a room on which others would start."""
        queue = self._queue(seen, ours, report)
        after = self._deciding.run(seen, queue, self._borrowing.lendable(seen), report)
        running = _running(after)
        left = [waiting for waiting in queue if waiting.job.display_id not in running]
        return rooms_wanted(self._context, seen, left, after)

    def preview(self) -> Found:
        """What the next cycle would decide, if it began now. Changes nothing. Waits for a cycle that runs.

        Raises:
            RefusedError: the next cycle would decide nothing.
            UnavailableError: the RMS does not answer, or the engine ends.
        """
        with self.lock, uncollected():
            seen = observe(self._context)
            if slices := site.time_slices(seen.rms):
                raise RefusedError(f"{slices}; the engine only observes, and decides nothing")
            partitions = self._context.settings.slurm.partitions
            ours = self._first_sight.met(job for job in seen.rms.jobs if job.partition in partitions)
            queue = self._queue(seen, ours, CycleReport())
            return self._deciding.find(seen, queue, self._borrowing.lendable(seen))

    def _queue(self, seen: Observation, ours: list[RmsJob], report: CycleReport) -> list[Waiting]:
        """Who may start or be resumed, head first."""
        rows = {vjob.display_id: vjob for vjob in self._context.ledger.vjobs()}
        return queue_order(seen, self._waiting(seen, ours, rows, report))

    def _waiting(
        self, seen: Observation, ours: list[RmsJob], rows: Mapping[str, VJobRow], report: CycleReport
    ) -> list[Waiting]:
        waiting = []
        failures = self._context.ledger.failures.of_vjobs()
        for job in ours:
            with report.alone(f"job {job.display_id}"):
                row = rows.get(job.display_id) if job.split else None
                if row is not None and row.job_id in self.identity.others:
                    continue
                if row is not None:
                    kind = _WAKES.get(row.state, OperationKind.START)
                    failed = [failures.get((row.job_id, each)) for each in (kind, LOSS)]
                    if self._moved(seen, row) or any(self._limits.rests(row, each, seen.taken) for each in failed):
                        continue
                    if row.state is VJobState.SLEEPING and strays(self._context, seen, row):
                        continue  # it would run twice
                if each := self._waits(seen, job, row):
                    waiting.append(each)
        return waiting

    def _moved(self, seen: Observation, row: VJobRow) -> bool:
        """Whether it may be other than it was seen; a job that became a vjob by this look is as it was seen."""
        if row.job_id in self._first_sight.newcomers:
            return row.job_id in seen.changed
        return row.state_since >= seen.taken

    def _waits(self, seen: Observation, job: RmsJob, row: VJobRow | None) -> Waiting | None:
        """What may start, be resumed or go on now, as far as Slurm and the vjob itself are concerned."""
        if row is not None and row.state in _WAKES and row.resumes:
            if not self._states_answer(row):
                return None
            if job.state in (JobState.SUSPENDED, JobState.PENDING) and not job.completing and not job.held:
                priority = priority_of(seen, row, job)
                return Waiting(job, row.geometry, row.submitted, priority, row, row.state_since)
            return None
        if not job.eligible or job.completing or not (row is None or row.state is VJobState.WAITING):
            return None
        if row is not None:
            # Not read from Slurm again: an engine that was restarted would ask for the script of each job.
            return Waiting(job, row.geometry, row.submitted, job.priority, since=row.state_since)
        found = self._first_sight.look_into(job)
        if found is None or job.split:
            return None
        geometry, script = found
        return Waiting(job, geometry, job.submit_time, job.priority, since=job.submit_time, script=script)

    def _states_answer(self, row: VJobRow) -> bool:
        try:
            require_answers(self._context, self._context.ledger.vms(row.job_id))
        except RefusedError as error:
            if row.reason != str(error):
                self._context.ledger.update_vjob(row.job_id, reason=str(error))
            return False
        return True


def _unseen(seen: Observation, vms: Collection[VMRow]) -> bool:
    """Whether one of the VMs was not seen, although its host was."""
    return any(vm.host in seen.vms and not seen.where(vm.name) for vm in vms)


def _running(configuration: Configuration) -> set[str]:
    """The names of the vjobs that run."""
    return {vjob.name for vjob in configuration.vjobs if configuration.state(vjob) is VJobState.RUNNING}
