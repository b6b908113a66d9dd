"""Columns: all that a single node may hold in the end, priced for all nodes at once.

A column says what one node keeps and what arrives there. What it keeps is one of few choices, all of which are listed;
what arrives beside that is a knapsack of the room that is left, the same for all nodes, so that one table of the best
arrivals by room serves them all. Nodes that are equal in all of that are one kind.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.node_terms import Level
from rmsplugin.planning.target.replacement import Place, Replacement

Ints = npt.NDArray[np.int64]
Amounts = npt.NDArray[np.float64]

#: Beyond so many entries a table takes longer than what it is good for: choices of all kinds, and rooms of a node.
_MOST_ENTRIES = 100_000


#: A unit of what nobody demands: no node has so much.
_ALL = 1 << 40


class UnsuitableError(Exception):
    """The problem is not one for columns."""


@dataclass(frozen=True, slots=True)
class Prices:
    """By class, in MiB: what it is worth that a VM arrives, and that it does so early, or late; what early costs more.

    They are the dual values of the rows of ``planning.generation``.
    """

    arrival: Amounts
    early: Amounts
    late: Amounts
    dear: Amounts


@dataclass(frozen=True, slots=True)
class Column:
    """A choice of what a node keeps (by index), and how many VMs of each class arrive there, early and late."""

    choice: int
    early: tuple[int, ...]
    late: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """Equal VMs of a node that may stay or resume there."""

    vm_class: int
    count: int
    is_image: bool
    is_late: bool = False  # of a vjob that resumes late


@dataclass(frozen=True, slots=True)
class _Kind:
    """Equal nodes, in units."""

    cpus: int
    memory: int
    early: int  # memory that is free at the start
    takes: frozenset[int]  # classes that may arrive
    items: tuple[_Item, ...]


class Columns:
    """The choices of all kinds of nodes as arrays, and the best column of each kind at given prices."""

    def __init__(self, problem: Replacement, level: Level, early_groups: frozenset[int] | None) -> None:
        """List the choices.

        Args:
            problem: what is asked.
            level: what the first pool costs.
            early_groups: vjobs that resume early, all others resume late; None: each VM does as it likes, which no
                vjob may, so that the answers are a relaxation.

        Raises:
            UnsuitableError: the tables would be too large, or without end.
        """
        classes = problem.classes
        if not all(each.memory_mib or each.centi_cpus for each in classes):
            raise UnsuitableError("a VM that demands nothing fits everywhere, so often as one likes")
        self.problem, self.level, self._early_groups = problem, level, early_groups
        self.unit = math.gcd(level.wait_mib, *(each.memory_mib for each in classes)) or _ALL
        self._unit_c = math.gcd(*(each.centi_cpus for each in classes)) or _ALL
        self._memory = [each.memory_mib // self.unit for each in classes]
        self._cpus = [each.centi_cpus // self._unit_c for each in classes]
        kinds: dict[_Kind, list[int]] = defaultdict(list)
        for i, place in enumerate(problem.places):
            kinds[self._kind(i, place)].append(i)
        self._kinds, self.members = list(kinds), list(kinds.values())
        self._shape = tuple(1 + max(getattr(kind, name) for kind in kinds) for name in ("cpus", "memory", "early"))
        if math.prod(self._shape) * max(1, len(classes)) > 10 * _MOST_ENTRIES:
            raise UnsuitableError("too many choices for one table")
        self.may_leave_early = np.array([not self._is_late(k) for k in range(len(classes))])
        self._list_choices()

    @property
    def size(self) -> int:
        """Entries of the tables that are looked at for one set of prices."""
        return len(self.cost) * len(self._memory) + int(math.prod(self._shape)) * len(self._memory)

    @property
    def is_relaxed(self) -> bool:
        """Whether VMs of one vjob may be early and late."""
        return self._early_groups is None

    def is_early(self, group: int) -> bool:
        """Whether a vjob resumes early, as far as that is known."""
        return self._early_groups is None or group in self._early_groups

    def _kind(self, i: int, place: Place) -> _Kind:
        classes = self.problem.classes
        images: Counter[tuple[int, bool]] = Counter()
        for (k, group), names in place.images.items():
            images[k, not self.is_early(group)] += len(names)
        items = [_Item(k, len(names), False) for k, names in sorted(place.residents.items())]
        items += [_Item(k, count, True, is_late) for (k, is_late), count in sorted(images.items())]
        return _Kind(
            place.capacity_c // self._unit_c,
            place.capacity_m // self.unit,
            min(place.early_m, place.capacity_m) // self.unit,
            frozenset(k for k, each in enumerate(classes) if place.takes and each.may_go(i)),
            tuple(items),
        )

    def _list_choices(self) -> None:
        """For every choice: its kind, its cost in MiB, the room that it leaves, and by class what it does not keep."""
        rows: list[tuple[int, int, int, int, int]] = []
        self._kept: list[tuple[int, ...]] = []  # by item
        self.gone: list[list[tuple[int, int]]] = []
        lacks: list[tuple[int, int, int, int]] = []  # choice, which VMs, class, number
        for t, kind in enumerate(self._kinds):
            for kept, row in self._choices(kind):
                for item, count in zip(kind.items, kept, strict=True):
                    if count < item.count:
                        which = 1 + item.is_late if item.is_image else 0
                        lacks.append((len(rows), which, item.vm_class, item.count - count))
                rows.append((t, *row))
                self._kept.append(kept)
            if len(rows) > _MOST_ENTRIES:
                raise UnsuitableError("too many choices for one table")
        self.kind_of, self.cost, *self._left = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        self._first = np.searchsorted(self.kind_of, np.arange(len(self._kinds)))
        lack = np.zeros((3, len(rows), len(self._memory)), dtype=np.int64)
        for at, which, k, count in lacks:
            lack[which, at, k] += count
        self.residents_gone, self.early_gone, self.late_gone = lack

    def _choices(self, kind: _Kind) -> Iterator[tuple[tuple[int, ...], tuple[int, int, int, int]]]:
        """What may be kept, with its cost and the room that it leaves: CPUs, memory, early memory."""
        if math.prod((each.count + 1) for each in kind.items) > _MOST_ENTRIES:
            raise UnsuitableError("too many choices for one table")
        for kept in itertools.product(*(range(each.count, -1, -1) for each in kind.items)):
            cpus, memory, early, cost = kind.cpus, kind.memory, kind.early, 0
            waiting: list[range] = []
            for item, count in zip(kind.items, kept, strict=True):
                each = self._memory[item.vm_class]
                cpus, memory = cpus - count * self._cpus[item.vm_class], memory - count * each
                cost += (item.count - count) * each * self.unit
                if item.is_late:
                    cost += count * self.level.wait_mib
                elif item.is_image:
                    early -= count * each
                    waiting.append(self._may_wait(item.vm_class, count))
            if cpus < 0 or memory < 0:
                continue
            images = [item.vm_class for item in kind.items if item.is_image and not item.is_late]
            for waits in itertools.product(*waiting):
                room = early + sum(self._memory[k] * count for k, count in zip(images, waits, strict=True))
                if room >= 0:
                    yield kept, (cost + sum(waits) * self.level.wait_mib, cpus, memory, min(room, memory))

    def _may_wait(self, k: int, count: int) -> range:
        """How many of so many VMs that resume locally may wait for the first pool."""
        if self._early_groups is not None:
            return range(1)
        return range(count, count + 1) if self._is_late(k) else range(count + 1)

    def _is_late(self, k: int) -> bool:
        return self.level.is_too_dear(self.problem.classes[k].memory_mib)

    def best(self, prices: Prices) -> tuple[Amounts, list[Column]]:
        """The reduced cost of each kind's best column, and these columns.

        All arithmetic is exact for prices that are multiples of a power of 2.
        """
        reduced = self.cost - np.zeros(len(self.cost))
        reduced += (self.residents_gone + self.early_gone + self.late_gone) @ prices.arrival
        reduced += self.early_gone @ prices.early
        reduced += self.late_gone @ prices.late - self.residents_gone @ (prices.dear * self.may_leave_early)
        tables = {}
        for takes in {kind.takes for kind in self._kinds}:
            value, last = self._arrivals(prices, takes)
            tables[takes] = last
            of = np.array([kind.takes == takes for kind in self._kinds])[self.kind_of]
            reduced[of] -= value[tuple(left[of] for left in self._left)]
        chosen = np.lexsort((reduced, self.kind_of))[self._first]
        return reduced[chosen], [self._column(int(at), tables[self._kinds[self.kind_of[at]].takes]) for at in chosen]

    def _arrivals(self, prices: Prices, takes: frozenset[int]) -> tuple[Amounts, Ints]:
        """By room (CPUs, memory, early memory): the value of the best arrivals, and the last of these (-1: none)."""
        value, last = np.zeros(self._shape), np.full(self._shape, -1, dtype=np.int64)
        for k in sorted(takes):
            cpus, memory = self._cpus[k], self._memory[k]
            for late, worth in enumerate((prices.early[k] - prices.dear[k], prices.late[k] - self.level.wait_mib)):
                size = (cpus, memory, 0 if late else memory)
                if prices.arrival[k] + worth <= 0 or not any(size):
                    continue
                before = tuple(slice(0, max(0, most - each)) for most, each in zip(self._shape, size, strict=True))
                after = tuple(slice(each, None) for each in size)
                while True:  # once more of this class, as long as that helps
                    more = value[before] + (prices.arrival[k] + worth)
                    helps = more > value[after]
                    if not helps.any():
                        break
                    value[after][helps] = more[helps]
                    last[after][helps] = 2 * k + late
        return value, last

    def _column(self, at: int, last: Ints) -> Column:
        arrivals = [[0] * len(self._memory) for _ in range(2)]
        cpus, memory, early = (int(left[at]) for left in self._left)
        while (step := int(last[cpus, memory, early])) >= 0:
            k, late = divmod(step, 2)
            arrivals[late][k] += 1
            cpus, memory = cpus - self._cpus[k], memory - self._memory[k]
            early -= 0 if late else self._memory[k]
        return Column(at, tuple(arrivals[0]), tuple(arrivals[1]))

    def counts(self, chosen: list[tuple[Column, int]]) -> Counts:
        """The counts of columns, each so often; one for every node."""
        counts = Counts.empty(len(self.problem.places))
        left = [list(members) for members in self.members]
        for column, times in chosen:
            t = int(self.kind_of[column.choice])
            for _ in range(times):
                i = left[t].pop()
                counts.kept[i] = self._keep(self.problem.places[i], self._kinds[t], self._kept[column.choice])
                counts.early[i] = {k: count for k, count in enumerate(column.early) if count}
                counts.late[i] = {k: count for k, count in enumerate(column.late) if count}
        counts.early_groups = self._early_groups or frozenset()
        return counts

    def _keep(self, place: Place, kind: _Kind, chosen: tuple[int, ...]) -> Kept:
        """Say of which vjobs the kept images are: in their order."""
        kept = Kept()
        images: dict[tuple[int, bool], int] = {}
        for item, count in zip(kind.items, chosen, strict=True):
            if item.is_image:
                images[item.vm_class, item.is_late] = count
            else:
                kept.residents[item.vm_class] = count
        for (k, group), names in place.images.items():
            key = (k, not self.is_early(group))
            kept.images[k, group] = min(len(names), images[key])
            images[key] -= kept.images[k, group]
        return kept
