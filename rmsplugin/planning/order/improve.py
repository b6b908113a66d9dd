"""Improvement: tries orders other than the plain greedy's, and keeps the cheapest.

The cost of a pool is its dearest action, and every action of every later pool pays it (VEE'09, equations 6 to 8).
Hence a dear action for which none waits is better held back, and a bypass is better begun early, beside other actions.
Each try builds a whole schedule and is given up as soon as it cannot become the cheapest; their number is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rmsplugin.planning.order.bypass import DeadlockedError, break_cycles
from rmsplugin.planning.order.moves import NOWHERE, Moves
from rmsplugin.planning.order.pools import ASLEEP, Schedule, Steering
from rmsplugin.planning.order.ranking import Ranking

#: The bound on the work of all tries together, in plain greedies.
_PASSES = 200


@dataclass
class Tries:
    """The bound on the search for cheaper orders (``Schedule.work``); it is counted down."""

    left: float = math.inf


def cheapest(moves: Moves, early: frozenset[str] = frozenset(), tries: Tries | None = None) -> Schedule:
    """The cheapest schedule found, never dearer than the plain greedy.

    Args:
        moves: the moves of the plan.
        early: names of VMs that are considered first if not all fit.
        tries: the bound on tries beside the plain greedy, which counts, too; at most 100 times its work.
    """
    search = _Search(moves, Ranking(moves, early), math.inf if tries is None else tries.left)
    search.orders()
    search.early_bypasses()
    cost = -1
    while search.best.cost != cost:
        cost = search.best.cost
        search.caps()
        search.orders()
        search.other_bypasses()
    if tries is not None:
        tries.left -= search.work
    return search.best


def _worth(schedule: Schedule) -> tuple[int, int, int]:
    """The worth of a schedule: its cost; then few actions; then few pools."""
    return schedule.cost, sum(map(len, schedule.pools)), len(schedule.pools)


class _Search:
    """Tries other steerings; ``best`` is the cheapest schedule so far."""

    def __init__(self, moves: Moves, ranking: Ranking, most_work: float) -> None:
        self._moves = moves
        self._ranking = ranking
        self.best = Schedule(moves, Steering(), ranking)
        self.best.build(break_cycles)
        self.work = self.best.work  # the work of all schedules so far
        self._most_work = min(most_work, _PASSES * self.best.work)
        self._most_asleep = self.best.suspended

    def _try(self, steering: Steering) -> bool:
        """Try a steering, and keep a cheaper schedule, or one of fewer actions or pools. Returns whether it was kept.

        It may not suspend more VMs for a bypass than the plain greedy, which does so only if no pivot has room: the
        cost does not include that guests stand still meanwhile.
        """
        if self._is_over:
            return False
        schedule = Schedule(self._moves, steering, self._ranking)
        try:
            complete = schedule.build(break_cycles, self.best.cost + 1)
        except DeadlockedError:
            complete = False
        self.work += schedule.work
        if not complete:
            return False
        if _worth(schedule) >= _worth(self.best):
            return False
        if any(mine > most for mine, most in zip(schedule.suspended, self._most_asleep, strict=True)):
            return False
        self.best = schedule
        return True

    @property
    def _is_over(self) -> bool:
        return self.work >= self._most_work

    def _is_ideal(self) -> bool:
        """Whether every arrival pays its own cost only: no order can be cheaper."""
        return self.best.cost == self._moves.least_cost

    def orders(self) -> None:
        """Prefer arrivals that leave a node for which others wait."""
        if not self._is_ideal() and len(self.best.pools) > 1:
            self._try(replace(self.best.steering, unblock_first=not self.best.steering.unblock_first))

    def early_bypasses(self) -> None:
        """Begin the chosen bypasses as soon as there is room for them (as in VEE'09 fig. 6)."""
        while self.best.bypasses != self.best.steering.bypasses:
            if not self._try(replace(self.best.steering, bypasses=dict(self.best.bypasses))):
                break

    def other_bypasses(self) -> None:
        """Try each migrating VM as the one to bypass, and leave out each bypass; as long as that helps."""
        if not self.best.bypasses:
            return
        moves = self._moves
        movers = [unit for unit in moves.units if moves.origin[unit] != NOWHERE]
        # A new beginning without any bypass finds plans with fewer of them than the greedy's.
        starts: list[dict[int, int]] = [dict(self.best.bypasses), {}]
        for start in starts:
            ways, improved = start, True
            while improved and not self._is_over:
                improved = False
                for changed in self._neighbours(ways, movers):
                    if self._try(replace(self.best.steering, bypasses=changed)):
                        ways, improved = changed, True
                        break

    def _neighbours(self, ways: dict[int, int], movers: list[int]) -> Iterator[dict[int, int]]:
        for unit in ways:
            yield {other: way for other, way in ways.items() if other != unit}
        for unit in sorted(movers, key=lambda unit: (self._moves.memory[unit], unit)):
            if self._is_over:
                return
            for way in (self._pivot(unit), ASLEEP):
                if ways.get(unit) != way and (way != ASLEEP or self._moves.vjobs[unit].preemptible):
                    yield {**ways, unit: way}

    def _pivot(self, unit: int) -> int:
        """The node with the least room that is enough at the start; asleep if there is none."""
        moves = self._moves
        self.work += len(moves.free)
        apart = (moves.origin[unit], moves.destination[unit])
        rooms = (
            (free, node)
            for node, free in enumerate(moves.free)
            if free >= moves.memory[unit]
            and moves.up[node]
            and node not in apart
            and moves.vjobs[unit].allows(moves.names[node])
        )
        found = min(rooms, default=None)
        return ASLEEP if found is None else found[1]

    def caps(self) -> None:
        """Hold back the dear actions of each pool in turn; keep each change that helps."""
        pool = 0
        while pool < len(self.best.pools) - 1 and not self._is_over and not self._is_ideal():
            steering = self.best.steering
            before = [steering.cap(earlier) for earlier in range(pool)]
            arriving = {self._moves.dearest[step.move] for step in self.best.pools[pool] if step.bypass is None}
            for cost in sorted({*arriving, self._moves.departures_cost if pool == 0 else 0, 0}, reverse=True)[1:]:
                self._try(replace(steering, caps=(*before, cost)))
            pool += 1
