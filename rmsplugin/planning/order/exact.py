"""Exact: the cheapest plan of a small switch, by best-first search (A*) over the states between two pools.

A state is the place of each guest, and the cost of the pools so far, which every later action pays (VEE'09,
equations 6 to 8). ``Remaining`` bounds the further cost of a state, and ``Ends`` does when its turn comes. The search
goes through thresholds on the cost of the whole plan. States above a threshold are not even built, and the least bound
of those left out is proven when nothing is left below. Hence there is a bound at any interruption.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rmsplugin.planning.order.ends import Ends
from rmsplugin.planning.order.remaining import Remaining
from rmsplugin.planning.order.successors import Following, following
from rmsplugin.planning.order.switch import NEVER, Hop, State, Switch


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search: the hops of each pool (None: nothing below its limit), and a proven bound.

    ``bound``: no plan costs less, in the unit of ``Switch``; at most the limit that the search was given.
    """

    pools: tuple[tuple[Hop, ...], ...] | None
    bound: int


class _Opened(NamedTuple):
    """An entry of the queue: the one with the least bound on plans by way of its state comes first."""

    least: int
    remaining: int
    number: int
    state: State
    elapsed: int
    spent: int
    parent: _Opened | None
    hops: tuple[Hop, ...]
    is_sure: bool = False  # whether ``Ends`` was asked


def cheapest(switch: Switch, limit: int, work: Callable[[int], bool]) -> Found:
    """Search the cheapest plan of a switch.

    Args:
        switch: the problem.
        limit: only cheaper plans are of interest.
        work: called after each so many candidates; returns whether there is time for more.
    """
    remaining, ends = Remaining(switch), Ends(switch)
    threshold = proven = max(remaining.start(), switch.departures_cost + ends.of(switch.start, 0))
    if not work(ends.built):
        return Found(None, min(proven, limit))
    while proven < limit:
        search = _Search(switch, remaining, ends, min(threshold, limit - 1), work)
        goal = search.find_goal()
        if goal is not None:
            return Found(_hops(goal), goal.spent)
        if search.interrupted:
            return Found(None, max(proven, search.bound))
        proven = search.left_out
        threshold = (proven + limit) // 2
    return Found(None, limit)


def _hops(goal: _Opened) -> tuple[tuple[Hop, ...], ...]:
    pools = []
    entry = goal
    while entry.parent is not None:
        pools.append(entry.hops)
        entry = entry.parent
    return tuple(reversed(pools))


@dataclass(slots=True)
class _Search:
    """One search below one threshold."""

    switch: Switch
    remaining: Remaining
    ends: Ends
    threshold: int
    work: Callable[[int], bool]
    left_out: int = NEVER  # the least bound of all states above the threshold
    bound: int = 0  # of the states in the queue
    interrupted: bool = False
    _seen: dict[State, list[tuple[int, int]]] = field(default_factory=dict)

    def find_goal(self) -> _Opened | None:
        """Return the goal, if there is one within the threshold."""
        switch = self.switch
        least = self.remaining.start()
        queue = [_Opened(least, least, 0, switch.start, 0, 0, None, ())]
        pushed = 0
        while queue:
            entry = heapq.heappop(queue)
            self.bound = entry.least
            is_first = entry.parent is None and bool(switch.departures)
            if not is_first:
                if switch.is_end(entry.state):
                    return entry
                if entry.parent is not None and (entry.elapsed, entry.spent) not in self._seen[entry.state]:
                    continue  # it was reached at less cost meanwhile
                if not entry.is_sure:
                    self.count(self.ends.work)
                    least = max(entry.least, entry.spent + self.ends.of(entry.state, entry.elapsed))
                    if least > self.threshold:
                        self.leave_out(least)
                        continue
                    if least > entry.least:
                        heapq.heappush(queue, entry._replace(least=least, remaining=least - entry.spent, is_sure=True))
                        continue
            for pool in following(switch, entry.state, (entry.elapsed, entry.spent), self, is_first):
                least = pool.spent + (remaining := self.remaining.of(pool.state, pool.elapsed))
                if least > self.threshold:
                    self.leave_out(least)
                elif self._is_new(pool):
                    pushed += 1
                    heapq.heappush(
                        queue,
                        _Opened(least, remaining, -pushed, pool.state, pool.elapsed, pool.spent, entry, pool.hops),
                    )
            if self.interrupted:
                return None
        return None

    def leave_out(self, least: int) -> None:
        """Note the bound of a state above the threshold."""
        self.left_out = min(self.left_out, least)

    def count(self, looked_at: int) -> None:
        """Note the number of candidates looked at."""
        if not self.work(looked_at):
            self.interrupted = True

    def _is_new(self, pool: Following) -> bool:
        """Whether no way to a state was as cheap before; then the way is noted."""
        known = self._seen.setdefault(pool.state, [])
        mine = (pool.elapsed, pool.spent)
        if any(elapsed <= mine[0] and spent <= mine[1] for elapsed, spent in known):
            return False
        known[:] = [each for each in known if not (mine[0] <= each[0] and mine[1] <= each[1])]
        known.append(mine)
        return True
