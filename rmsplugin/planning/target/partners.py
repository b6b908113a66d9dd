"""Partners: the nodes with which others are best placed anew: nodes with most room, and nodes that lose least."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from dataclasses import replace

from rmsplugin.packing.budget import Budget
from rmsplugin.planning.target.counts import Counts
from rmsplugin.planning.target.keep import keep
from rmsplugin.planning.target.replacement import Replacement

#: The work of the knapsack of one node, in steps: about 50 microseconds.
_KNAPSACK = 10_000


class Partners:
    """Orders of all nodes; parts that do not depend on the answer are computed once."""

    def __init__(self, problem: Replacement, budget: Budget) -> None:
        """Begin without any computation; later work is charged to the budget."""
        self._problem, self._budget = problem, budget
        self._losses: dict[tuple[int, int], float] = {}
        self._counts: Counts | None = None

    def of(self, counts: Counts, chosen: Collection[int]) -> list[int]:
        """All other nodes that take VMs, the best first, of each order in turn.

        Args:
            counts: the VMs of all nodes.
            chosen: the nodes whose partners are looked for; the orders are those of the classes that arrive there.
        """
        if counts is not self._counts:
            self._counts, places = counts, self._problem.places
            takes = [i for i, place in enumerate(places) if place.takes]
            self._roomy = _roomy(self._problem, counts, takes)
            self._still = [i for i in takes if not counts.changes(self._problem, i)]
        arriving = {k for i in chosen for k in (*counts.early[i], *counts.late[i])}
        orders = [self._roomy, *(self._by_loss(k) for k in sorted(arriving))]
        turns = itertools.zip_longest(*orders)
        return list(dict.fromkeys(i for turn in turns for i in turn if i is not None and i not in chosen))

    def _by_loss(self, k: int) -> list[int]:
        takers = [i for i in self._still if self._problem.classes[k].may_go(i)]
        return sorted(takers, key=lambda i: (self._loss_mib(i, k), i))

    def _loss_mib(self, i: int, k: int) -> float:
        """The memory that has to leave a node so that it takes one VM of a class; infinite if the node is too small."""
        if (i, k) not in self._losses:
            self._budget.charge(_KNAPSACK)
            place, each = self._problem.places[i], self._problem.classes[k]
            cpus, memory = place.capacity_c - each.centi_cpus, place.capacity_m - each.memory_mib
            smaller = replace(place, capacity_c=cpus, capacity_m=memory)
            fits = min(cpus, memory) >= 0
            self._losses[i, k] = keep(smaller, self._problem.classes, None).bound_mib if fits else math.inf
        return self._losses[i, k]


def _roomy(problem: Replacement, counts: Counts, nodes: list[int]) -> list[int]:
    """First nodes that no other exceeds in room of both kinds, then those for which that holds without these, ..."""
    free = {}
    for i in nodes:
        place = problem.places[i]
        used = [(problem.classes[k], count) for k, count in counts.hosted(i)]
        cpus = place.capacity_c - sum(each.centi_cpus * count for each, count in used)
        memory = place.capacity_m - sum(each.memory_mib * count for each, count in used)
        free[i] = (cpus, min(memory, place.early_m - counts.early_mib(problem, i)))
    left = sorted(free, key=lambda i: (*(-each for each in free[i]), i))
    ordered: list[int] = []
    while left:
        most, behind = -1, []
        for i in left:
            if free[i][1] > most:
                most = free[i][1]
                ordered.append(i)
            else:
                behind.append(i)
        left = behind
    return ordered
