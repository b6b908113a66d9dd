"""Job identity: whether a job with the id of a vjob is that vjob's (decision 0053).

Slurm gives ids out again after an older StateSaveLocation was restored. A job is identified by its id, the SubmitTime
of its first submission, and its script. A requeue sets SubmitTime to its own time, and counts restarts up. The engine
follows this while it sees the job in each look; otherwise it compares the script. An element of an array is a job like
others as soon as it has an id of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rmsplugin.adapters.rms.base import JobState, Rms, RmsJob
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.errors import NotFoundError

_DIGEST_BYTES = 16


def script_digest(script: str) -> str:
    """The digest by which a script is known."""
    return hashlib.blake2b(script.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).hexdigest()


class JobIdentity:
    """Compares the jobs of each look with the vjobs of the ledger, and follows their requeues."""

    def __init__(self, ledger: Ledger, rms: Rms) -> None:
        self._ledger = ledger
        self._rms = rms
        self._followed: frozenset[int] = frozenset()  # ids of vjobs whose own jobs the last look saw
        #: By id, the jobs of the last look that have the ids of other jobs' living vjobs.
        self.others: dict[int, RmsJob] = {}

    def find_others(self, jobs: Iterable[RmsJob]) -> None:
        """Find the jobs that have the ids of other jobs' vjobs. A job's script is read only if nothing else decides."""
        ledger = self._ledger
        known = ledger.living()
        followed, others = set(), {}
        changed: list[tuple[int, RmsJob]] = []
        for job in jobs:
            vjob = known.get(job.job_id)
            if vjob is None or not job.split:
                continue
            if self._is_its(vjob, job):
                followed.add(job.job_id)
                if vjob.seen_submitted != job.submit_time or vjob.seen_restarts != job.restarts:
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
        if vjob.seen_restarts < 0:  # a row of an older release, which did not remember them
            return job.restarts > 0 or job.submit_time == int(vjob.submitted)
        if vjob.seen_submitted == job.submit_time and vjob.seen_restarts == job.restarts:
            return True
        if job.restarts == 0 and vjob.seen_restarts == 0:
            return False  # only a requeue changes the time of submission in Slurm
        if job.restarts >= vjob.seen_restarts and vjob.job_id in self._followed:
            return True
        if job.restarts == 0 and job.submit_time > vjob.submitted:
            return False  # submitted later, and never requeued
        return self._has_its_script(vjob, job)

    def _has_its_script(self, vjob: VJobRow, job: RmsJob) -> bool:
        if not vjob.script_digest or job.state is JobState.ENDED:
            return True  # a row of an older release; or nothing could begin
        try:
            return script_digest(self._rms.batch_script(job.job_id)) == vjob.script_digest
        except NotFoundError:
            return True  # the job has gone meanwhile


def why_other(vjob: VJobRow, job: RmsJob) -> str:
    """The sentence about a job that has the id of another job's vjob."""
    return (
        f"its id is that of an earlier job, whose vjob is still {vjob.state}; once that vjob has "
        f"ended (see `rmsplugin confirm`), an operator has to release job {job.display_id}"
    )
