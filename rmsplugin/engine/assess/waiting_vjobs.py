"""Waiting vjobs: those that may start, be resumed or go on now, as far as Slurm and they themselves are concerned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.assess.first_sight import FirstSight
from rmsplugin.engine.assess.job_identity import JobIdentity
from rmsplugin.engine.assess.limit_retry import LimitRetry
from rmsplugin.engine.assess.queue import Order, Waiting, in_order
from rmsplugin.engine.capacity.priorities import priority_of
from rmsplugin.engine.context.cycle_report import CycleReport
from rmsplugin.engine.ledger.failures import LOSS, VJobFailure
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow
from rmsplugin.engine.observe.dead_nodes import require_answers
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.strays import strays
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.settings import Settings

#: By state, the operation that lets a begun vjob go on.
_WAKES = {VJobState.SLEEPING: OperationKind.RESUME, VJobState.PAUSED: OperationKind.UNPAUSE}


class Queue(NamedTuple):
    """The vjobs that wait.

    Attributes:
        waiting: vjobs that may start, be resumed or go on, head first.
        silent: by job id, why a vjob's saved states are out of reach now; otherwise it would be resumed.
        order: tells the position of each.
    """

    waiting: list[Waiting]
    silent: dict[int, str]
    order: Order


#: Gives the geometry of a job's vjob, and the digest of its script; None if the job is, or seems, no vjob.
GeometryOf = Callable[[RmsJob], tuple[Geometry, str] | None]


class WaitingVJobs:
    """Finds the waiting vjobs, once a cycle and for previews."""

    def __init__(self, settings: Settings, ledger: Ledger, first_sight: FirstSight, identity: JobIdentity) -> None:
        self._settings = settings
        self._ledger = ledger
        self._first_sight = first_sight
        self._identity = identity
        self._limits = LimitRetry()

    def note_ended_jobs(self, seen: Observation) -> None:
        """Note the jobs that have ended since the last cycle."""
        self._limits.note_ended_jobs(seen)

    def record_reasons(self, silent: Mapping[int, str]) -> None:
        """Record why these vjobs wait."""
        ledger = self._ledger
        for job_id, why in silent.items():
            if ledger.vjob(job_id).reason != why:
                ledger.update_vjob(job_id, reason=why)

    def find_queue(self, seen: Observation, ours: list[RmsJob], geometry_of: GeometryOf, report: CycleReport) -> Queue:
        """The vjobs that may start, be resumed or go on. Changes nothing, unless ``geometry_of`` does.

        Args:
            seen: one look at the cluster.
            ours: the jobs of vjobs.
            geometry_of: asked about jobs without a row.
            report: receives the faults of single jobs.
        """
        rows = {vjob.display_id: vjob for vjob in self._ledger.vjobs()}
        waiting: list[Waiting] = []
        silent: dict[int, str] = {}
        failures = self._ledger.failures.of_vjobs()

        def add_if_it_waits(job: RmsJob) -> None:
            row = rows.get(job.display_id) if job.split else None
            if row is not None and row.job_id in self._identity.others:
                return
            if row is not None:
                if self._moved(seen, row) or (failures and self._rests(seen, row, failures)):
                    return
                if row.state is VJobState.SLEEPING and strays(self._ledger, seen, row):
                    return  # resumed, it would run twice
                if row.state in _WAKES and row.wakes and (why := self._silent(row)):
                    silent[row.job_id] = why
                    return
            if each := self._waits(seen, job, row, geometry_of):
                waiting.append(each)

        report.each_alone(ours, add_if_it_waits, lambda job: f"job {job.display_id}")
        ordered, order = in_order(seen, waiting)
        return Queue(ordered, silent, order)

    def find_later(self, ours: Iterable[RmsJob], geometry_of: GeometryOf, until: float) -> list[Waiting]:
        """The vjobs that may start at a begin time before ``until``, the first one first. Changes nothing.

        Args:
            ours: the jobs of vjobs.
            geometry_of: asked about jobs without a row.
            until: seconds since the epoch.
        """
        jobs = [job for job in ours if 0 < job.begin_time < until and not job.completing]
        rows = {vjob.display_id: vjob for vjob in self._ledger.vjobs()} if jobs else {}
        found = []
        for job in sorted(jobs, key=lambda each: each.begin_time):
            row = rows.get(job.display_id) if job.split else None
            geometry = row.geometry if row is not None else (geometry_of(job) or (None,))[0]
            if geometry is not None and (row is None or _may_begin(row)):
                found.append(Waiting(job, geometry, job.submit_time, job.priority))
        return found

    def _moved(self, seen: Observation, row: VJobRow) -> bool:
        """Whether the vjob may have changed since the look; one that became a vjob by this look has not."""
        if row.job_id in self._first_sight.newcomers:
            return row.job_id in seen.changed
        return row.state_since >= seen.taken

    def _rests(self, seen: Observation, row: VJobRow, failures: Mapping[tuple[int, str], VJobFailure]) -> bool:
        """Whether its last start or resume failed, or it was lost, too short a time ago."""
        kinds = (_WAKES.get(row.state, OperationKind.START), LOSS)
        return any(self._limits.rests(row, failures.get((row.job_id, each)), seen.taken) for each in kinds)

    def _waits(self, seen: Observation, job: RmsJob, row: VJobRow | None, geometry_of: GeometryOf) -> Waiting | None:
        """The vjob, if Slurm and its own state let it start, be resumed or go on now; else None."""
        if row is not None and row.state in _WAKES and row.wakes:
            if job.state in (JobState.SUSPENDED, JobState.PENDING) and not job.completing and not job.held:
                priority = priority_of(seen, row, job)
                return Waiting(
                    *(job, row.geometry, row.submitted, priority, row, row.state_since), preferred=row.preferred
                )
            return None
        if not job.eligible or job.completing or not (row is None or row.state is VJobState.WAITING):
            return None
        if row is not None:
            # The script is not read from Slurm again: a restarted engine would otherwise read the script of each job.
            return Waiting(
                *(job, row.geometry, row.submitted, job.priority), since=row.state_since, preferred=row.preferred
            )
        found = geometry_of(job)
        if found is None or job.split:
            return None
        geometry, script = found
        return Waiting(job, geometry, job.submit_time, job.priority, since=job.submit_time, script=script)

    def _silent(self, row: VJobRow) -> str:
        """Why the vjob's saved states are out of reach now; empty if they are not."""
        try:
            require_answers(self._settings, self._ledger, self._ledger.vms(row.job_id))
        except RefusedError as error:
            return str(error)
        return ""


def _may_begin(row: VJobRow) -> bool:
    """Whether the vjob has not begun, and nobody prefers that it does not."""
    return row.state is VJobState.WAITING and row.preferred is not VJobState.SLEEPING
