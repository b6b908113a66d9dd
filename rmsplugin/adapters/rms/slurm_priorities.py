"""Slurm priorities: asks sprio and sshare what the priorities of jobs are made of, where that may have changed.

Slurm computes fair shares, and with them the priorities of pending jobs, once in a PriorityCalcPeriod. In between it
computes the priority of a job that is changed. So while all jobs have the priorities that they had when Slurm was
asked, its answers are good for a part of that period.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rmsplugin.adapters.rms import slurm_priority
from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob, RmsPriorities
from rmsplugin.adapters.rms.slurm_records import duration_s
from rmsplugin.errors import RmspluginError
from rmsplugin.model.priority import Weights

#: Answers are good for this part of a PriorityCalcPeriod: Slurm's own shares are up to a whole one old.
_PART = 0.2

_SHARES = ("sshare", "-a", "-h", "-P", "-o", slurm_priority.SHARE_FORMAT)
_PARTS = ("sprio", "-h", "-o", slurm_priority.PARTS_FORMAT)


@dataclass(frozen=True, slots=True)
class _Told:
    """What Slurm said, until when it is good, and all that it hangs on."""

    of: frozenset[tuple[object, ...]]
    good_until: float
    priorities: RmsPriorities


class SlurmPriorities:
    """The priorities of jobs, as Slurm's commands tell them."""

    def __init__(self, run: Callable[..., str], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet. ``run``: ``SlurmCommands.run``."""
        self._run = run
        self._monotonic = monotonic
        self._told: _Told | None = None

    def read(self, configuration: Mapping[str, str], jobs: Iterable[RmsJob]) -> RmsPriorities:
        """Read the priorities of these jobs by two processes at most; facts that they do not give are unknown."""
        weights = slurm_priority.weights(configuration)
        weighed = [job for job in jobs if job.state is not JobState.ENDED and job.name != ROOM_NAME]
        if weights is None or not weighed:  # rooms have no place in the queue
            return RmsPriorities(weights)
        now, told, of = self._monotonic(), self._told, frozenset(map(_standing, weighed))
        if told is None or told.of != of or told.priorities.weights != weights or now >= told.good_until:
            priorities, is_whole = self._ask(weights, any(job.state is JobState.PENDING for job in weighed))
            good_s = _PART * duration_s(configuration.get("PriorityCalcPeriod", "")) if is_whole else 0.0
            told = self._told = _Told(of, now + good_s, priorities)
        return told.priorities

    def _ask(self, weights: Weights, pending: bool) -> tuple[RmsPriorities, bool]:
        """Ask both at a time (sprio has lines of pending jobs only). Returns what they say, and whether both do."""
        with ThreadPoolExecutor(1, thread_name_prefix="slurm") as beside:
            asked = beside.submit(self._said, *_SHARES) if weights.share else None
            parts = self._said(*_PARTS) if pending else ""
            shares = asked.result() if asked else ""
        told = RmsPriorities(weights, slurm_priority.parts(parts or ""), slurm_priority.shares(shares or ""))
        return told, None not in (parts, shares)

    def _said(self, *words: str) -> str | None:
        """The output of a command; None if it fails, for whatever reason: a cycle goes on without it."""
        try:
            return self._run(*words)
        except RmspluginError:
            return None


def _standing(job: RmsJob) -> tuple[object, ...]:
    """All of a job that changes with its priority, and with what that is made of."""
    whose = (job.account, job.user, job.partition)
    return (job.job_id, job.state, job.priority, job.nice, job.eligible, job.accrue_time, whose)
