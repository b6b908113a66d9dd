"""Limits: when a vjob that a limit kept from starting is worth another attempt before its pause is over."""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.failures import NOT_STARTED, VJobFailure
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation

_UNDER_WAY = frozenset({JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED})


class Limits:
    """Remembers which jobs are under way, native ones too: what their users may have is less by them."""

    def __init__(self) -> None:
        self._under_way: dict[int, str] = {}
        self._eased: dict[str, float] = {}  # by user, when a job of theirs was seen to be over

    def look(self, seen: Observation) -> None:
        """Notice whose jobs have ended (or are back in the queue) since the last cycle."""
        now = {job_id: job.user for job_id, job in seen.jobs.items() if job.completing or job.state in _UNDER_WAY}
        for job_id in self._under_way.keys() - now.keys():
            self._eased[self._under_way[job_id]] = seen.taken
        self._under_way = now

    def rests(self, vjob: VJobRow, failed: VJobFailure | None, now: float) -> bool:
        """Whether a vjob whose last start (or resume) failed is to wait longer."""
        if failed is None or not failed.rests(now):
            return False
        limited = failed.error.startswith(NOT_STARTED)
        return not (limited and self._eased.get(vjob.user, 0.0) > vjob.state_since)
