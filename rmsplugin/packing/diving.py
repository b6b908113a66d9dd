"""Diving: turns the relaxation into whole numbers of nodes, by fixing some loads and relaxing the rest again."""

from __future__ import annotations

from collections import Counter

import numpy as np

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.classes import Classes, Ints, Load, Loads
from rmsplugin.packing.greedy import complete
from rmsplugin.packing.patterns import Pricer
from rmsplugin.packing.relaxation import Column, Master, Relaxation, whole_prices, worthwhile

#: The number of times after each step that patterns for the rest are looked for: new ones waste less than those for all
#: VMs.
_ROUNDS = 3

#: The least part of the remaining nodes that one step fixes: bounds the number of linear programs.
_STEP = 1 / 15


def dive(classes: Classes, pricer: Pricer, relaxation: Relaxation, usable: Ints, budget: Budget) -> Loads | None:
    """Fix the loads that the relaxation uses most, relax the rest again, and so on; complete greedily after each step.

    Args:
        classes: the problem.
        pricer: finds the patterns.
        relaxation: the beginning; it must have values.
        usable: the number of nodes of each kind that may be used.
        budget: the rest of the limits; at most half of it is used.

    Returns:
        The best of the packings found, if any.
    """
    master = Master(classes, usable)
    master.add(relaxation.columns)
    left, usable, reserve = classes.count.copy(), usable.copy(), budget.left / 2
    fixed: Counter[Column] = Counter()
    best: Counter[Column] | None = None
    values: list[float] | None = relaxation.values
    while values is not None:
        if not _fix(master.columns, values, fixed, left, usable):
            break
        rest = complete(classes, left, usable, budget)
        if rest is not None and (best is None or fixed.total() + sum(rest.values()) < best.total()):
            best = fixed + Counter(rest)
        if not left.any() or budget.exhausted or budget.left < reserve:
            break
        master.reduce(left, usable)
        values = _relax(classes, pricer, master, left, budget)
    return best


def _relax(classes: Classes, pricer: Pricer, master: Master, left: Ints, budget: Budget) -> list[float] | None:
    """Values of the columns for the remaining VMs; None if fractions of columns cannot host them."""
    values = None
    for _ in range(_ROUNDS):
        solved = master.solve(1, budget)
        if solved is None:
            return values
        _, values, duals = solved
        prices = whole_prices(duals[: len(left)])
        offers = [(kind, worth, np.minimum(patterns, left)) for kind, worth, patterns in pricer.price(prices)]
        if not master.add(worthwhile(offers, prices, duals[len(left) :], 1)):
            break
    return values


def _fix(columns: list[Column], values: list[float], fixed: Counter[Column], left: Ints, usable: Ints) -> bool:
    """Fix whole numbers of nodes, and round the largest up until the step is large enough; False if nothing is."""
    before = fixed.total()
    most = max(1, round(sum(values) * _STEP))
    for j, value in enumerate(values):
        _take(columns[j], int(value + 1e-6), fixed, left, usable)
    for j in sorted(range(len(values)), key=lambda j: -(values[j] + 1e-6) % -1.0):
        if fixed.total() - before >= most or not left.any():
            break
        if values[j] % 1.0 > 1e-6:
            _take(columns[j], 1, fixed, left, usable)
    return fixed.total() > before


def _take(column: Column, times: int, fixed: Counter[Column], left: Ints, usable: Ints) -> None:
    """Let up to so many nodes host a load, as far as that many VMs are left."""
    kind, load = column
    for _ in range(min(times, int(usable[kind]))):
        here: Load = tuple((c, n) for c, number in load if (n := min(number, int(left[c]))))
        if not here:
            return
        fixed[kind, here] += 1
        usable[kind] -= 1
        for c, n in here:
            left[c] -= n
