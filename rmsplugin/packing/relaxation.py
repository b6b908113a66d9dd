"""Relaxation: the linear program over patterns (Gilmore and Gomory, 1961), by column generation; its proven bound.

The bound does not rest on the floating point of the linear program. Its prices, rounded to whole numbers, give a
Lagrangian bound in whole numbers at any prices; good prices only make it a good one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from ortools.linear_solver.python import model_builder_helper as lp

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.classes import Classes, Floats, Ints, Load
from rmsplugin.packing.patterns import Pricer
from rmsplugin.packing.solver_time import SPENT

#: The cost of one node, in the whole numbers of prices.
_ONE = 1_000_000

#: The part of the limits that is left for the steps after the relaxation.
_RESERVE = 0.5

Column = tuple[int, Load]


@dataclass
class Relaxation:
    """The result of the linear program: the least number of nodes, and the patterns that are worth combining."""

    bound: int
    infeasible: bool = False  # proven: not even fractions of patterns host all VMs
    columns: list[Column] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # the number of nodes that host it, by column; empty if unknown


class Master:
    """The linear program over the patterns known so far; solved by GLOP."""

    def __init__(self, classes: Classes, usable: Ints) -> None:
        self.columns: list[Column] = []
        self._known: set[Column] = set()
        self._classes = classes
        self._model = lp.ModelBuilderHelper()
        self._elements = 0
        self._missing: list[int] = []
        for number in classes.count.tolist():
            row = self._model.add_linear_constraint()
            self._model.set_constraint_lower_bound(row, float(number))
            self._model.set_constraint_upper_bound(row, math.inf)
        for number in usable.tolist():
            row = self._model.add_linear_constraint()
            self._model.set_constraint_lower_bound(row, -math.inf)
            self._model.set_constraint_upper_bound(row, float(number))
        for c in range(len(classes.count)):
            self._missing.append(self._variable(0.0, float(classes.count[c])))
            self._model.add_term_to_constraint(c, self._missing[-1], 1.0)

    def _variable(self, cost: float, most: float) -> int:
        variable = self._model.add_var()
        self._model.set_var_lower_bound(variable, 0.0)
        self._model.set_var_upper_bound(variable, most)
        self._model.set_var_objective_coefficient(variable, cost)
        return variable

    def add(self, columns: Iterable[Column]) -> bool:
        """Add columns that are not known yet; False if all are."""
        before = len(self.columns)
        for column in columns:
            if column not in self._known:
                self._known.add(column)
                self.columns.append(column)
                variable = self._variable(1.0, math.inf)
                kind, load = column
                self._model.add_term_to_constraint(len(self._classes.count) + kind, variable, 1.0)
                for c, number in load:
                    self._model.add_term_to_constraint(c, variable, float(number))
                self._elements += len(load) + 1
        return len(self.columns) > before

    def reduce(self, left: Ints, usable: Ints) -> None:
        """From now on, only this many VMs of each class need hosts, and this many nodes of each kind are usable."""
        for row, number in enumerate(left.tolist()):
            self._model.set_constraint_lower_bound(row, float(number))
        for row, number in enumerate(usable.tolist(), len(left)):
            self._model.set_constraint_upper_bound(row, float(number))

    def solve(self, cost: int, budget: Budget) -> tuple[float, list[float], Floats] | None:
        """Minimise the nodes (cost 1), or the VMs that no node hosts (cost 0); objective, values and duals."""
        for variable in self._missing:
            self._model.set_var_upper_bound(variable, 0.0 if cost else math.inf)
            self._model.set_var_objective_coefficient(variable, 1.0 - cost)
        first = len(self._missing)
        for variable in range(first, first + len(self.columns)):
            self._model.set_var_objective_coefficient(variable, float(cost))
        solver = lp.ModelSolverHelper("glop")
        if budget.clock_s < math.inf:
            solver.set_time_limit_in_seconds(max(budget.clock_s, 0.01))
        with SPENT.running():
            solver.solve(self._model)
        budget.tell_net(solver.wall_time(), solver.status() == lp.SolveStatus.OPTIMAL)
        # Estimated from measurements: a solve costs some passes over the columns for each row.
        if budget.deterministic:
            budget.charge(2e5 + 20 * self._elements + 2 * len(self.columns) * len(self._missing))
        else:
            budget.charge_seconds(solver.wall_time())
            budget.charge(200 * len(self.columns))
        if solver.status() != lp.SolveStatus.OPTIMAL:
            return None
        return (
            solver.objective_value(),
            [float(v) for v in solver.variable_values()[first:]],
            np.asarray(solver.dual_values(), dtype=np.float64),
        )


def relax(classes: Classes, pricer: Pricer, start: Iterable[Column], usable: Ints, budget: Budget) -> Relaxation:
    """Solve the relaxation as far as the budget goes.

    Args:
        classes: the problem.
        pricer: finds the patterns.
        start: patterns to begin with, e.g. those of a heuristic's packing.
        usable: the number of nodes of each kind that may be used.
        budget: the rest of the limits; a part is left for the search for whole numbers.

    Returns:
        The bound holds for packings within ``usable``.
    """
    master = Master(classes, usable)
    master.add(start)
    relaxation = Relaxation(0)
    reserve = budget.left * _RESERVE
    cost = 0  # first: can all VMs be hosted at all?
    while not budget.exhausted and budget.left >= reserve:
        solved = master.solve(cost, budget)
        if solved is None:
            break
        objective, values, duals = solved
        if cost == 0 and objective < 1e-7:
            cost = 1
            continue
        if cost:
            relaxation.values = values
        prices = whole_prices(duals[: len(classes.count)])
        offers = list(pricer.price(prices))
        bound = _bound(classes, usable, prices, {kind: worth for kind, worth, _ in offers}, cost)
        if cost == 0 and bound > 0:
            relaxation.infeasible = True
            break
        relaxation.bound = max(relaxation.bound, bound)
        if cost and relaxation.bound >= math.ceil(objective - 1e-6):
            break
        if not master.add(worthwhile(offers, prices, duals[len(classes.count) :], cost)):
            break
    relaxation.columns = master.columns
    if relaxation.values:
        relaxation.values += [0.0] * (len(master.columns) - len(relaxation.values))
    return relaxation


def whole_prices(duals: Floats) -> Ints:
    """The price of each class, in the whole numbers in which a node costs ``_ONE``."""
    prices: Ints = np.floor(np.maximum(duals, 0.0) * _ONE + 0.5).astype(np.int64)
    return prices


def worthwhile(offers: list[tuple[int, int, Ints]], prices: Ints, duals: Floats, cost: int) -> list[Column]:
    """The patterns that are worth more than a node of their kind costs, including the price of its scarcity (duals)."""
    found = []
    for kind, _, patterns in offers:
        rent = max(-float(duals[kind]), 0.0) * _ONE
        for row in patterns[patterns @ prices > cost * _ONE + rent + 1]:
            found.append((kind, tuple((int(c), int(row[c])) for c in np.flatnonzero(row))))
    return found


def _bound(classes: Classes, usable: Ints, prices: Ints, worths: dict[int, int], cost: int) -> int:
    """The fewest nodes (cost 1), or above 0 if not all VMs can be hosted (cost 0), proven by whole prices >= 0.

    The prices sum up to the payment of all VMs. A node hosts VMs that pay at most ``worth``, so a packing is paid for
    only if all usable nodes together earn the rest of that sum (Lagrangian bound). Or the prices are scaled so that
    no node earns more than it costs (Farley, 1990).
    """
    # Python's integers: no overflow.
    pays = [(int(price), int(number)) for price, number in zip(prices, classes.count, strict=True)]
    paid = sum(price * number for price, number in pays)
    gains = sum(int(usable[kind]) * max(0, worth - cost * _ONE) for kind, worth in worths.items())
    if not cost:
        return paid - gains
    highest = max(_ONE, *worths.values())
    scaled = sum(price * _ONE // highest * number for price, number in pays)
    return -(-max(paid - gains, scaled) // _ONE)
