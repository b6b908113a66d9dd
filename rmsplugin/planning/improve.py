"""Improvement: other orders than the plain greedy's, of which the cheapest is kept.

The cost of a pool is its dearest action, and every action of every later pool pays it (VEE'09, equations 6 to 8).
Hence a dear action for which nobody waits is better held back, and a bypass better begun early, beside other actions.
Each try builds a whole schedule and is given up as soon as it cannot become the cheapest; their number is bounded.
"""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.planning.bypass import break_cycles
from rmsplugin.planning.moves import Moves
from rmsplugin.planning.pools import Ranking, Schedule, Steering

#: How much all tries together may look at (``Schedule.work``): so much, and so much for each arrival.
_WORK = 8000
_WORK_EACH = 25

#: With small plans this ends first.
_MOST_TRIES = 150


def cheapest(
    moves: Moves, early: frozenset[str] = frozenset(), effort: float = 1.0
) -> tuple[Schedule, tuple[int, int]]:
    """The cheapest schedule found, never dearer than the plain greedy; and how many VMs that suspends to break cycles.

    Args:
        moves: what has to happen.
        early: names of VMs that are considered first where not all fit.
        effort: a factor on how much is tried; 0: the plain greedy.
    """
    search = _Search(moves, Ranking(moves, early), effort)
    search.orders()
    search.early_bypasses()
    cost = -1
    while search.best.cost != cost:
        cost = search.best.cost
        search.caps()
        search.orders()
    return search.best, search.most_asleep


def _worth(schedule: Schedule) -> tuple[int, int, int]:
    """What makes one schedule better than another: its cost; then few actions; then few pools."""
    return schedule.cost, sum(map(len, schedule.pools)), len(schedule.pools)


class _Search:
    """Tries other steerings; ``best`` is the cheapest schedule so far."""

    def __init__(self, moves: Moves, ranking: Ranking, effort: float) -> None:
        self._moves = moves
        self._ranking = ranking
        self._tries = round(_MOST_TRIES * effort)
        self._work = round((_WORK + _WORK_EACH * moves.arrivals) * effort)
        self.best = Schedule(moves, Steering(), ranking)
        self.best.build(break_cycles)
        self.most_asleep = self.best.asleep[0], self.best.asleep[1]

    def _try(self, steering: Steering) -> bool:
        """Whether a steering leads to a cheaper schedule, or to one of fewer actions or pools; that is the best then.

        It may not suspend more VMs for a bypass than the plain greedy, which does so only where no pivot has room: that
        the guests stand still meanwhile is not in the cost.
        """
        if self._is_over:
            return False
        schedule = Schedule(self._moves, steering, self._ranking)
        complete = schedule.build(break_cycles, self.best.cost + 1)
        self._tries -= 1
        self._work -= schedule.work
        if not complete:
            return False
        if _worth(schedule) >= _worth(self.best):
            return False
        if any(mine > most for mine, most in zip(schedule.asleep, self.most_asleep, strict=True)):
            return False
        self.best = schedule
        return True

    @property
    def _is_over(self) -> bool:
        return self._tries <= 0 or self._work <= 0

    def _is_ideal(self) -> bool:
        """Whether every arrival pays its own cost only: no order can be cheaper."""
        return self.best.cost == self._moves.least_cost

    def orders(self) -> None:
        """Prefer arrivals that leave a node on which others wait."""
        if not self._is_ideal() and len(self.best.pools) > 1:
            self._try(replace(self.best.steering, unblock_first=not self.best.steering.unblock_first))

    def early_bypasses(self) -> None:
        """Begin the bypasses that were taken as soon as there is room for them (as in VEE'09 fig. 6)."""
        while self.best.used_ways != self.best.steering.ways:
            if not self._try(replace(self.best.steering, ways=dict(self.best.used_ways))):
                break

    def caps(self) -> None:
        """Hold back the dear actions of each pool in turn; what helps is kept."""
        pool = 0
        while pool < len(self.best.pools) - 1 and not self._is_over and not self._is_ideal():
            steering = self.best.steering
            before = [steering.cap(earlier) for earlier in range(pool)]
            arriving = {self._moves.dearest[step.move] for step in self.best.pools[pool] if step.bypass is None}
            if steering.cap(pool) is not None:
                self._try(replace(steering, caps=(*before, None)))
            for cost in sorted({*arriving, self._moves.departures_cost if pool == 0 else 0, 0}, reverse=True)[1:]:
                self._try(replace(steering, caps=(*before, cost)))
            pool += 1
