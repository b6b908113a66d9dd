"""Suspensions: which jobs Slurm was told to suspend or resume, and whose wrappers do not go on. In memory only.

slurmctld answers at once, but slurmd acts later: of a suspend and a resume right behind it, slurmd may do the resume
first (Slurm 22.05). Then Slurm says that the job runs, while its wrapper is stopped. A signal that a user sends the job
meanwhile is lost, because slurmstepd refuses it. The same happens if the resume never reaches slurmd, since it is not
sent twice. Two things help: time between suspend and resume (``APART_S``), and a check that the wrapper is heard of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

#: Seconds between suspend and resume: slurmstepd stops processes in two steps, two seconds apart.
APART_S = 2.0
#: A wrapper that goes on says so within a second. The first wait for it is so many seconds; each further one doubles.
_PATIENCE_S = 4.0


@dataclass(slots=True)
class _Awaited:
    """A wrapper that is to go on, and was not heard of since."""

    since: float
    due: float
    patience_s: float = _PATIENCE_S
    announced: bool = False


class Suspensions:
    """Times in seconds since the epoch, by job id; several threads may call."""

    def __init__(self, now: float, deaf_until: Callable[[float], float] = lambda _now: 0.0) -> None:
        """Begin now, without knowing what an earlier engine has just told Slurm.

        Args:
            now: the time.
            deaf_until: tells until when the engine could not hear of a wrapper (``Hearing``).
        """
        self._began, self._deaf_until = now, deaf_until
        self._lock = threading.Lock()
        self._told: dict[int, float] = {}
        self._awaited: dict[int, _Awaited] = {}

    def suspended(self, job_id: int, now: float) -> None:
        """Record that Slurm was told, or may have been told, to suspend the job."""
        with self._lock:
            self._told[job_id] = now

    def resumed(self, job_id: int, now: float) -> None:
        """Record that Slurm was told, or may have been told, to let a job go on that has no wrapper."""
        with self._lock:
            self._told[job_id] = now

    def left_s(self, job_id: int, now: float) -> float:
        """Seconds until Slurm may be told to let the job go on, or to suspend it again."""
        with self._lock:
            return max(0.0, self._told.get(job_id, self._began) + APART_S - now)

    def goes_on(self, job_id: int, now: float, *, again: bool = False) -> None:
        """Record that Slurm is being told to let the job go on: its wrapper should be heard of from now on.

        Args:
            job_id: the job.
            now: a time before the request.
            again: Slurm was told before, in vain.
        """
        with self._lock:
            before = self._awaited.get(job_id)
            if again and before is not None:
                before.patience_s *= 2
                before.due, before.announced = now + before.patience_s, False
            else:
                self._awaited[job_id] = _Awaited(now, now + _PATIENCE_S)

    def since(self, job_id: int) -> float:
        """From when on the wrapper is awaited; 0 if it is not."""
        with self._lock:
            awaited = self._awaited.get(job_id)
            return awaited.since if awaited is not None else 0.0

    def awaits(self, job_id: int) -> bool:
        """Whether the wrapper is awaited: one step of a dictionary, which needs no lock."""
        return job_id in self._awaited

    def overdue(self, job_id: int, heard: float, now: float) -> bool:
        """Whether the wrapper should have been heard of by now, and was not.

        Args:
            job_id: the job.
            heard: when its wrapper was last heard of.
            now: the time.
        """
        with self._lock:
            return self._is_overdue(job_id, heard, now)

    def news(self, heard: Callable[[int], float], now: float) -> bool:
        """Whether a wrapper is overdue that was not overdue when this was asked last."""
        found = False
        with self._lock:
            for job_id in list(self._awaited):
                if self._is_overdue(job_id, heard(job_id), now) and not self._awaited[job_id].announced:
                    self._awaited[job_id].announced = found = True
        return found

    def _is_overdue(self, job_id: int, heard: float, now: float) -> bool:
        awaited = self._awaited.get(job_id)
        if awaited is None:
            return False
        if heard > awaited.since:
            del self._awaited[job_id]
            return False
        return now >= max(awaited.due, self._deaf_until(now) + awaited.patience_s)

    def retain(self, job_ids: Collection[int]) -> None:
        """Forget all other jobs."""
        with self._lock:
            for known in (self._told, self._awaited):
                for job_id in [each for each in known if each not in job_ids]:
                    del known[job_id]
