"""Signs of life: when the wrapper of each vjob was last heard of. In memory only: no transaction for any of them.

A restarted engine has heard of none; whoever counts a wrapper's silence counts it from the engine's start at most.
"""

from __future__ import annotations

from collections.abc import Collection


class SignsOfLife:
    """Times in seconds since the epoch, by job id. Several threads may call; each call is one step of a dictionary."""

    def __init__(self) -> None:
        self._heard: dict[int, float] = {}

    def heard(self, job_id: int, now: float) -> None:
        """The wrapper of this vjob is there."""
        self._heard[job_id] = now

    def last(self, job_id: int) -> float:
        """When it was last heard of; 0 if never."""
        return self._heard.get(job_id, 0.0)

    def retain(self, job_ids: Collection[int]) -> None:
        """Forget all other vjobs."""
        for job_id in [known for known in list(self._heard) if known not in job_ids]:
            self._heard.pop(job_id, None)
