"""Waiting: the queue as EASY needs it: its head, and the first job behind it that fits and would not delay it.

Jobs of one size (number of processors) are a *lane*. Of two jobs in a lane that would end soon enough, the earlier one
goes first. So a pass looks at one candidate of each lane, found in the logarithm of the lane's length.
"""

from __future__ import annotations

import math
from collections import deque

#: The estimate of a job that has left the lane.
_NEVER = math.inf

#: A time after all estimated ends.
ANY_END_S = 1e300


class Lane:
    """Waiting jobs of one size; finds the first one that would end soon enough.

    A tournament tree over the jobs in queue order: each inner node has the shorter estimate of its two.
    """

    __slots__ = ("_jobs", "_leaves", "_slot", "_tree", "count")

    def __init__(self) -> None:
        self.count = 0
        self._jobs: list[int] = []
        self._slot: dict[int, int] = {}
        self._leaves = 4
        self._tree: list[float] = [_NEVER] * (2 * self._leaves)

    def append(self, job: int, estimate_s: float) -> None:
        """Add a job behind all others."""
        if len(self._jobs) == self._leaves:
            self._rebuild()
        slot = len(self._jobs)
        self._jobs.append(job)
        self._slot[job] = slot
        self.count += 1
        tree = self._tree
        node = self._leaves + slot
        while node and tree[node] > estimate_s:
            tree[node] = estimate_s
            node >>= 1

    def remove(self, job: int) -> None:
        """Remove a job."""
        self.count -= 1
        tree = self._tree
        node = self._leaves + self._slot.pop(job)
        tree[node] = _NEVER
        while node > 1:
            left, right = tree[node & ~1], tree[node | 1]
            node >>= 1
            shorter = left if left < right else right
            if tree[node] == shorter:
                return
            tree[node] = shorter

    def first(self, now: float, end_by_s: float) -> int | None:
        """The first job that ends by then, by its estimate, if it starts now; None if there is none."""
        tree = self._tree
        if now + tree[1] > end_by_s:
            return None
        node, leaves = 1, self._leaves
        while node < leaves:
            node <<= 1
            if now + tree[node] > end_by_s:
                node += 1
        return self._jobs[node - leaves]

    def _rebuild(self) -> None:
        """Forget the jobs that left; make the tree so large that half of it is free."""
        kept = [(job, self._tree[self._leaves + slot]) for job, slot in self._slot.items()]
        while self._leaves < 2 * len(kept):
            self._leaves *= 2
        self._tree = [_NEVER] * (2 * self._leaves)
        self._jobs = [job for job, _ in kept]
        self._slot = {job: slot for slot, job in enumerate(self._jobs)}
        self._tree[self._leaves : self._leaves + len(kept)] = [estimate_s for _, estimate_s in kept]
        for node in range(self._leaves - 1, 0, -1):
            self._tree[node] = min(self._tree[2 * node], self._tree[2 * node + 1])


class Waiting:
    """The waiting jobs, in queue order: jobs are numbers that grow with it."""

    def __init__(self) -> None:
        self.lanes: dict[int, Lane] = {}  # by size; none is empty
        self._order: deque[int] = deque()  # with some jobs that left from the middle
        self._left: set[int] = set()

    def append(self, job: int, size: int, estimate_s: float) -> None:
        """Add a submitted job."""
        lane = self.lanes.get(size)
        if lane is None:
            lane = self.lanes[size] = Lane()
        lane.append(job, estimate_s)
        self._order.append(job)

    def head(self) -> int | None:
        """The first job of the queue."""
        order, left = self._order, self._left
        while order and order[0] in left:
            left.remove(order.popleft())
        return order[0] if order else None

    def remove(self, job: int, size: int) -> None:
        """Remove a job that starts."""
        lane = self.lanes[size]
        lane.remove(job)
        if not lane.count:
            del self.lanes[size]
        if self._order[0] == job:
            self._order.popleft()
        else:
            self._left.add(job)
