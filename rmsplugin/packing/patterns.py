"""Patterns: possible loads of one node, as numbers of VMs of each class; all maximal ones, or the one worth most.

A pattern is maximal if no further VM fits. Only these are needed: a node may have room for VMs that do not come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from ortools.sat.python import cp_model

from rmsplugin.packing.budget import CALL, VARIABLE, Budget
from rmsplugin.packing.classes import Classes, Ints

#: The most elements of the arrays of all patterns that are kept: bounds the memory.
_MOST_ELEMENTS = 6_000_000

#: States times items of a table of dynamic programming: above that CP-SAT prices instead.
_MOST_STATES = 30_000_000

#: The number of patterns that a kind of node offers in each round of pricing.
_OFFERED = 8


def maximal(classes: Classes, kind: int, most_elements: int, budget: Budget) -> Ints | None:
    """All maximal patterns of a kind of nodes, one a row; None if there are too many, or there is no time for them."""
    most = classes.most[:, kind]
    members = np.flatnonzero(most)
    # The largest first: few choices for them, and the small ones fill up the rest.
    members = members[np.lexsort((-classes.demand[members, 0], -classes.demand[members, 1]))]
    rows = np.zeros((1, len(members)), dtype=np.int32)
    free = classes.capacity[kind][None, :].copy()
    for j, c in enumerate(members):
        fits = np.full(len(rows), most[c])
        for dimension in np.flatnonzero(classes.demand[c]):
            fits = np.minimum(fits, free[:, dimension] // classes.demand[c, dimension])
        elements = int(fits.sum() + len(fits)) * len(members)
        if elements > most_elements or budget.exhausted:
            return None
        budget.charge(elements / 3)  # they are copied, which is less than a step
        chosen = np.arange((fits + 1).sum()) - np.repeat(np.cumsum(fits + 1) - fits - 1, fits + 1)
        rows, free = np.repeat(rows, fits + 1, axis=0), np.repeat(free, fits + 1, axis=0)
        rows[:, j] = chosen
        free -= chosen[:, None] * classes.demand[c]
    full = np.ones(len(rows), dtype=np.bool_)
    for j, c in enumerate(members):
        full &= (rows[:, j] == most[c]) | (free < classes.demand[c]).any(axis=1)
    patterns = np.zeros((int(full.sum()), len(most)), dtype=np.int64)
    patterns[:, members] = rows[full]
    return patterns


class Pricer:
    """Finds, for each kind of nodes, patterns whose VMs are worth most at given prices, with a bound on their worth."""

    def __init__(self, classes: Classes, budget: Budget, most_elements: int = _MOST_ELEMENTS) -> None:
        """List all maximal patterns of as many kinds as memory allows (elements of arrays)."""
        self._classes = classes
        self._budget = budget
        self.listed: dict[int, Ints] = {}
        left = most_elements
        for kind in range(len(classes.available)):
            patterns = maximal(classes, kind, left, budget)
            budget.charge(CALL * len(classes.count))
            if patterns is not None:
                self.listed[kind] = patterns
                left -= patterns.size
                budget.charge(20 * patterns.size)
            else:
                left //= 2  # each failure costs time; with many kinds that must come to an end
        alike: defaultdict[bytes, list[int]] = defaultdict(list)
        for kind in range(len(classes.available)):
            if kind not in self.listed:
                alike[classes.allowed[:, kind].tobytes()].append(kind)
        self._alike = list(alike.values())  # kinds that the same VMs may use share a table
        positive = np.where(classes.demand > 0, classes.demand, 0)
        self._unit = np.array([max(math.gcd(*positive[:, d].tolist()), 1) for d in range(positive.shape[1])])

    @property
    def complete(self) -> int | None:
        """The number of maximal patterns, if they are all listed."""
        if len(self.listed) < len(self._classes.available):
            return None
        return sum(len(patterns) for patterns in self.listed.values())

    def price(self, prices: Ints) -> Iterator[tuple[int, int, Ints]]:
        """Yield each kind, an upper bound on the worth of its patterns at these prices (exact mostly), and the best.

        Prices are whole numbers, so that conclusions from the bound are proven, and free of rounding.
        """
        for kind, patterns in self.listed.items():
            worth = patterns @ prices
            self._budget.charge(patterns.size + 2 * CALL)
            best = np.argpartition(-worth, min(_OFFERED, len(worth) - 1))[:_OFFERED]
            yield kind, int(worth.max()), patterns[best]
        for kinds in self._alike:
            yield from self._by_table(kinds, prices)

    def _by_table(self, kinds: list[int], prices: Ints) -> Iterator[tuple[int, int, Ints]]:
        """Price kinds that the same VMs may use with one table of dynamic programming, if it is not too large."""
        units = self._classes.demand // self._unit
        capacity = self._classes.capacity[kinds] // self._unit
        size = np.minimum(capacity.max(axis=0), (units * self._classes.count[:, None]).sum(axis=0)) + 1
        most = self._classes.most[:, kinds].max(axis=1)
        packs = [(int(c), n) for c in np.flatnonzero((most > 0) & (prices > 0)) for n in _packs(int(most[c]))]
        if int(size.prod()) * len(packs) > _MOST_STATES:
            for kind in kinds:
                yield self._by_solver(kind, prices)
            return
        self._budget.charge((int(size.prod()) + 2 * CALL) * len(packs))
        table = np.zeros(tuple(size), dtype=np.int64)
        taken = []
        for c, n in packs:
            a, b = (units[c] * n).tolist()
            better = np.zeros(tuple(size), dtype=np.bool_)
            if a < size[0] and b < size[1]:
                offer = table[: size[0] - a, : size[1] - b] + n * prices[c]
                better[a:, b:] = offer > table[a:, b:]
                table[a:, b:] = np.maximum(offer, table[a:, b:])
            taken.append(better)
        for kind, room in zip(kinds, capacity, strict=True):
            a, b = np.minimum(room, size - 1).tolist()
            worth = int(table[a, b])
            pattern = np.zeros((1, len(most)), dtype=np.int64)
            for (c, n), better in zip(reversed(packs), reversed(taken), strict=True):
                if better[a, b]:
                    pattern[0, c] += n
                    a, b = a - int(units[c, 0]) * n, b - int(units[c, 1]) * n
            yield kind, worth, np.minimum(pattern, self._classes.most[:, [kind]].T)

    def _by_solver(self, kind: int, prices: Ints) -> tuple[int, int, Ints]:
        most = self._classes.most[:, kind]
        model = cp_model.CpModel()
        members = np.flatnonzero((most > 0) & (prices > 0)).tolist()
        numbers = [model.new_int_var(0, int(most[c]), "") for c in members]
        for d in range(self._classes.demand.shape[1]):
            demand = self._classes.demand[members, d].tolist()
            model.add(cp_model.LinearExpr.weighted_sum(numbers, demand) <= int(self._classes.capacity[kind, d]))
        model.maximize(cp_model.LinearExpr.weighted_sum(numbers, prices[members].tolist()))
        self._budget.charge(VARIABLE * len(members))
        solver, status = self._budget.solve(model, 0.1)
        pattern = np.zeros((1, len(most)), dtype=np.int64)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return kind, int((most * prices).sum()), pattern
        pattern[0, members] = [solver.value(number) for number in numbers]
        return kind, math.ceil(solver.best_objective_bound - 1e-6), pattern


def _packs(number: int) -> Iterator[int]:
    """Split a number into few parts, whose sums give every number up to it: 1, 2, 4, ... and the rest."""
    pack = 1
    while number > 0:
        yield min(pack, number)
        number -= pack
        pack *= 2
