"""The two integer programs: loads on numbers of nodes of each kind, and numbers of each class on each node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from rmsplugin.packing.budget import VARIABLE, Budget
from rmsplugin.packing.classes import Classes, Ints, Loads
from rmsplugin.packing.relaxation import Column


@dataclass(frozen=True, slots=True)
class Hosted:
    """The solver's result: loads, and the least number of nodes that the model needs."""

    loads: Loads | None
    bound: int  # more nodes than requested if the model has no solution


@dataclass(frozen=True, slots=True)
class Wanted:
    """The numbers of nodes that are of interest, and whether any of them suffices."""

    at_least: int
    at_most: int
    any: bool = False


def combine(
    classes: Classes, columns: Sequence[Column], around: Sequence[float], wanted: Wanted, budget: Budget, share: float
) -> Hosted:
    """Combine loads so that all VMs are hosted, on the fewest nodes.

    Args:
        classes: the problem.
        columns: the kinds of nodes and their loads.
        around: solution of the relaxation, by column, near which to stay; empty: anywhere.
        wanted: the numbers of nodes of interest.
        budget: the rest of the limits.
        share: the part of it that may be used.

    Returns:
        The bound holds for combinations of these columns, and only if ``around`` is empty.
    """
    usable = classes.usable(wanted.at_most)
    budget.charge(2 * VARIABLE * sum(len(load) + 1 for _, load in columns))
    model = cp_model.CpModel()
    numbers = []
    for j, (kind, load) in enumerate(columns):
        most = max((-(-int(classes.count[c]) // n) for c, n in load), default=0)
        least, most = 0, min(most, int(usable[kind]))
        if around:
            least, most = min(most, max(0, math.floor(around[j]) - 2)), min(most, math.ceil(around[j]) + 2)
        numbers.append(model.new_int_var(least, most, ""))
        if around:
            model.add_hint(numbers[-1], min(most, max(least, round(around[j]))))
    hosted: list[tuple[list[cp_model.IntVar], list[int]]] = [([], []) for _ in classes.count]
    of_kind: list[list[cp_model.IntVar]] = [[] for _ in usable]
    for (kind, load), number in zip(columns, numbers, strict=True):
        of_kind[kind].append(number)
        for c, n in load:
            hosted[c][0].append(number)
            hosted[c][1].append(n)
    for c, (variables, counts) in enumerate(hosted):
        model.add(cp_model.LinearExpr.weighted_sum(variables, counts) >= int(classes.count[c]))
    for kind, variables in enumerate(of_kind):
        model.add(cp_model.LinearExpr.sum(variables) <= int(usable[kind]))
    solver, answer = _solve(model, numbers, wanted, budget, share)
    if solver is None:
        return answer
    loads = Counter({column: solver.value(number) for column, number in zip(columns, numbers, strict=True)})
    return Hosted(+loads, answer.bound)


def spread(classes: Classes, wanted: Wanted, budget: Budget) -> Hosted:
    """Give for each node the number of VMs of each class on it: for few nodes, and many patterns."""
    usable = classes.usable(wanted.at_most)
    budget.charge(3 * VARIABLE * spread_size(classes, wanted.at_most))
    model = cp_model.CpModel()
    used: list[cp_model.IntVar] = []
    hosted: list[list[cp_model.IntVar]] = [[] for _ in classes.count]
    nodes: list[tuple[int, list[tuple[int, cp_model.IntVar]]]] = []
    for kind, number in enumerate(usable.tolist()):
        before: cp_model.LinearExprT | None = None
        for _ in range(number):
            used.append(model.new_bool_var(""))
            load = [(c, model.new_int_var(0, int(classes.most[c, kind]), "")) for c in _members(classes, kind)]
            nodes.append((kind, load))
            for c, variable in load:
                hosted[c].append(variable)
            amounts = [_amount(classes, load, dimension) for dimension in range(classes.demand.shape[1])]
            for amount, capacity in zip(amounts, classes.capacity[kind].tolist(), strict=True):
                model.add(amount <= capacity * used[-1])
            # VMs without demand make a node used, too.
            model.add(cp_model.LinearExpr.sum([v for _, v in load]) <= int(classes.count.sum()) * used[-1])
            if before is not None:
                model.add(before >= amounts[-1])  # equal nodes are interchangeable: the fullest first
                model.add_implication(used[-1], used[-2])
            before = amounts[-1]
    for c, variables in enumerate(hosted):
        model.add(cp_model.LinearExpr.sum(variables) == int(classes.count[c]))
    solver, answer = _solve(model, used, wanted, budget, 1.0)
    if solver is None:
        return answer
    loads = Counter((kind, tuple((c, n) for c, v in load if (n := solver.value(v)))) for kind, load in nodes)
    return Hosted(Counter({key: n for key, n in loads.items() if key[1]}), answer.bound)


def spread_size(classes: Classes, at_most: int) -> int:
    """The number of variables that ``spread`` needs."""
    return int(((classes.most > 0).sum(axis=0) * classes.usable(at_most)).sum())


def _members(classes: Classes, kind: int) -> list[int]:
    members: list[int] = np.flatnonzero(classes.most[:, kind]).tolist()
    return members


def _amount(classes: Classes, load: list[tuple[int, cp_model.IntVar]], dimension: int) -> cp_model.LinearExprT:
    demand: Ints = classes.demand[[c for c, _ in load], dimension]
    return cp_model.LinearExpr.weighted_sum([v for _, v in load], demand.tolist())


def _solve(
    model: cp_model.CpModel, nodes: list[cp_model.IntVar], wanted: Wanted, budget: Budget, share: float
) -> tuple[cp_model.CpSolver | None, Hosted]:
    """Solve with the wanted number of nodes; returns the solver only if it has a solution."""
    total = cp_model.LinearExpr.sum(nodes)
    model.add_linear_constraint(total, wanted.at_least, wanted.at_most)
    if not wanted.any:
        model.minimize(total)
    solver, status = budget.solve(model, share)
    if status == cp_model.INFEASIBLE:
        return None, Hosted(None, wanted.at_most + 1)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, Hosted(None, wanted.at_least)
    bound = wanted.at_least if wanted.any else math.ceil(solver.best_objective_bound - 1e-6)
    return solver, Hosted(None, max(wanted.at_least, bound))
