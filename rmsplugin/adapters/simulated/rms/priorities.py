"""Priorities of the simulated Slurm: the priorities of pending jobs by priority/multifactor, and their times."""

from __future__ import annotations

from collections.abc import Iterable

from rmsplugin.adapters.rms.base import JobState, RmsPriorities
from rmsplugin.adapters.simulated.rms.job import SimulatedJob
from rmsplugin.errors import RefusedError
from rmsplugin.model.priority import Parts, Weights, age_part


class SimulatedPriorities:
    """Without weights a job's priority is that of its submission, less its nice value. Tests may change all of it.

    Attributes:
        weights: the weights of the factors; None: there are none.
        shares: fair shares of users of the account ``users``.
    """

    def __init__(self) -> None:
        self.weights: Weights | None = None
        self.shares: dict[str, float] = {}

    def of(self, job: SimulatedJob, now: float) -> int:
        """The priority that Slurm shows: for a job under way the last computed one, for a suspended job 0."""
        return job.shown if job.under_way else job.by_hand or self._computed(job, now)

    def compute(self, job: SimulatedJob, now: float) -> None:
        """Compute the priority of a job that is under way; Slurm does so when it is resumed, released or changed."""
        job.shown = job.by_hand or self._computed(job, now)

    def set_by_hand(self, job: SimulatedJob, priority: int) -> None:
        """Set it by hand. Raises RefusedError: Slurm takes a suspended job for a held one, until it is released."""
        if job.under_way and not job.shown:
            raise RefusedError(f"Job is in held state, pending scheduler release for job {job.job_id}")
        job.by_hand, job.nice = priority, 0
        if job.under_way:
            job.shown = priority

    def set_nice(self, job: SimulatedJob, nice: int, now: float) -> None:
        """Change the nice value; a priority that was set by hand stays."""
        if not job.by_hand:
            job.nice = nice
        if job.under_way and job.shown:
            self.compute(job, now)

    def said(self, jobs: Iterable[SimulatedJob], now: float) -> RmsPriorities:
        """The engine's facts about them."""
        if self.weights is None:
            return RmsPriorities()
        parts = {each.job_id: self._parts(each, now) for each in jobs if each.state is JobState.PENDING}
        shares = {("users", user, ""): share for user, share in [*self.shares.items()]}
        return RmsPriorities(self.weights, parts, shares)

    def _parts(self, job: SimulatedJob, now: float) -> Parts:
        if job.by_hand:
            return Parts(0, 0, fixed=True)
        return Parts(int(self._age(job, now)), int(self._share(job)))

    def _computed(self, job: SimulatedJob, now: float) -> int:
        return max(1, int(job.priority - job.nice + self._age(job, now) + self._share(job)))

    def _age(self, job: SimulatedJob, now: float) -> float:
        return 0.0 if self.weights is None else age_part(self.weights, job.accrues_from, now)

    def _share(self, job: SimulatedJob) -> float:
        return 0.0 if self.weights is None else self.weights.share * self.shares.get(job.request.user, 0.0)
