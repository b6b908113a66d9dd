"""Job reader: one question to the RMS answers all operations that wait for their jobs at the same time."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from rmsplugin.adapters.rms.base import Rms, RmsJob
from rmsplugin.errors import NotFoundError

#: The number of jobs whose front (the node where the job ran) is remembered.
_FRONTS = 10_000


class JobReader:
    """Reads jobs afresh. Callers that come while a question is under way share the next one, and get nothing older."""

    def __init__(self, rms: Rms) -> None:
        self._rms = rms
        self._lock = threading.Lock()  # of the fields
        self._asking = threading.Lock()  # one question at a time
        self._begun = 0
        self._wanted: dict[int, set[int]] = {}  # the jobs asked for, by number of the question that will answer
        self._answered = 0  # number of the last answered question; then its jobs, asked for and found
        self._asked: frozenset[int] = frozenset()
        self._found: dict[int, RmsJob] = {}
        self._fronts: dict[int, str] = {}  # in the order in which they were read

    def front(self, job_id: int) -> str:
        """The node where the job ran when it was read last; empty if it is not known. Waits for nothing."""
        return self._fronts.get(job_id, "")

    def read(self, job_id: int) -> RmsJob:
        """The job as the RMS has it now. Raises NotFoundError, UnavailableError."""
        with self._lock:
            number = self._begun + 1
            self._wanted.setdefault(number, set()).add(job_id)
        with self._asking:
            if self._answered < number:
                with self._lock:
                    self._begun = number
                    wanted = self._wanted.pop(number, set()) | {job_id}
                self._found = self._rms.jobs(wanted)
                self._answered, self._asked = number, frozenset(wanted)
                self._remember(self._found)
            if self._answered != number or job_id not in self._asked:
                # Another caller asked our question and it failed; the question after it was not about our job.
                return self._rms.job(job_id)
            found = self._found.get(job_id)
        if found is None:
            raise NotFoundError(f"Slurm has no job {job_id}")
        return found

    def _remember(self, found: Mapping[int, RmsJob]) -> None:
        for job_id, job in found.items():
            self._fronts.pop(job_id, None)
            if job.batch_host:
                self._fronts[job_id] = job.batch_host
        for oldest in list(self._fronts)[: max(0, len(self._fronts) - _FRONTS)]:
            del self._fronts[oldest]
