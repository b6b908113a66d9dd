"""Limit retry: when a vjob that Slurm's limits kept from starting is tried again before its back-off is over."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.failures import FailureCode, VJobFailure
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation

_UNDER_WAY = frozenset({JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED})


class LimitRetry:
    """Remembers the jobs that are under way, native ones too. They count against their users' limits."""

    def __init__(self) -> None:
        self._under_way: dict[int, str] = {}
        self._eased: dict[str, float] = {}  # by user, when one of his jobs was last seen to be over

    def note_ended_jobs(self, seen: Observation) -> None:
        """Notice the users whose jobs have ended, or are back in the queue, since the last cycle."""
        now = {job_id: job.user for job_id, job in seen.jobs.items() if job.completing or job.state in _UNDER_WAY}
        for job_id in self._under_way.keys() - now.keys():
            self._eased[self._under_way[job_id]] = seen.taken
        self._under_way = now

    def rests(self, vjob: VJobRow, failed: VJobFailure | None, now: float) -> bool:
        """Whether a vjob has to wait longer after ``failed``, its last failure to start or be resumed."""
        if failed is None or not failed.rests(now):
            return False
        limited = failed.code is FailureCode.NOT_STARTED
        return not (limited and self._eased.get(vjob.user, 0.0) > vjob.state_since)
