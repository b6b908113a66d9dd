"""Arrivals: the most valuable VMs that can come to a node beside those it keeps, for many rooms at once: a knapsack.

A room has CPUs, memory, and memory that is free at the start, which early arrivals take as well. Early arrivals and
late ones are two knapsacks of two dimensions each, which share the room: one table for each, and the best split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Amounts = npt.NDArray[np.float64]

#: A guard against endless tables: the most entries, which take some hundredths of a second. CPUs get at most so many
#: steps of them.
_MOST_ENTRIES = 100_000
_MOST_CPU_STEPS = 400


@dataclass(frozen=True, slots=True)
class Grid:
    """The steps in which a table counts CPUs and memory, and the demands of each class in such steps.

    Steps are the common divisor of all demands, so that nothing is rounded; or coarser, where a table would be too
    large. Demands are rounded up then, so that what fits into the steps fits; or down, for a relaxation.
    """

    step_c: int
    step_m: int
    cpus: tuple[int, ...]  # by class
    memory: tuple[int, ...]

    @classmethod
    def of(cls, demands: Sequence[tuple[int, int]], most: tuple[int, int], is_relaxed: bool) -> Grid:
        """The grid for classes of these demands (hundredths of a CPU, MiB), and rooms of at most ``most``."""
        step_c = _step([c for c, _ in demands], most[0], _MOST_CPU_STEPS)
        step_m = _step([m for _, m in demands], most[1], _MOST_ENTRIES // (1 + most[0] // step_c))
        slack_c, slack_m = (0, 0) if is_relaxed else (step_c - 1, step_m - 1)
        return cls(
            step_c,
            step_m,
            tuple((c + slack_c) // step_c for c, _ in demands),
            tuple((m + slack_m) // step_m for _, m in demands),
        )


def _step(demands: Sequence[int], most: int, steps: int) -> int:
    divisor = math.gcd(*demands) or 1 + most  # no class demands any
    return divisor if most // divisor <= steps else -(-most // steps)


class Arrivals:
    """The best arrivals for each of some rooms."""

    def __init__(self, grid: Grid, rooms: Ints) -> None:
        """Prepare for rooms: rows of CPUs, memory, and memory that is free at the start, in steps of the grid."""
        self._grid = grid
        self._rooms, self._room_of = np.unique(rooms.reshape(-1, 3), axis=0, return_inverse=True)
        self._room_of = self._room_of.ravel()
        order = np.argsort(-self._rooms[:, 2], kind="stable")  # the room with most early memory first
        self._rooms = self._rooms[order]
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        self._room_of = back[self._room_of]
        self._most_c, self._most_m, self._most_early = (int(most) for most in self._rooms.max(axis=0, initial=0))

    @property
    def entries(self) -> int:
        """The approximate number of table entries that one search looks at."""
        return len(self._grid.memory) * (1 + self._most_c) * (1 + self._most_m)

    def search(self, early: Amounts, late: Amounts) -> Amounts:
        """The value of the best arrivals for each room, with the worth of an arrival by class (0: none comes)."""
        self._early = _Table(self._grid, early, self._most_c, self._most_early)
        self._late = _Table(self._grid, late, self._most_c, self._most_m)
        cpus, memory, at_start = self._rooms.T
        padded = np.concatenate([np.full((self._most_c, 1 + self._most_m), -np.inf), self._late.value]).ravel()
        index = (cpus + self._most_c) * (1 + self._most_m) + memory
        best = np.full(len(self._rooms), -np.inf)
        self._split = np.zeros((len(self._rooms), 2), dtype=np.int64)
        reach = np.searchsorted(-at_start, -np.arange(1 + self._most_early), side="right")
        for c, m in self._early.steps():
            have = slice(0, int(reach[m]))
            value = padded[index[have] - (c * (1 + self._most_m) + m)] + self._early.value[c, m]
            better = value > best[have]
            best[have][better] = value[better]
            self._split[have][better] = c, m
        return best[self._room_of]

    def chosen(self, rooms: Ints) -> tuple[Ints, Ints]:
        """For some rooms, by index: the numbers of VMs of each class that arrive early, and late."""
        at = self._room_of[rooms]
        split = self._split[at]
        return self._early.counts(split), self._late.counts(self._rooms[at, :2] - split)


class _Table:
    """The value of the best multiset of VMs by CPUs and memory, and the last VM of it."""

    def __init__(self, grid: Grid, worth: Amounts, most_c: int, most_m: int) -> None:
        self._grid = grid
        self.value = np.zeros((1 + most_c, 1 + most_m))
        self._last = np.full(self.value.shape, -1, dtype=np.int64)
        for k in np.flatnonzero(worth > 0).tolist():
            c, m = grid.cpus[k], grid.memory[k]
            if c > most_c or m > most_m:
                continue
            before = self.value[: 1 + most_c - c, : 1 + most_m - m]
            after, last = self.value[c:, m:], self._last[c:, m:]
            while (helps := (more := before + worth[k]) > after).any():  # one more of this class
                after[helps] = more[helps]
                last[helps] = k

    def steps(self) -> list[tuple[int, int]]:
        """The amounts of CPUs and memory from which on there is more value; the first amount is 0."""
        is_step = np.ones(self.value.shape, dtype=bool)
        is_step[1:] &= self.value[1:] > self.value[:-1]
        is_step[:, 1:] &= self.value[:, 1:] > self.value[:, :-1]
        return [(int(c), int(m)) for c, m in np.argwhere(is_step)]

    def counts(self, rooms: Ints) -> Ints:
        """The numbers of VMs of each class that fill these rooms best."""
        counts = np.zeros((len(rooms), len(self._grid.memory)), dtype=np.int64)
        rooms = rooms.copy()
        sizes = np.array([self._grid.cpus, self._grid.memory], dtype=np.int64).reshape(2, -1).T
        rows = np.arange(len(rooms))
        while len(rows):
            last = self._last[rooms[rows, 0], rooms[rows, 1]]
            rows, last = rows[last >= 0], last[last >= 0]
            counts[rows, last] += 1
            rooms[rows] -= sizes[last]
        return counts
