"""Column generation: the cheapest columns of all nodes that let every VM arrive, and a proven bound on their cost.

The master program chooses so many columns of each kind as there are nodes of it. At the prices that are its dual values
``columns`` finds the next columns; and whatever the prices are, the reduced costs of the best columns bound
the cost of all answers (Lagrange). Few rows join the nodes: four for each class of VMs. So the solution of the linear
program is whole for all but a handful of nodes, and the best whole one is about as cheap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.target.columns import Column, Columns, Prices
from rmsplugin.planning.target.counts import Counts, movers_after
from rmsplugin.planning.target.solver import solve

_Amounts = npt.NDArray[np.float64]

#: Prices are multiples of one part in so many MiB: a power of 2, so that sums of them are exact.
_PARTS = 16

#: A VM that is left over costs so many times what any VM can cost, which is more than it is worth anywhere. In a sample
#: it costs that once: its nodes may not have the room for their share.
_LEFT_OVER = 16

#: Kinds of nodes in a sample, and how nearly it is solved.
_SAMPLE = 100
_SAMPLE_NEARLY = 0.01

#: Kinds of nodes that the first whole answer chooses for anew.
_FREED = 100

#: How far from a whole number the linear program's solution may be that is one.
_NEARLY = 1e-6

#: Simple steps for an element of the master program in one run of its solver, and of a table while it is priced.
_STEPS_A_COEFFICIENT = 1_000
_STEPS_A_ROOM = 20


class _Solved(NamedTuple):
    """The cost of the linear program, its prices, and its values, which take long to read."""

    cost: float
    prices: _Amounts
    values: Callable[[], _Amounts]


class _Chosen(NamedTuple):
    """A whole answer: its cost, and how often each column is taken, and at the end which VMs are left over."""

    cost: int
    times: list[int]


class Generation:
    """The master program of ``columns``, with the columns found so far."""

    def __init__(self, columns: Columns, budget: Budget, prices: _Amounts | None = None) -> None:
        """No columns yet.

        Args:
            columns: where they come from.
            budget: what may be used of the limits.
            prices: those of a similar program are a good start.
        """
        problem, level = columns.problem, columns.level
        self._columns, self._budget = columns, budget
        self._classes = len(problem.classes)
        self._found: dict[Column, None] = {}
        least = 0 if not problem.classes else max(each.memory_mib for each in problem.classes)
        self._dearest = float(least + level.wait_mib)
        needs = np.zeros((4, self._classes))
        for mover in problem.movers:
            needs[0, mover.vm_class] += 1
            if mover.group is not None and not columns.is_relaxed:
                needs[1 if columns.is_early(mover.group) else 2, mover.vm_class] += 1
            if level.dearest_mib is not None and mover.cost <= level.dearest_mib:
                needs[3, mover.vm_class] -= 1
        if columns.is_relaxed:
            needs[1:3] = -np.inf
        if level.dearest_mib is None:
            needs[3] = -np.inf
        for k, each in enumerate(problem.classes):
            if level.dearest_mib is not None and 2 * each.memory_mib <= level.dearest_mib:
                needs[3, k] = -np.inf  # nothing of this class is too dear
        self._needs = needs
        self._all_times = np.array([len(members) for members in columns.members], dtype=float)
        self._times = self._all_times.copy()  # of the kinds that the master program has
        self._constants = problem.fixed_cost
        first = np.zeros((4, self._classes))
        first[0] = self._dearest / 2
        self.prices = first if prices is None else prices
        self.bound_mib = 0  # proven, of all answers within the columns' rules

    def relax(self, enough: float = math.inf, nearly: float = 0.0) -> None:
        """Add columns until the linear program is solved, ``nearly`` so (share of its cost), or time is up.

        There is one for each kind at least. A bound of ``enough`` ends it as well. Where there are many kinds of nodes,
        a sample of them with its share of the arrivals comes first: its prices are nearly those of all.
        """
        if len(self._columns.members) >= 2 * _SAMPLE:
            self._times[np.arange(len(self._times)) % (len(self._times) // _SAMPLE) > 0] = 0
            self._converge(enough, _SAMPLE_NEARLY)
        self._times = self._all_times.copy()
        self._converge(enough, nearly)

    def _converge(self, enough: float, nearly: float) -> None:
        prices, is_new, first = self.prices, True, -math.inf
        least = math.inf  # what the columns found so far cost
        while is_new:
            # Halfway between where the bound was best and where the master is: the master's own prices swing.
            for tried in ((self.prices + prices) / 2, prices):
                bound, is_new = self._price(np.round(tried * _PARTS) / _PARTS)
                if bound > first:
                    first, self.prices = bound, tried
                if is_new:
                    break
            is_enough = first >= (1 - nearly) * least or self._constants + self.bound_mib >= enough
            if is_enough or not is_new or self._budget.exhausted:
                return
            solved = self._solve(self._budget)
            if solved is None:
                return
            least, prices = solved.cost, solved.prices

    def _price(self, prices: _Amounts) -> tuple[float, bool]:
        """The bound of the master program at these prices, in MiB, and whether there was a column that was not known.

        The same prices bound the cost of all nodes, whatever sample the master program has.
        """
        columns, unit = self._columns, self._columns.unit
        prices = np.where(
            np.isinf(self._needs), 0.0, prices
        )  # of rows that are not there, in a program that was similar
        self._budget.charge(columns.size * _STEPS_A_ROOM)
        reduced, best = columns.best(Prices(*prices))
        worth = float((prices * np.where(np.isinf(self._needs), 0.0, self._needs)).sum())
        whole = float(reduced @ self._all_times) + worth
        self.bound_mib = max(self.bound_mib, -(-math.ceil(whole) // unit) * unit)
        known = len(self._found)
        self._found.update((each, None) for each, times in zip(best, self._times, strict=True) if times)
        return float(reduced @ self._times) + worth * self._share, len(self._found) > known

    @property
    def _share(self) -> float:
        return float(self._times.sum() / self._all_times.sum())

    def _solve(self, budget: Budget) -> _Solved | None:
        """The linear program with the columns found so far; None if there is no time for it."""
        model = self._model()
        limit = None if budget.deterministic else timedelta(seconds=max(0.0, budget.left))
        result = mathopt.solve(model, mathopt.SolverType.GLOP, params=mathopt.SolveParameters(time_limit=limit))
        if result.termination.reason is not mathopt.TerminationReason.OPTIMAL:
            return None
        joint = itertools.islice(model.linear_constraints(), len(self._columns.members), None)
        prices = np.maximum(np.array(result.dual_values(joint)).reshape(4, -1), 0.0)
        return _Solved(result.objective_value(), prices, lambda: np.array(result.variable_values(model.variables())))

    def choose(self, budget: Budget, search: Search) -> Counts | None:
        """A whole answer of the columns found so far; None if none was found.

        The linear program's answer is kept where it is whole, for all but some kinds of nodes, which the solver chooses
        for anew: more and more of them, until all VMs arrive and nothing better is possible.
        """
        if not self._found or budget.exhausted:
            return None
        kinds = np.arange(len(self._columns.members))
        kind_of = self._columns.kind_of[[each.choice for each in self._found]]
        solved = self._solve(budget)
        if solved is None:
            return None
        values = solved.values()
        whole = np.abs(values - np.round(values))[: len(self._found)] <= _NEARLY
        every, best = max(1, len(kinds) // _FREED), None
        while not budget.exhausted and (best is None or best.cost > self.bound_mib) and every:
            is_free = (kinds + search.seed) % every == 0
            is_free[kind_of[~whole]] = True
            least = np.where(is_free[kind_of], 0.0, np.round(values[: len(self._found)]))
            limit = budget.left / 2
            found = solve(model := self._model(least), budget.limits(limit))
            budget.charge_run(limit, found.seconds)
            if (
                found.values is not None
                and found.objective is not None
                and (best is None or found.objective < best.cost)
            ):
                best = _Chosen(found.objective, [round(found.values[each]) for each in model.variables()])
            every //= 2
        if best is None or any(best.times[len(self._found) :]):
            return None
        counts = self._columns.counts([(each, times) for each, times in zip(self._found, best.times, strict=False)])
        _drop_surplus(self._columns, counts)
        return counts

    def _model(self, least: _Amounts | None = None) -> mathopt.Model:
        """The master program: a row for each kind, four for each class; at the end variables for what is left over.

        Args:
            least: columns that are taken at least so often, in whole numbers; None: any fraction will do.
        """
        columns, classes = self._columns, self._classes
        kinds, found = len(columns.members), list(self._found)
        choice = np.array([each.choice for each in found])
        early, late = (np.array([getattr(each, name) for each in found]) for name in ("early", "late"))
        gone_r, gone_e, gone_l = (columns.residents_gone[choice], columns.early_gone[choice], columns.late_gone[choice])
        joint = np.concatenate(
            [
                early + late - gone_r - gone_e - gone_l,
                early - gone_e,
                late - gone_l,
                gone_r * columns.may_leave_early - early,
            ],
            axis=1,
        )
        times = self._times
        at, row = np.nonzero(joint)
        over = 4 * classes
        entries = (
            np.concatenate([columns.kind_of[choice], kinds + row, kinds + np.arange(over)]),
            np.concatenate([np.arange(len(found)), at, len(found) + np.arange(over)]),
            np.concatenate([np.ones(len(found)), joint[at, row], np.ones(over)]),
        )
        self._budget.charge(_STEPS_A_COEFFICIENT * len(entries[0]))
        cost = columns.cost[choice] + late.sum(axis=1) * columns.level.wait_mib
        return _program(
            np.concatenate([cost, np.full(over, self._dearest * (_LEFT_OVER if self._share == 1.0 else 1))]),
            None if least is None else np.concatenate([least, np.zeros(over)]),
            np.concatenate([times[columns.kind_of[choice]], np.full(over, np.inf)]),
            (
                np.concatenate([times, self._needs.ravel() * self._share]),
                np.concatenate([times, np.full(4 * classes, np.inf)]),
            ),
            entries,
        )


def _program(
    cost: _Amounts,
    least: _Amounts | None,
    most: _Amounts,
    rows: tuple[_Amounts, _Amounts],
    entries: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], _Amounts],
) -> mathopt.Model:
    """Minimise ``cost`` of variables from ``least`` (whole ones; None: any from 0) to ``most``, rows between limits.

    All at once: telling the solver of one after the other takes ten times as long as solving.
    """
    model, variables = model_pb2.ModelProto(), range(len(cost))
    model.variables.ids.extend(variables)
    model.variables.lower_bounds.extend([0.0] * len(cost) if least is None else least.tolist())
    model.variables.upper_bounds.extend(most.tolist())
    model.variables.integers.extend([least is not None] * len(cost))
    model.objective.linear_coefficients.ids.extend(variables)
    model.objective.linear_coefficients.values.extend(cost.astype(float).tolist())
    model.linear_constraints.ids.extend(range(len(rows[0])))
    model.linear_constraints.lower_bounds.extend(rows[0].tolist())
    model.linear_constraints.upper_bounds.extend(rows[1].tolist())
    order = np.lexsort((entries[1], entries[0]))
    row, variable, coefficient = (each[order] for each in entries)
    model.linear_constraint_matrix.row_ids.extend(row.tolist())
    model.linear_constraint_matrix.column_ids.extend(variable.tolist())
    model.linear_constraint_matrix.coefficients.extend(coefficient.astype(float).tolist())
    return mathopt.Model.from_model_proto(model)


def _drop_surplus(columns: Columns, counts: Counts) -> None:
    """The rows ask for enough arrivals; what is too much is left out, late ones first."""
    surplus = [0] * len(columns.problem.classes)
    for arrivals in (*counts.early, *counts.late):
        for k, count in arrivals.items():
            surplus[k] += count
    for mover in movers_after(columns.problem, counts.kept):
        surplus[mover.vm_class] -= 1
    for arrivals in (*counts.late, *counts.early):
        for k in _in_surplus(arrivals, surplus):
            cut = min(arrivals[k], surplus[k])
            surplus[k] -= cut
            arrivals[k] -= cut
            if not arrivals[k]:
                del arrivals[k]


def _in_surplus(arrivals: dict[int, int], surplus: Sequence[int]) -> list[int]:
    return [k for k in arrivals if surplus[k] > 0]
