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
class PrioritiesTold:
    """What Slurm said of priorities, and what that means.

    Attributes:
        priorities: the meaning.
        parts: the output of sprio; empty if it was not asked.
        shares: the output of sshare; likewise.
    """

    priorities: RmsPriorities
    parts: str = ""
    shares: str = ""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What Slurm said, until when it is good, and all that it hangs on."""

    of: frozenset[tuple[object, ...]]
    good_until: float
    told: PrioritiesTold


class SlurmPriorities:
    """The priorities of jobs, as Slurm's commands tell them."""

    def __init__(self, run: Callable[..., str], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Ask nothing yet. ``run``: ``SlurmCommands.run``."""
        self._run = run
        self._monotonic = monotonic
        self._kept: _Kept | None = None
        self._given: PrioritiesTold | None = None

    def read(self, configuration: Mapping[str, str], jobs: Iterable[RmsJob]) -> PrioritiesTold:
        """Read the priorities of these jobs by two processes at most; facts that they do not give are unknown."""
        weights = slurm_priority.weights(configuration)
        weighed = [job for job in jobs if job.state is not JobState.ENDED and job.name != ROOM_NAME]
        if weights is None or not weighed:  # rooms have no place in the queue
            return PrioritiesTold(RmsPriorities(weights))
        now, kept, of = self._monotonic(), self._kept, frozenset(map(_standing, weighed))
        if kept is None or kept.of != of or kept.told.priorities.weights != weights or now >= kept.good_until:
            told, is_whole = self._ask(weights, any(job.state is JobState.PENDING for job in weighed))
            good_s = _PART * duration_s(configuration.get("PriorityCalcPeriod", "")) if is_whole else 0.0
            kept = self._kept = _Kept(of, now + good_s, told)
        return kept.told

    def of_texts(self, configuration: Mapping[str, str], parts: str, shares: str) -> RmsPriorities:
        """The priorities that were read elsewhere (``PrioritiesTold``); the same texts are the same object."""
        weights, given = slurm_priority.weights(configuration), self._given
        if given is None or (given.parts, given.shares, given.priorities.weights) != (parts, shares, weights):
            given = self._given = _told(weights, parts, shares)
        return given.priorities

    def _ask(self, weights: Weights, pending: bool) -> tuple[PrioritiesTold, bool]:
        """Ask both at a time (sprio has lines of pending jobs only). Returns what they say, and whether both do."""
        with ThreadPoolExecutor(1, thread_name_prefix="slurm") as beside:
            asked = beside.submit(self._said, *_SHARES) if weights.share else None
            parts = self._said(*_PARTS) if pending else ""
            shares = asked.result() if asked else ""
        return _told(weights, parts or "", shares or ""), None not in (parts, shares)

    def _said(self, *words: str) -> str | None:
        """The output of a command; None if it fails, for whatever reason: a cycle goes on without it."""
        try:
            return self._run(*words)
        except RmspluginError:
            return None


def _told(weights: Weights | None, parts: str, shares: str) -> PrioritiesTold:
    priorities = RmsPriorities(weights, slurm_priority.parts(parts), slurm_priority.shares(shares))
    return PrioritiesTold(priorities, parts, shares)


def _standing(job: RmsJob) -> tuple[object, ...]:
    """All of a job that changes with its priority, and with what that is made of."""
    whose = (job.account, job.user, job.partition)
    return (job.job_id, job.state, job.priority, job.nice, job.eligible, job.accrue_time, whose)
