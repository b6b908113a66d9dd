"""Priorities: Slurm's priority of a vjob as it would be now, also while it runs or sleeps and Slurm computes none."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.records import standing_text
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.priority import Standing, priority_now, standing
from rmsplugin.model.vjob import VJobState

#: A smaller difference is not a change by hand: fractions are cut off, and priorities and shares are read at different
#: times.
_NO_CHANGE = 3
_LOOKS_DIFFER_S = 60.0


def standing_of(seen: Observation, job: RmsJob) -> Standing:
    """The parts of the priority that Slurm shows of the job, to be remembered."""
    priorities = seen.rms.priorities
    pending = job.state is JobState.PENDING
    return standing(
        priorities.weights,
        job.priority,
        priorities.parts.get(job.job_id) if pending else None,
        computed=seen.taken if pending or not job.start_time else job.start_time,
        # As weights.accrues_from has it.
        accrues_from=job.accrue_time or (seen.taken if pending else job.submit_time),
        nice=job.nice,
        account=job.account,
        share=priorities.share(job.account, job.user, job.partition),
    )


def priority_of(seen: Observation, vjob: VJobRow, job: RmsJob | None) -> int:
    """The priority by which a vjob that runs or sleeps stands in the queue."""
    priorities, known = seen.rms.priorities, vjob.standing
    share = priorities.share(known.account, vjob.user, vjob.partition) if known else None
    if known is None:  # a row of an older release, which remembered the priority alone
        known = Standing(vjob.priority, vjob.priority, 0.0, vjob.submitted, 0, "")
    if job is not None and job.state is JobState.PENDING and job.priority:
        parts = priorities.parts.get(job.job_id)
        if parts is not None and parts.fixed:
            return job.priority  # set by hand while the vjob waits to be resumed
    return priority_now(
        known,
        priorities.weights,
        seen.taken,
        nice=known.nice if job is None else job.nice,
        share=share,
    )


class Priorities:
    """Notices that somebody has set the priority of a job that runs or is suspended, and makes it count.

    Slurm shows the priority of a running job as it was at its start or last resume, and 0 while the job is suspended.
    Slurm forgets an operator's change at the next suspend. So the engine remembers a change between two looks.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._shown: dict[int, tuple[JobState, int]] = {}

    def note_changes(self, seen: Observation) -> None:
        """Compare the priorities that Slurm shows with those of the last look."""
        shown: dict[int, tuple[JobState, int]] = {}
        for vjob in self._ledger.vjobs():
            job = seen.jobs.get(vjob.job_id)
            if job is None or job.state not in (JobState.RUNNING, JobState.SUSPENDED):
                continue
            before = self._shown.get(vjob.job_id)
            shown[vjob.job_id] = (job.state, job.priority)
            changed = before is not None and before[0] is job.state and before[1] != job.priority > 0
            if vjob.state not in (VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING):
                continue
            if vjob.standing is None and job.priority > 0:
                # The job started before the engine had met it, or under an older release.
                self._remember(vjob, standing_of(seen, job))
            elif changed:
                self._compare(seen, vjob, job)
        self._shown = shown

    def _compare(self, seen: Observation, vjob: VJobRow, job: RmsJob) -> None:
        """Remember a priority that was set by hand.

        Slurm also computes the priority anew whenever anything of the job is changed: then it is as expected.
        """
        weights = seen.rms.priorities.weights
        slack = float(_NO_CHANGE)
        if weights is not None:
            slack += weights.share * 2e-6 + weights.age * _LOOKS_DIFFER_S / max(weights.max_age_s, _LOOKS_DIFFER_S)
        if abs(job.priority - priority_of(seen, vjob, job)) <= slack:
            return
        now = standing(
            weights,
            job.priority,
            None,
            computed=seen.taken,
            accrues_from=vjob.standing.accrues_from if vjob.standing else vjob.submitted,
            nice=job.nice,
            account=job.account,
            share=seen.rms.priorities.share(job.account, vjob.user, vjob.partition),
        )
        with self._ledger.transaction():
            self._remember(vjob, now)
            said = f"its priority in Slurm was changed: it is {now.value} now"
            self._ledger.event("priority-changed", said, vjob=vjob.display_id)

    def _remember(self, vjob: VJobRow, known: Standing) -> None:
        self._ledger.update_vjob(vjob.job_id, priority=known.value, standing=standing_text(known))
