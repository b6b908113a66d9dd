"""Signs of life: when the wrapper of each vjob was last heard of. In memory only: a sign of life writes no database.

A restarted engine has heard of no wrapper, so a wrapper's silence is counted from the engine's start at the earliest.
"""

from __future__ import annotations

from collections.abc import Collection


class SignsOfLife:
    """Times in seconds since the epoch, by job id. Several threads may call; each call is one step of a dictionary."""

    def __init__(self) -> None:
        self._heard: dict[int, float] = {}

    def heard(self, job_id: int, now: float) -> None:
        """Record that the wrapper of this vjob gave a sign of life."""
        self._heard[job_id] = now

    def last(self, job_id: int) -> float:
        """When the wrapper was last heard of; 0 if never."""
        return self._heard.get(job_id, 0.0)

    def retain(self, job_ids: Collection[int]) -> None:
        """Forget all other vjobs."""
        for job_id in [known for known in list(self._heard) if known not in job_ids]:
            self._heard.pop(job_id, None)
