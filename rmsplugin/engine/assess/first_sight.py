"""First sight: jobs of the vjob partitions that the ledger does not know yet become vjobs, or are held as no vjobs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from rmsplugin.adapters.rms.base import JobState, Rms, RmsJob
from rmsplugin.assessment.back_off import pause_s
from rmsplugin.engine.assess.job_identity import why_other
from rmsplugin.engine.assess.newcomers import new_vjob, read_geometry
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.ledger.failures import VJobFailure
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import NotFoundError, RefusedError, RmspluginError
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)


class FirstSight:
    """Remembers the geometries and digests that it read, so that each job's script is fetched once.

    Attributes:
        newcomers: ids of the jobs that became vjobs when jobs were last met.
    """

    def __init__(self, settings: Settings, ledger: Ledger, clock: Clock, rms: Rms) -> None:
        self._settings = settings
        self._ledger = ledger
        self._clock = clock
        self._rms = rms
        self.newcomers: frozenset[int] = frozenset()
        #: By id and SubmitTime: geometry, and digest of the script; None: the job is no vjob, and was reported.
        self._read: dict[tuple[int, int], tuple[Geometry, str] | None] = {}
        self._kept_out: set[tuple[int, int]] = set()  # jobs with ids of other jobs' vjobs, already held
        self._not_held: dict[int, VJobFailure] = {}  # by job id, jobs that are no vjobs and could not be held yet

    def look_into(self, job: RmsJob) -> tuple[Geometry, str] | None:
        """The geometry kept with the job (or its array), and the digest of its script; None if it cannot be a vjob."""
        key = _key(job)
        if key not in self._read:
            try:
                self._read[key] = read_geometry(self._settings, self._rms, job)
            except NotFoundError:
                return None
            except RefusedError as error:
                self._read[key] = None
                self._keep_out(job, str(error))
        return self._read[key]

    def known(self, job: RmsJob) -> tuple[Geometry, str] | None:
        """As ``look_into``, of a job that was looked into before; None of any other. Changes nothing."""
        return self._read.get(_key(job))

    def met(self, jobs: Iterable[RmsJob]) -> list[RmsJob]:
        """The jobs that are known already; a look at an unknown one may hold it."""
        jobs = list(jobs)
        known = self._ledger.vjobs_among(job.job_id for job in jobs)
        return [job for job in jobs if _key(job) in self._read or job.job_id in known]

    def meet(self, jobs: Sequence[RmsJob], others: Mapping[int, RmsJob], report: CycleReport) -> None:
        """Enter unknown jobs that have a job id of their own into the ledger.

        Args:
            jobs: all jobs of the vjob partitions.
            others: by id, jobs that have the ids of other jobs' vjobs.
            report: receives faults.
        """
        ledger = self._ledger
        self._forget_all_but(jobs)
        self._keep_others_out(jobs, others, report)
        alive = [job for job in jobs if job.state is not JobState.ENDED and job.split]
        known = ledger.vjobs_among(job.job_id for job in alive)
        new = []
        for job in alive:
            if job.job_id in known:
                continue
            with report.alone(f"job {job.display_id}"):
                found = self.look_into(job)
                if found is not None:
                    new.append(new_vjob(self._clock, job, *found))
        if new:
            with ledger.transaction():  # one for all jobs: thousands may come at once
                for vjob in new:
                    ledger.add_vjob(vjob)
        self.newcomers = frozenset(vjob.job_id for vjob in new)
        self._gate_arrays(jobs, report)
        self._hold_again(jobs, report)

    def _gate_arrays(self, jobs: Iterable[RmsJob], report: CycleReport) -> None:
        """Put elements of arrays that have no row yet behind the gate together, by the id of their array."""
        loose = {job.job_id for job in jobs if not job.split and job.state is JobState.PENDING and not job.gated}
        for job_id in sorted(loose):
            with report.alone(f"array {job_id}"):
                self._rms.close_gate(job_id)

    def renew(self, job: RmsJob) -> None:
        """Let a vjob begin anew: its ended job is in the queue again, or its id was given to a new job."""
        self._read.pop(_key(job), None)
        self._not_held.pop(job.job_id, None)
        found = self.look_into(job)
        if found is not None:
            self._ledger.renew_vjob(new_vjob(self._clock, job, *found))

    def _forget_all_but(self, jobs: Sequence[RmsJob]) -> None:
        if not (self._read or self._kept_out or self._not_held):
            return
        keys = {_key(job) for job in jobs}
        self._read = {key: found for key, found in self._read.items() if key in keys}
        self._kept_out &= keys
        self._not_held = {number: why for number, why in self._not_held.items() if number in {key[0] for key in keys}}

    def _keep_others_out(self, jobs: Sequence[RmsJob], others: Mapping[int, RmsJob], report: CycleReport) -> None:
        """Hold jobs that have the ids of other jobs' vjobs, once each: an operator may release them."""
        if not others:
            return
        vjobs = self._ledger.vjobs_among(others)
        for job in jobs:
            if others.get(job.job_id) is job and job.state is not JobState.ENDED:
                vjob = vjobs[job.job_id]
                if vjob.state is VJobState.WAITING and not self._ledger.set_aside.of_vjob(job.job_id):
                    why = "Slurm has given the id of its job to another job; nothing of this vjob had begun"
                    self._ledger.transition(job.job_id, VJobState.TERMINATED, why)
                    continue
                why = why_other(vjob, job)
                report.problems.append(f"job {job.display_id}: {why}")
                if _key(job) not in self._kept_out:
                    self._kept_out.add(_key(job))
                    with report.alone(f"job {job.display_id}"):
                        self._keep_out(job, why)

    def _keep_out(self, job: RmsJob, reason: str) -> None:
        """Hold a job that is not wrapped: nothing in a vjob partition may start outside a VM (I6)."""
        self._ledger.event("not-a-vjob", f"held: {reason}", vjob=job.display_id)
        self._hold(job)

    def _hold(self, job: RmsJob) -> None:
        try:
            if job.state is not JobState.PENDING:
                if self._settings.native:
                    raise RefusedError("it runs, and a plain job that runs is not thrown away")
                self._rms.requeue(job.job_id)
            self._rms.hold(job.job_id)
        except RmspluginError as error:
            log.warning("job %s cannot be held: %s", job.display_id, error)
            failed = self._not_held.get(job.job_id)
            failures = failed.failures + 1 if failed else 1
            not_before = self._clock.now() + pause_s(failures)
            self._not_held[job.job_id] = VJobFailure(failures, not_before, str(error))
        else:
            self._not_held.pop(job.job_id, None)

    def _hold_again(self, jobs: Iterable[RmsJob], report: CycleReport) -> None:
        left = {job.job_id: job for job in jobs if job.job_id in self._not_held and job.state is not JobState.ENDED}
        for job_id, job in left.items():
            with report.alone(f"job {job.display_id}"):
                if not self._not_held[job_id].rests(self._clock.now()):
                    self._hold(job)
            if failed := self._not_held.get(job_id):
                report.problems.append(
                    f"job {job.display_id} is no vjob and cannot be held: {failed.error}; it is tried again soon"
                )


def _key(job: RmsJob) -> tuple[int, int]:
    """Id and SubmitTime: facts about one job must not be used for another job that got its id."""
    return (job.job_id, job.submit_time)
