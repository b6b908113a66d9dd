"""Feedback: jobs that are submitted only after another job has ended and its user has thought (SWF, fields 17 and 18).

A trace may name for a job the one that precedes it. The job is then submitted a think time after the end of the
preceding one, and not before its own submit time. The preceding job has to be simulated, and to stand before it in the
queue; otherwise its end is unknown, and the job is submitted at its submit time.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rmsplugin.simulation.short_way import ClusterOfProcessors, Queue
from rmsplugin.workload.jobs import Job


class Link(NamedTuple):
    """The wait of a job before its submission."""

    preceding: int  # the place of a job in the queue
    think_s: float


Links = Mapping[int, Link]  # by the place of the job that waits


def links_of(jobs: Sequence[Job], following: Mapping[int, tuple[int, float]]) -> Links:
    """The links between jobs that are simulated.

    Args:
        jobs: in the order of the queue.
        following: by job id, the id of the job that precedes it, and the think time of its user.
    """
    if not following:
        return {}
    places = {job.job_id: place for place, job in enumerate(jobs)}
    found = {}
    for job_id, (preceding, think_s) in following.items():
        place, before = places.get(job_id), places.get(preceding)
        if place is not None and before is not None and before < place:
            found[place] = Link(before, think_s)
    return found


class Submissions:
    """The submit times of the jobs of a queue; where jobs wait for others, the times appear as those end.

    Attributes:
        times_s: by place in the queue, the submit times that are known.
    """

    def __init__(self, submits_s: Sequence[float], links: Links) -> None:
        self.times_s = list(submits_s)
        # In ascending order, so it is a heap.
        self._coming = [(submit_s, place) for place, submit_s in enumerate(submits_s) if place not in links]
        self._followers: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for place, link in links.items():
            self._followers[link.preceding].append((place, link.think_s))

    @property
    def next_s(self) -> float:
        """The time of the next submission, as far as it is known."""
        return self._coming[0][0] if self._coming else math.inf

    def until(self, now: float) -> list[int]:
        """The places of the jobs that are submitted up to an instant, in the order of submission; each once."""
        found = []
        while self._coming and self._coming[0][0] <= now:
            found.append(heapq.heappop(self._coming)[1])
        return found

    def ends(self, place: int, end_s: float) -> None:
        """Record the end of a job: it has ended, or its end is now known."""
        for follower, think_s in self._followers.pop(place, ()):
            submit_s = self.times_s[follower] = max(self.times_s[follower], end_s + think_s)
            heapq.heappush(self._coming, (submit_s, follower))


def linked_starts(
    queue: Queue, links: Links, processors: int, *, backfill: bool, tell: Callable[[int], None] = lambda _: None
) -> tuple[list[float], list[float]]:
    """The start and the submission of each job, by place in the queue; as ``short_way.starts_of``.

    Raises:
        ValueError: a job needs more processors than there are.
    """
    if max(queue.sizes, default=0) > processors:
        raise ValueError("a job is larger than the cluster")
    submissions = Submissions(queue.submits_s, links)
    cluster = _Arriving(queue, processors, submissions, backfill=backfill)
    while True:
        now = min(submissions.next_s, cluster.ends[0][0] if cluster.ends else math.inf)
        if now == math.inf:
            return cluster.started_s, submissions.times_s
        freed = cluster.end_until(now)
        cluster.schedule(now, freed, cluster.arrive(submissions.until(now)))
        tell(len(cluster.places))


class _Arriving(ClusterOfProcessors):
    """A cluster whose jobs are numbered as they arrive, so that the queue is in the order of their submissions.

    Attributes:
        places: by number, the job's place in the queue as it was given.
        started_s: by place, the job's start.
    """

    def __init__(self, queue: Queue, processors: int, submissions: Submissions, *, backfill: bool) -> None:
        self._arrived = Queue([], [], [], [])
        super().__init__(self._arrived, processors)
        self._queue, self._submissions, self._backfills = queue, submissions, backfill
        self.places: list[int] = []
        self.started_s = [math.nan] * len(queue.sizes)

    def arrive(self, places: Sequence[int]) -> range:
        """Number jobs that are submitted now."""
        first, queue, arrived = len(self.places), self._queue, self._arrived
        for place in places:
            self.places.append(place)
            self.started.append(math.nan)
            for given, known in zip(queue, arrived, strict=True):
                known.append(given[place])  # type: ignore[attr-defined]  # lists, as they were made above
        return range(first, len(self.places))

    def _start(self, number: int, now: float) -> None:
        super()._start(number, now)
        place = self.places[number]
        self.started_s[place] = now
        self._submissions.ends(place, now + self._queue.runs_s[place])

    def _may_pass(self, number: int, now: float) -> bool:
        return self._backfills and super()._may_pass(number, now)

    def _backfill_queue(self, now: float) -> None:
        if self._backfills:
            super()._backfill_queue(now)
