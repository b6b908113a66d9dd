"""Greedy packings: quick and mostly good; they prove only an upper bound on the number of nodes.

First fit in several orders, and filling node after node by dot product (Panigrahy, Talwar, Uyeda and Wieder,
"Heuristics for vector bin packing", 2011). All of them work on classes: equal VMs are placed in one step.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rmsplugin.packing.budget import CALL, Budget
from rmsplugin.packing.classes import Classes, Floats, Ints, Loads
from rmsplugin.packing.ruled import Bools


def first_fit(classes: Classes, runs: Iterable[tuple[int, int]], order: Ints) -> Loads | None:
    """Place runs of equal VMs in the given order, each VM on the first node with room.

    Args:
        classes: the problem.
        runs: class and number of VMs, in the order in which they are placed.
        order: the nodes, by index, in the order in which they are tried.
    """
    kinds = classes.kind_of[order]
    free = classes.capacity[kinds].T.copy()  # by dimension, each in one piece of memory
    everywhere: Bools = np.asarray(classes.allowed.all(axis=1))
    hosted: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for c, number in runs:
        demand = classes.demand[c]
        if number == 1:  # the common case if all differ: no need to count
            room = (free[0] >= demand[0]) & (free[1] >= demand[1])
            if not everywhere[c]:
                room &= classes.allowed[c][kinds]
            i = int(room.argmax()) if room.any() else -1
            if i < 0:
                return None
            free[:, i] -= demand
            hosted[i][c] += 1
            continue
        fits = np.where(classes.allowed[c][kinds], number, 0)
        for dimension in np.flatnonzero(demand):
            fits = np.minimum(fits, free[dimension] // demand[dimension])
        before = np.cumsum(fits) - fits
        take = np.clip(number - before, 0, fits)
        if take.sum() < number:
            return None
        free -= demand[:, None] * take
        for i in np.flatnonzero(take).tolist():
            hosted[i][c] += int(take[i])
    return Counter((int(kinds[i]), tuple(sorted(load.items()))) for i, load in hosted.items())


def fill(
    classes: Classes, kinds: Sequence[int], weight: Floats, left: Ints | None = None, usable: Ints | None = None
) -> Loads | None:
    """Fill node after node with the VMs that use its rest best; equal nodes get equal loads while these last.

    Args:
        classes: the problem.
        kinds: the kinds of nodes in the order in which they are filled.
        weight: the worth of a unit of each dimension.
        left: the number of VMs of each class to be placed; None: all.
        usable: the number of empty nodes of each kind; None: all.
    """
    left = (classes.count if left is None else left).copy()
    loads: Counter[tuple[int, tuple[tuple[int, int], ...]]] = Counter()
    for kind in kinds:
        available = int((classes.available if usable is None else usable)[kind])
        while available and left.any():
            load = _fill_one(classes, kind, left, weight)
            if not load:
                break
            times = min(available, *(int(left[c]) // n for c, n in load.items()))
            for c, n in load.items():
                left[c] -= n * times
            loads[kind, tuple(sorted(load.items()))] += times
            available -= times
    return None if left.any() else loads


def _fill_one(classes: Classes, kind: int, left: Ints, weight: Floats) -> dict[int, int]:
    """The load of one empty node of a kind, of the VMs left."""
    free = classes.capacity[kind].copy()
    left = np.where(classes.allowed[:, kind], left, 0)
    load: dict[int, int] = {}
    worth = classes.demand * weight**2
    while True:
        fits = (left > 0) & (classes.demand <= free).all(axis=1)
        if not fits.any():
            return load
        c = int(np.where(fits, worth @ free, -1.0).argmax())
        # All at once if nothing limits their number: each step would choose the same again.
        n = int(left[c]) if not classes.demand[c].any() else 1
        load[c] = load.get(c, 0) + n
        left[c] -= n
        free -= n * classes.demand[c]


def plain(classes: Classes) -> Loads | None:
    """FFD as in the papers: by memory, then CPU, then name, on the nodes in the given order."""
    return first_fit(classes, classes.runs, np.arange(len(classes.kind_of)))


def heuristics(classes: Classes, budget: Budget) -> Iterator[Loads | None]:
    """Yield the answers of several heuristics, plain FFD first, as far as half of the budget goes."""
    reserve = budget.left / 2
    step = len(classes.count) * (CALL + len(classes.kind_of))
    picks = min(int(classes.count.sum()), 50 * len(classes.count)) * (CALL + len(classes.count))
    budget.charge(step * len(classes.runs) / max(len(classes.count), 1))
    yield plain(classes)
    scale, scarcity = _scale(classes), _scarcity(classes)
    kinds = largest_first(classes)
    order = np.argsort(np.argsort(kinds)[classes.kind_of], kind="stable")
    for weight in (scarcity, np.ones(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])):
        for restricted_first in (False, True) if not classes.allowed.all() else (False,):
            budget.charge(step)
            if budget.left < reserve:
                return
            yield first_fit(classes, _sorted_runs(classes, weight / scale, restricted_first), order)
        if weight.all():
            budget.charge(picks)
            if budget.left < reserve:
                return
            yield fill(classes, kinds, weight / scale)


def complete(classes: Classes, left: Ints, usable: Ints, budget: Budget) -> Loads | None:
    """Place the rest of each class on empty nodes, as many of each kind as are usable."""
    budget.charge(min(int(left.sum()), 50 * len(left)) * (CALL + len(left)))
    return fill(classes, largest_first(classes), np.maximum(_scarcity(classes), 1e-9) / _scale(classes), left, usable)


def largest_first(classes: Classes) -> list[int]:
    """The kinds of nodes by descending capacity, above all of the scarce dimension."""
    size = (classes.capacity / _scale(classes)) @ np.maximum(_scarcity(classes), 1e-9)
    kinds: list[int] = np.argsort(-size, kind="stable").tolist()
    return kinds


def _scale(classes: Classes) -> Floats:
    """The mean capacity of the kinds, to compare the dimensions."""
    return np.maximum(classes.capacity.mean(axis=0), 1.0) if len(classes.capacity) else np.ones(2)


def _scarcity(classes: Classes) -> Floats:
    """The VMs' demand as a part of all nodes, by dimension."""
    scarcity: Floats = classes.total / np.maximum((classes.capacity * classes.available[:, None]).sum(axis=0), 1)
    return scarcity


def _sorted_runs(classes: Classes, weight: Floats, restricted_first: bool) -> list[tuple[int, int]]:
    """All VMs by descending weighted demand; on request, VMs that the fewest nodes may host come first."""
    worth = classes.demand @ weight
    hosts = classes.allowed @ classes.available if restricted_first else np.zeros(len(worth), dtype=np.int64)
    return [(int(c), int(classes.count[c])) for c in np.lexsort((-classes.demand[:, 1], -worth, hosts))]
