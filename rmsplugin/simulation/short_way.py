"""Short way: FCFS and EASY over a count of equal processors, where nothing is suspended or moved.

The schedule is the one that ``rmsplugin.decision.easy``, which tells the rules, makes pass by pass; a property compares
them. At one instant: all ends, then all submissions, then one pass. What makes it short:

- A pass after submissions alone looks only at the new jobs. Since the last pass no processor came free, and shadow time
  and extra, computed anew, would be what that pass left: a job that was backfilled either gives back what it has by the
  shadow time, or was taken from the extra. So who could not start then cannot start now, nearer to the shadow time.
- A pass after ends asks each lane of the queue for one candidate, and not each job.
- The shadow time is computed when the first candidate needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from rmsplugin.simulation.releases import Releases
from rmsplugin.simulation.waiting import ANY_END_S, Waiting
from rmsplugin.workload.jobs import Job

#: So many instants are simulated between two words about the progress.
_TOLD_EVERY = 4096


def start_times(
    jobs: Sequence[Job], processors: int, *, backfill: bool, tell: Callable[[int], None] = lambda _: None
) -> list[float]:
    """When each job starts, in seconds as in the trace.

    Args:
        jobs: in the order of the queue, submit times ascending.
        processors: how many the cluster has.
        backfill: EASY; False for First Come First Serve.
        tell: called now and then with the number of jobs that were submitted.

    Raises:
        ValueError: a job needs more processors than there are: it and all behind it would never start.
    """
    if any(job.processors > processors for job in jobs):
        raise ValueError("a job is larger than the cluster")
    cluster = _Cluster(jobs, processors, backfill)
    submitted, ends = 0, cluster.ends
    instants = 0
    while submitted < len(jobs) or ends:
        now = ends[0][0] if ends else math.inf
        if submitted < len(jobs):
            now = min(now, jobs[submitted].submit_s)
        freed = False
        while ends and ends[0][0] == now:
            cluster.end(heappop(ends)[1])
            freed = True
        first = submitted
        while submitted < len(jobs) and jobs[submitted].submit_s == now:
            submitted += 1
        cluster.schedule(now, freed, range(first, submitted))
        instants += 1
        if instants % _TOLD_EVERY == 0:
            tell(submitted)
    return cluster.started


class _Cluster:
    """Who waits, who runs, and the passes."""

    def __init__(self, jobs: Sequence[Job], processors: int, backfill: bool) -> None:
        self._jobs = jobs
        self._free = processors
        self._backfill = backfill
        self._waiting = Waiting()
        self._releases = Releases()
        self._reservation: tuple[float, int] | None = None  # shadow time and extra, where they are known
        self.started: list[float] = [math.nan] * len(jobs)
        self.ends: list[tuple[float, int]] = []  # a heap of ends and jobs

    def end(self, number: int) -> None:
        """A job ends."""
        job = self._jobs[number]
        self._free += job.processors
        self._releases.remove(self.started[number] + job.estimate_s, number, job.processors)
        self._reservation = None

    def schedule(self, now: float, freed: bool, submitted: range) -> None:
        """One pass, after all ends and submissions of an instant.

        Args:
            now: the instant.
            freed: whether jobs have ended.
            submitted: jobs that are new, and not in the queue yet.
        """
        waiting = self._waiting
        if freed:
            while (head := waiting.head()) is not None and self._jobs[head].processors <= self._free:
                waiting.remove(head, self._jobs[head].processors)
                self._start(head, now)
            if head is not None and self._backfill:
                self._backfill_queue(now)
        for number in submitted:
            if waiting.head() is None:
                starts = self._jobs[number].processors <= self._free
            else:
                starts = self._backfill and self._may_pass(number, now)
            if starts:
                self._start(number, now)
            else:
                waiting.append(number, self._jobs[number].processors, self._jobs[number].estimate_s)

    def _start(self, number: int, now: float) -> None:
        job = self._jobs[number]
        self._free -= job.processors
        self.started[number] = now
        self._releases.add(now + job.estimate_s, number, job.processors)
        heappush(self.ends, (now + job.run_s, number))

    def _reserved(self) -> tuple[float, int]:
        """Shadow time and extra of the head, as ``rmsplugin.decision.easy`` has them."""
        if self._reservation is None:
            head = self._waiting.head()
            assert head is not None
            self._reservation = self._releases.shadow(self._jobs[head].processors - self._free)
        return self._reservation

    def _may_pass(self, number: int, now: float) -> bool:
        """Whether one behind the head fits now and does not delay it; it then has its part of the extra."""
        size, estimate_s = self._jobs[number].processors, self._jobs[number].estimate_s
        if size > self._free:
            return False
        shadow_s, extra = self._reserved()
        if now + estimate_s <= shadow_s:
            return True
        if size > extra:
            return False
        self._reservation = shadow_s, extra - size
        return True

    def _backfill_queue(self, now: float) -> None:
        """Start all that may pass the head, in the order of the queue."""
        waiting = self._waiting
        fitting = [size for size in waiting.lanes if size <= self._free]
        # A candidate of a lane stays the first to try: what is free, and the extra, only become less.
        candidates = [(number, size) for size in fitting if (number := self._candidate(size, now)) is not None]
        heapify(candidates)
        while candidates:
            number, size = candidates[0]
            if size > self._free:
                heappop(candidates)
                continue
            if self._may_pass(number, now):
                waiting.remove(number, size)
                self._start(number, now)
            following = self._candidate(size, now)
            if following is None:
                heappop(candidates)
            else:
                heapreplace(candidates, (following, size))

    def _candidate(self, size: int, now: float) -> int | None:
        """The first job of this size that does not delay the head, if there is one."""
        lane = self._waiting.lanes.get(size)
        if lane is None:
            return None
        shadow_s, extra = self._reserved()
        return lane.first(now, ANY_END_S if size <= extra else shadow_s)
