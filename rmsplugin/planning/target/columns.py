"""Columns: all sets of VMs that a single node may hold in the end, priced for all nodes at once.

A column gives the VMs that one node keeps (``choices``) and those that arrive there (``arrivals``). Nodes that are
equal in all of that are one kind.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rmsplugin.packing.budget import Budget
from rmsplugin.planning.target.arrivals import Amounts, Arrivals, Grid, Ints
from rmsplugin.planning.target.choices import Choices, UnsuitableError
from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.level import Level
from rmsplugin.planning.target.replacement import Replacement


class Chosen(NamedTuple):
    """A column for each of some kinds, in rows."""

    choice: Ints
    early: Ints  # arrivals by class
    late: Ints


class Columns:
    """The columns of all kinds of nodes.

    Two rows for each class join the nodes. The first row: as many VMs arrive as have to. The second row, for answers,
    in which all vjobs resume early: no fewer arrive early than resume elsewhere. The second row, for a relaxation, in
    which each VM is early or late as it likes: no more arrive early than are cheap enough for the level.
    """

    def __init__(self, problem: Replacement, level: Level, is_relaxed: bool, budget: Budget) -> None:
        """List the sets that nodes may keep.

        Args:
            problem: the problem.
            level: the cost of the first pool.
            is_relaxed: for a bound on the cost of all plans of the level, else for answers.
            budget: the part of the limits that may be used.

        Raises:
            UnsuitableError: the tables would be too large or endless, or too large for the rest of the limits.
        """
        self.problem, self.level, self.is_relaxed = problem, level, is_relaxed
        classes = problem.classes
        self.unit_mib = math.gcd(level.wait_mib, *(each.memory_mib for each in classes)) or 1  # of all costs
        self.choices = Choices(problem, level, is_relaxed, budget)
        self.times = np.array([len(members) for members in self.choices.members], dtype=float)  # nodes of each kind
        most = [(place.capacity_c, place.capacity_m) for place in problem.places]
        grid = Grid.of(
            [(each.centi_cpus, each.memory_mib) for each in classes],
            (max((c for c, _ in most), default=0), max((m for _, m in most), default=0)),
            is_relaxed,
        )
        if not all(c or m for c, m in zip(grid.cpus, grid.memory, strict=True)):
            raise UnsuitableError("a VM that demands nothing fits everywhere, so often as one likes")
        rooms = self.choices.room // np.array([grid.step_c, grid.step_m, grid.step_m], dtype=np.int64)
        self._parts = []  # nodes that take the same classes: their kinds, their choices, and the arrivals
        for takes in set(self.choices.takes):
            kinds = np.flatnonzero([each == takes for each in self.choices.takes])
            of = np.flatnonzero(np.isin(self.choices.kind_of, kinds))
            may_come = np.isin(np.arange(len(classes)), list(takes))
            self._parts.append((kinds, of, may_come, Arrivals(grid, rooms[of])))
        self._list_rows()

    def _list_rows(self) -> None:
        """The entries of each choice, and of an early arrival, in the second row of its class; and the needs of all."""
        classes, choices, dearest = self.problem.classes, self.choices, self.level.dearest_mib
        self.needs = np.zeros((2, len(classes)))
        for mover in self.problem.movers:
            self.needs[0, mover.vm_class] += 1
            if self.is_relaxed:
                self.needs[1, mover.vm_class] -= not self.level.is_too_dear(mover.cost)
            else:
                self.needs[1, mover.vm_class] += mover.group is not None
        if self.is_relaxed:
            self._sign = -1
            may_leave_early = np.array([not self.level.is_too_dear(each.memory_mib) for each in classes], dtype=bool)
            self._second = choices.residents_gone * may_leave_early
            #: By class: whether there is a second row, because some VM of the class is too dear to be early.
            self.has_second = np.array(
                [dearest is not None and 2 * each.memory_mib > dearest for each in classes], bool
            )
        else:
            self._sign = 1
            self._second = -choices.images_gone
            self.has_second = np.ones(len(classes), dtype=bool)
        self._first = choices.residents_gone + choices.images_gone

    @property
    def entries(self) -> int:
        """The approximate number of table entries that are looked at for one set of prices."""
        return self._first.size + sum(arrivals.entries for *_, arrivals in self._parts)

    def best(self, prices: Amounts) -> tuple[Amounts, Chosen]:
        """The reduced cost of each kind's best column, and these columns.

        All arithmetic is exact for prices that are multiples of a power of 2.

        Args:
            prices: MiB, by row and class.
        """
        choices = self.choices
        reduced = choices.cost_mib + self._first @ prices[0] - self._second @ prices[1]
        late = prices[0] - self.level.wait_mib
        early = prices[0] + self._sign * prices[1]
        early = np.where(early > late, early, 0)  # an arrival that is as good late may as well be late
        for _, of, may_come, arrivals in self._parts:
            reduced[of] -= arrivals.search(early * may_come, late * may_come)
        chosen = np.lexsort((reduced, choices.kind_of))[choices.first]
        coming = np.zeros((2, len(chosen), len(prices[0])), dtype=np.int64)
        for kinds, of, _, arrivals in self._parts:
            coming[:, kinds] = arrivals.chosen(np.searchsorted(of, chosen[kinds]))
        return reduced[chosen], Chosen(chosen, *coming)

    def cost_mib(self, chosen: Chosen) -> Amounts:
        """The cost of each column."""
        late: Ints = chosen.late.sum(axis=1)
        return (self.choices.cost_mib[chosen.choice] + late * self.level.wait_mib).astype(float)

    def rows(self, chosen: Chosen) -> Amounts:
        """The entries of each column in the rows, first all first rows and then all second rows."""
        first = chosen.early + chosen.late - self._first[chosen.choice]
        return np.concatenate([first, self._sign * chosen.early + self._second[chosen.choice]], axis=1).astype(float)

    def counts(self, chosen: Chosen, times: Ints) -> Counts:
        """The counts of columns, each for its number of nodes."""
        counts = Counts.empty(len(self.problem.places))
        counts.early_groups = frozenset(range(len(self.problem.groups)))
        left = [list(members) for members in self.choices.members]
        for at in np.repeat(np.arange(len(times)), times).tolist():
            choice = int(chosen.choice[at])
            i = left[self.choices.kind_of[choice]].pop()
            counts.kept[i] = self.choices.keep(choice, self.problem.places[i])
            for arrivals, come in ((counts.early, chosen.early[at]), (counts.late, chosen.late[at])):
                arrivals[i] = {int(k): int(come[k]) for k in np.flatnonzero(come)}
        return counts
