"""Short way: FCFS and EASY over a count of equal processors, where nothing is suspended or moved.

The schedule is the one that ``rmsplugin.decision.easy``, which tells the rules, makes pass by pass; a property test
compares them. At one instant come first all ends, then all submissions, then one pass. Its short cuts:

- A pass after submissions alone looks only at the new jobs. Since the last pass no processor came free, and the shadow
  time and the extra, computed anew, would be those of that pass: a job that was backfilled either gives its processors
  back by the shadow time, or was taken from the extra. So a job that could not start then cannot start now,
  nearer to the shadow time.
- A pass after ends asks each lane of the queue for one candidate, and not each job.
- The shadow time is computed when the first candidate needs it.
- FCFS needs none of that: no job passes another, so a job starts when enough is free once the one before has started.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from rmsplugin.simulation.releases import Releases
from rmsplugin.simulation.waiting import ANY_END_S, Waiting
from rmsplugin.workload.jobs import Job

#: The number of simulated instants between two reports of the progress.
_TOLD_EVERY = 4096


class Queue(NamedTuple):
    """Facts of jobs, in the order of the queue; a list for each value is read faster than the jobs are.

    Attributes:
        submits_s: their submit times, ascending.
        runs_s: their run times.
        sizes: the numbers of processors that they need.
        estimates_s: the run times that they may have.
    """

    submits_s: Sequence[float]
    runs_s: Sequence[float]
    sizes: Sequence[int]
    estimates_s: Sequence[float]


def start_times(
    jobs: Sequence[Job], processors: int, *, backfill: bool, tell: Callable[[int], None] = lambda _: None
) -> list[float]:
    """The start of each job, in seconds as in the trace; see ``starts_of``."""
    return starts_of(queue_of(jobs), processors, backfill=backfill, tell=tell)


def queue_of(jobs: Sequence[Job]) -> Queue:
    """The facts of these jobs."""
    return Queue(
        [job.submit_s for job in jobs],
        [job.run_s for job in jobs],
        [job.processors for job in jobs],
        [job.estimate_s for job in jobs],
    )


def starts_of(
    queue: Queue, processors: int, *, backfill: bool, tell: Callable[[int], None] = lambda _: None
) -> list[float]:
    """The start of each job, in seconds as its submission.

    Args:
        queue: the jobs.
        processors: the number of processors of the cluster.
        backfill: EASY; False for First Come First Serve.
        tell: called now and then with the number of jobs submitted so far.

    Raises:
        ValueError: a job needs more processors than there are: this job and all behind it would never start.
    """
    if max(queue.sizes, default=0) > processors:
        raise ValueError("a job is larger than the cluster")
    return (_easy if backfill else _fcfs)(queue, processors, tell)


def _fcfs(queue: Queue, processors: int, tell: Callable[[int], None]) -> list[float]:
    """The start of each job if none passes another. Ends that no job has needed yet are looked at late."""
    free, now = processors, -math.inf
    started: list[float] = []
    ends: list[tuple[float, int]] = []  # a heap of ends and processors; none has more than the cluster
    for number, (submit_s, run_s, size) in enumerate(zip(queue.submits_s, queue.runs_s, queue.sizes, strict=True)):
        now = max(now, submit_s)
        while free < size:
            end_s, freed = heappop(ends)
            free += freed
            now = max(now, end_s)
        free -= size
        started.append(now)
        heappush(ends, (now + run_s, size))
        if number % _TOLD_EVERY == 0:
            tell(number)
    return started


def _easy(queue: Queue, processors: int, tell: Callable[[int], None]) -> list[float]:
    """The start of each job if jobs may pass the head of the queue without delaying it."""
    cluster = ClusterOfProcessors(queue, processors)
    submits_s = [*queue.submits_s, math.inf]
    submitted, ends = 0, cluster.ends
    instants = 0
    while True:
        now = submits_s[submitted]
        if ends and ends[0][0] < now:
            now = ends[0][0]
        if now == math.inf:
            return cluster.started
        freed = cluster.end_until(now)
        first = submitted
        while submits_s[submitted] == now:
            submitted += 1
        cluster.schedule(now, freed, range(first, submitted))
        instants += 1
        if instants % _TOLD_EVERY == 0:
            tell(submitted)


class ClusterOfProcessors:
    """The waiting jobs, the running jobs, and the passes of EASY."""

    def __init__(self, queue: Queue, processors: int) -> None:
        self._sizes, self._runs_s, self._estimates_s = queue.sizes, queue.runs_s, queue.estimates_s
        self._free = processors
        self._waiting = Waiting()
        self._releases = Releases()
        self._reservation: tuple[float, int] | None = None  # shadow time and extra, where they are known
        self.started: list[float] = [math.nan] * len(queue.sizes)
        self.ends: list[tuple[float, int]] = []  # a heap of ends and jobs

    def end_until(self, now: float) -> bool:
        """End the jobs that end at an instant. Returns whether there are any."""
        ends, sizes = self.ends, self._sizes
        freed = False
        while ends and ends[0][0] == now:
            number = heappop(ends)[1]
            self._free += sizes[number]
            self._releases.remove(self.started[number] + self._estimates_s[number], number, sizes[number])
            freed = True
        if freed:
            self._reservation = None
        return freed

    def schedule(self, now: float, freed: bool, submitted: range) -> None:
        """Make one pass, after all ends and submissions of an instant.

        Args:
            now: the instant.
            freed: whether jobs have ended.
            submitted: new jobs that are not in the queue yet.
        """
        waiting, sizes = self._waiting, self._sizes
        head = waiting.head()
        if freed and head is not None:
            while head is not None and sizes[head] <= self._free:
                waiting.remove(head, sizes[head])
                self._start(head, now)
                head = waiting.head()
            if head is not None:
                self._backfill_queue(now)
        for number in submitted:
            if head is None:
                if sizes[number] <= self._free:
                    self._start(number, now)
                    continue
                head = number
            elif self._may_pass(number, now):
                self._start(number, now)
                continue
            waiting.append(number, sizes[number], self._estimates_s[number])

    def _start(self, number: int, now: float) -> None:
        size = self._sizes[number]
        self._free -= size
        self.started[number] = now
        self._releases.add(now + self._estimates_s[number], number, size)
        heappush(self.ends, (now + self._runs_s[number], number))

    def _reserved(self) -> tuple[float, int]:
        """Shadow time and extra of the head, as ``rmsplugin.decision.easy`` has them."""
        if self._reservation is None:
            head = self._waiting.head()
            assert head is not None
            self._reservation = self._releases.shadow(self._sizes[head] - self._free)
        return self._reservation

    def _may_pass(self, number: int, now: float) -> bool:
        """Whether a job behind the head fits now and does not delay it; it then has its part of the extra."""
        size = self._sizes[number]
        if size > self._free:
            return False
        shadow_s, extra = self._reserved()
        if now + self._estimates_s[number] <= shadow_s:
            return True
        if size > extra:
            return False
        self._reservation = shadow_s, extra - size
        return True

    def _backfill_queue(self, now: float) -> None:
        """Start all jobs that may pass the head, in the order of the queue."""
        waiting = self._waiting
        fitting = [size for size in waiting.lanes if size <= self._free]
        # The candidate of a lane stays the first to try: the free processors and the extra only become less.
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
