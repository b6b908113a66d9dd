"""Choices: all sets of VMs running or saved on a node that the node may keep, with the room that each set leaves."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmsplugin.packing.budget import Budget
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.level import Level
from rmsplugin.planning.target.replacement import Place, Replacement

Ints = npt.NDArray[np.int64]

#: A guard against exhausting memory: the most choices of all kinds of nodes, with an entry for each class.
_MOST_CHOICES = 150_000

#: The work of listing one choice, in steps.
_STEPS_A_CHOICE = 1_000


class UnsuitableError(Exception):
    """Columns do not suit the problem."""


@dataclass(frozen=True, slots=True)
class _Item:
    """Equal VMs of a node that may stay or resume there."""

    vm_class: int
    count: int
    is_image: bool


@dataclass(frozen=True, slots=True)
class _Kind:
    """Equal nodes. Hundredths of a CPU, MiB."""

    capacity_c: int
    capacity_m: int
    early_m: int
    takes: frozenset[int]  # the classes that may arrive
    items: tuple[_Item, ...]


class Choices:
    """The choices of all kinds of nodes as arrays, with a row for each choice."""

    def __init__(self, problem: Replacement, level: Level, is_relaxed: bool, budget: Budget) -> None:
        """List the choices.

        Args:
            problem: the problem.
            level: the cost of the first pool.
            is_relaxed: whether each VM that resumes on its node may wait for the first pool or not, as it likes.
            budget: the part of the limits that may be used.

        Raises:
            UnsuitableError: there are too many choices, also for the rest of the limits.
        """
        self._problem, self._level, self._is_relaxed = problem, level, is_relaxed
        kinds: dict[_Kind, list[int]] = defaultdict(list)
        for i, place in enumerate(problem.places):
            kinds[self._kind(i, place)].append(i)
        self._kinds, self.members = list(kinds), list(kinds.values())
        rows: list[tuple[int, int, int, int, int]] = []
        self._kept: list[tuple[int, ...]] = []  # by item of the kind
        gone: list[tuple[int, int, int, int]] = []  # choice, whether saved, class, number
        most = min(_MOST_CHOICES, budget.steps_left / _STEPS_A_CHOICE)
        for t, kind in enumerate(self._kinds):
            if len(rows) + math.prod(each.count + 1 for each in kind.items) > most:
                budget.charge(_STEPS_A_CHOICE * len(rows))
                raise UnsuitableError("too many choices to list")
            for kept, row in self._choices(kind):
                for item, count in zip(kind.items, kept, strict=True):
                    if count < item.count:
                        gone.append((len(rows), int(item.is_image), item.vm_class, item.count - count))
                rows.append((t, *row))
                self._kept.append(kept)
        budget.charge(_STEPS_A_CHOICE * len(rows))
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5)
        self.kind_of, self.cost_mib = columns[:, 0], columns[:, 1]
        self.room = columns[:, 2:]  # hundredths of a CPU, MiB, and MiB of it that are free at the start
        self.first = np.searchsorted(self.kind_of, np.arange(len(self._kinds)))  # choice of each kind
        lack = np.zeros((2, len(rows), len(problem.classes)), dtype=np.int64)
        for at, which, k, count in gone:
            lack[which, at, k] += count
        self.residents_gone, self.images_gone = lack  # by choice and class: VMs that are not kept

    @property
    def takes(self) -> list[frozenset[int]]:
        """By kind: the classes that may arrive."""
        return [kind.takes for kind in self._kinds]

    def _kind(self, i: int, place: Place) -> _Kind:
        images: dict[int, int] = defaultdict(int)
        for (k, _), names in place.images.items():
            images[k] += len(names)
        items = [_Item(k, len(names), False) for k, names in sorted(place.residents.items())]
        items += [_Item(k, count, True) for k, count in sorted(images.items())]
        takes = frozenset(k for k, each in enumerate(self._problem.classes) if place.takes and each.may_go(i))
        return _Kind(place.capacity_c, place.capacity_m, place.early_m, takes, tuple(items))

    def _choices(self, kind: _Kind) -> Iterator[tuple[tuple[int, ...], tuple[int, int, int, int]]]:
        """The sets that may be kept, with their costs and the room that they leave: CPUs, memory, early memory."""
        classes = self._problem.classes
        for kept in itertools.product(*(range(each.count, -1, -1) for each in kind.items)):
            cpus, memory, early, cost = kind.capacity_c, kind.capacity_m, kind.early_m, 0
            resume: list[int] = []
            for item, count in zip(kind.items, kept, strict=True):
                each = classes[item.vm_class]
                cpus, memory = cpus - count * each.centi_cpus, memory - count * each.memory_mib
                cost += (item.count - count) * each.memory_mib
                resume += [each.memory_mib] * count if item.is_image else []
            if cpus >= 0 and memory >= 0:
                for wait_mib, taken in self._waits(resume, early, memory):
                    yield kept, (cost + wait_mib, cpus, memory, min(early - taken, memory))

    def _waits(self, resume: list[int], early: int, memory: int) -> Iterator[tuple[int, int]]:
        """The cost of waiting VMs that resume on their node, and the early memory of those that do not wait.

        To wait costs each the same: if so many wait, it is the largest ones.
        """
        if not self._is_relaxed:
            if sum(resume) <= early:
                yield 0, sum(resume)
            return
        ordered = sorted(resume, reverse=True)
        for waiting in range(sum(map(self._level.is_too_dear, ordered)), len(ordered) + 1):
            taken = sum(ordered[waiting:])
            if taken <= early:
                yield waiting * self._level.wait_mib, taken
                if early - taken >= memory:
                    return

    def keep(self, choice: int, place: Place) -> Kept:
        """The VMs that a node of its kind keeps: the vjobs of the saved VMs, in their order."""
        kept = Kept()
        images: dict[int, int] = {}
        for item, count in zip(self._kinds[self.kind_of[choice]].items, self._kept[choice], strict=True):
            (images if item.is_image else kept.residents)[item.vm_class] = count
        for (k, group), names in place.images.items():
            kept.images[k, group] = min(len(names), images[k])
            images[k] -= kept.images[k, group]
        return kept
