"""Job identity: whether a job with the id of a vjob is that vjob's (decision 0053).

Slurm gives ids out again when an older StateSaveLocation was restored. A job is known by its id, the SubmitTime of its
first submission, and its script. A requeue makes SubmitTime that of the requeue and counts up: as long as it is seen
from one look to the next that is followed; otherwise its script is compared. Elements of arrays are jobs like others
from when they have an id of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.errors import NotFoundError
from rmsplugin.model.vjob import VJobState

_DIGEST_BYTES = 16


def script_digest(script: str) -> str:
    """What a script is known by."""
    return hashlib.blake2b(script.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).hexdigest()


class JobIdentity:
    """Compares the jobs of each look with the vjobs of the ledger, and follows their requeues."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._followed: frozenset[int] = frozenset()  # vjobs whose own jobs were seen by the last look
        #: The jobs of the last look that have the ids of other jobs' vjobs, which live, by id.
        self.others: dict[int, RmsJob] = {}

    def look(self, jobs: Iterable[RmsJob]) -> None:
        """Find the jobs that have the ids of other jobs' vjobs. Reads the script of one where nothing else tells."""
        ledger = self._context.ledger
        known = {vjob.job_id: vjob for vjob in ledger.vjobs() if vjob.state is not VJobState.TERMINATED}
        followed, others = set(), {}
        changed: list[tuple[int, RmsJob]] = []
        for job in jobs:
            vjob = known.get(job.job_id)
            if vjob is None or not job.split:
                continue
            if self._is_its(vjob, job):
                followed.add(job.job_id)
                if (vjob.seen_restarts, vjob.seen_submitted) != (job.restarts, job.submit_time):
                    changed.append((job.job_id, job))
            else:
                others[job.job_id] = job
        if changed:
            with ledger.transaction():
                for job_id, job in changed:
                    ledger.update_vjob(job_id, seen_restarts=job.restarts, seen_submitted=job.submit_time)
        self._followed, self.others = frozenset(followed), others

    def _is_its(self, vjob: VJobRow, job: RmsJob) -> bool:
        if job.uid != vjob.uid:
            return False
        if vjob.seen_restarts < 0:  # of an older release, which did not remember
            return job.restarts > 0 or job.submit_time == int(vjob.submitted)
        if (vjob.seen_restarts, vjob.seen_submitted) == (job.restarts, job.submit_time):
            return True
        if job.restarts == 0 and vjob.seen_restarts == 0:
            return False  # Slurm changes the time of a submission by a requeue only
        if job.restarts >= vjob.seen_restarts and vjob.job_id in self._followed:
            return True
        if job.restarts == 0 and job.submit_time > vjob.submitted:
            return False  # submitted later, and never requeued
        return self._has_its_script(vjob, job)

    def _has_its_script(self, vjob: VJobRow, job: RmsJob) -> bool:
        if not vjob.script_digest or job.state is JobState.ENDED:
            return True  # of an older release; or there is nothing that could begin
        try:
            return script_digest(self._context.rms.batch_script(job.job_id)) == vjob.script_digest
        except NotFoundError:
            return True  # it has gone meanwhile


def why_other(vjob: VJobRow, job: RmsJob) -> str:
    """What is to be said of a job that has the id of another one's vjob."""
    return (
        f"its id is that of an earlier job, whose vjob is {vjob.state} yet; when that has ended (see `rmsplugin "
        f"confirm`), an operator releases job {job.display_id}"
    )
