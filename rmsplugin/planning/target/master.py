"""Master: the program that chooses columns for groups of kinds of nodes, so that every VM arrives."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.solver_time import SPENT
from rmsplugin.planning.target.arrivals import Amounts, Ints
from rmsplugin.planning.target.columns import Chosen, Columns
from rmsplugin.planning.target.solver import is_too_large, solve

#: The cost of a VM that is left over, as a multiple of the most that any VM can cost: more than it is worth anywhere.
_LEFT_OVER = 16

#: The number of columns for each group, or kind, in a program: those with the least reduced costs.
_PER_GROUP = 6

#: A smaller amount counts as 0, in MiB and in shares of nodes.
_NOTHING = 1e-6

#: Simple steps for an element of the program in one run of its solver.
_STEPS_A_COEFFICIENT = 400


class Solved(NamedTuple):
    """The linear program's cost, its prices by row and class, and the number of times that each column is taken."""

    cost: float
    prices: Amounts
    values: Amounts


class Whole(NamedTuple):
    """A whole answer: its cost without the fixed part (infinite: none), columns, and the number of nodes of each."""

    cost: float
    columns: Chosen
    times: Ints


class Master:
    """The columns that were found for each group. A group's column has one of each of its kinds, for all its nodes."""

    def __init__(self, columns: Columns, group_of: Ints) -> None:
        """Begin without columns.

        Args:
            columns: the source of columns.
            group_of: the group of each kind.
        """
        self.columns, self._group_of = columns, group_of
        self._groups = int(group_of.max(initial=-1)) + 1
        self._dearest = float(max((k.memory_mib for k in columns.problem.classes), default=0) + columns.level.wait_mib)
        self.parts: list[Chosen] = []  # one column of each kind, as they were added
        rows = columns.needs.size
        self._cost, self._rows, self._group, self._part = (
            np.zeros(0),
            np.zeros((0, rows)),
            np.zeros(0, dtype=np.int64),
            np.zeros(0, dtype=np.int64),
        )
        self._duals: tuple[Amounts, Amounts] | None = None  # of the rows, and of the groups
        self._cost_mib = math.inf  # the cost of the last solution

    def add(self, best: Chosen) -> bool:
        """Add a column to each group for which that pays; returns whether there was one."""
        times = self.columns.times
        cost = np.bincount(self._group_of, self.columns.cost_mib(best) * times, self._groups)
        rows = np.zeros((self._groups, self._rows.shape[1]))
        np.add.at(rows, self._group_of, self.columns.rows(best) * times[:, None])
        worth = np.ones(self._groups, dtype=bool)
        if self._duals is not None:
            worth = cost - rows @ self._duals[0] < self._duals[1] - _NOTHING
        if worth.any():
            self._part = np.concatenate([self._part, np.full(worth.sum(), len(self.parts))])
            self.parts.append(best)
            self._cost = np.concatenate([self._cost, cost[worth]])
            self._rows = np.concatenate([self._rows, rows[worth]])
            self._group = np.concatenate([self._group, np.flatnonzero(worth)])
        return bool(worth.any())

    def solve(self, budget: Budget) -> Solved | None:
        """Solve the linear program with the columns found so far; None if there is no time for it."""
        columns, found = self.columns, len(self._cost)
        once = np.ones(self._groups)
        model = self._program(self._cost, self._rows, self._group, once, columns.needs.ravel())
        budget.charge(_STEPS_A_COEFFICIENT * (int(np.count_nonzero(self._rows)) + found))
        limit = None if budget.deterministic else timedelta(seconds=max(0.0, budget.left))
        with SPENT.running():
            result = mathopt.solve(model, mathopt.SolverType.GLOP, params=mathopt.SolveParameters(time_limit=limit))
        if result.termination.reason is not mathopt.TerminationReason.OPTIMAL:
            return None
        duals = np.array(result.dual_values(model.linear_constraints()))
        prices = np.maximum(duals[self._groups :], 0.0)
        self._duals = prices, duals[: self._groups]
        values = np.array(result.variable_values(model.variables()))[:found]
        if result.objective_value() < self._cost_mib - _NOTHING:  # else it would go on without end
            values = values[self._prune(values)]
        self._cost_mib = result.objective_value()
        return Solved(result.objective_value(), prices.reshape(columns.needs.shape), values)

    def _prune(self, values: Amounts) -> Ints:
        """Keep the columns with the least reduced costs, and all that are taken; returns which ones these are."""
        assert self._duals is not None
        reduced = self._cost - self._rows @ self._duals[0] - self._duals[1][self._group]
        reduced[values > _NOTHING] = -math.inf
        kept = np.sort(np.argsort(reduced, kind="stable")[: _PER_GROUP * self._groups])
        self._cost, self._rows = self._cost[kept], self._rows[kept]
        self._group, self._part = self._group[kept], self._part[kept]
        return kept

    def most_used(self, solved: Solved) -> Whole:
        """Each group's most used column: a nearly whole answer, but for VMs left over."""
        part_of = self._most_used(solved)[self._group_of]
        kinds = np.arange(len(part_of))
        columns = Chosen(*(np.stack(each)[part_of, kinds] for each in zip(*self.parts, strict=True)))
        return Whole(math.inf, columns, self.columns.times.astype(np.int64))

    def _most_used(self, solved: Solved) -> Ints:
        part = np.zeros(self._groups, dtype=np.int64)
        order = np.argsort(solved.values, kind="stable")
        part[self._group[order]] = self._part[order]
        return part

    def is_whole(self, solved: Solved) -> npt.NDArray[np.bool_]:
        """For each group, whether it has one column."""
        return np.bincount(self._group[np.flatnonzero(solved.values > 1 - _NOTHING)], minlength=self._groups) > 0

    def choose(self, solved: Solved, is_free: npt.NDArray[np.bool_], budget: Budget) -> Whole:
        """Choose columns in whole numbers for the nodes of some kinds; others have the most used one of their group.

        Args:
            solved: the solution of the linear program.
            is_free: for each kind, whether columns are chosen anew.
            budget: the part of the limits that may be used.
        """
        columns, kinds = self.columns, np.arange(len(is_free))
        part_of, kept = self._most_used(solved)[self._group_of], kinds[~is_free]
        fixed = Chosen(*(np.stack(each)[part_of[kept], kept] for each in zip(*self.parts, strict=True)))
        free = self._promising(kinds[is_free], solved.prices)
        rows = columns.rows(free)
        needs = columns.needs.ravel() - columns.times[kept] @ columns.rows(fixed)
        row_of = np.cumsum(is_free) - 1
        group = row_of[columns.choices.kind_of[free.choice]]
        model = self._program(columns.cost_mib(free), rows, group, columns.times[is_free], needs, is_whole=True)
        nothing = Whole(math.inf, fixed, np.zeros(0, dtype=np.int64))
        if is_too_large(model.get_num_variables(), budget):
            return nothing
        found = solve(model, budget.limits(budget.left))
        budget.charge_run(found.units, found.seconds)
        fixed_cost = float(columns.times[kept] @ columns.cost_mib(fixed))
        if found.values is None or found.objective is None:
            return nothing
        values = np.array([round(found.values[each]) for each in model.variables()])
        times = np.concatenate([columns.times[kept].astype(np.int64), values[: len(rows)]])
        both = Chosen(*(np.concatenate(each) for each in zip(fixed, free, strict=True)))
        return Whole(fixed_cost + found.objective, both, times)

    def _promising(self, kinds: Ints, prices: Amounts) -> Chosen:
        """Of all columns found for some kinds, those with the least reduced costs; for each kind the best."""
        all_of = [np.concatenate([part[kinds] for part in parts]) for parts in zip(*self.parts, strict=True)]
        _, once = np.unique(np.column_stack(all_of), axis=0, return_index=True)
        found = Chosen(*(each[once] for each in all_of))
        reduced = self.columns.cost_mib(found) - self.columns.rows(found) @ prices.ravel()
        kind_of = self.columns.choices.kind_of[found.choice]
        least = np.full(len(self._group_of), math.inf)
        np.minimum.at(least, kind_of, reduced)
        taken = np.argsort(reduced - least[kind_of], kind="stable")[: _PER_GROUP * len(kinds)]
        return Chosen(*(each[taken] for each in found))

    def _program(
        self, cost: Amounts, rows: Amounts, group: Ints, times: Amounts, needs: Amounts, is_whole: bool = False
    ) -> mathopt.Model:
        """Choose columns, each group so many times, so that the needs are met; the last variables are VMs left over."""
        at, row = np.nonzero(rows)
        groups, over = len(times), np.arange(len(needs))
        entries = (
            np.concatenate([group, groups + row, groups + over]),
            np.concatenate([np.arange(len(cost)), at, len(cost) + over]),
            np.concatenate([np.ones(len(cost)), rows[at, row], np.ones(len(needs))]),
        )
        is_asked = np.concatenate([np.ones(len(needs) // 2, dtype=bool), self.columns.has_second])
        return _program(
            np.concatenate([cost, np.full(len(needs), self._dearest * _LEFT_OVER)]),
            is_whole,
            np.concatenate([times[group], np.full(len(needs), np.inf)]),
            np.concatenate([times, np.where(is_asked, needs, -np.inf)]),
            np.concatenate([times, np.full(len(needs), np.inf)]),
            entries,
        )


def _program(
    cost: Amounts,
    is_whole: bool,
    most: Amounts,
    least_of_rows: Amounts,
    most_of_rows: Amounts,
    entries: tuple[Ints, Ints, Amounts],
) -> mathopt.Model:
    """Minimise ``cost`` of variables from 0 to ``most``, with rows between limits; entries: rows, variables, values.

    All are given at once: one after the other would take ten times as long as solving.
    """
    model, variables = model_pb2.ModelProto(), range(len(cost))
    model.variables.ids.extend(variables)
    model.variables.lower_bounds.extend([0.0] * len(cost))
    model.variables.upper_bounds.extend(most.tolist())
    model.variables.integers.extend([is_whole] * len(cost))
    model.objective.linear_coefficients.ids.extend(variables)
    model.objective.linear_coefficients.values.extend(cost.tolist())
    model.linear_constraints.ids.extend(range(len(least_of_rows)))
    model.linear_constraints.lower_bounds.extend(least_of_rows.tolist())
    model.linear_constraints.upper_bounds.extend(most_of_rows.tolist())
    order = np.lexsort((entries[1], entries[0]))
    row, variable, coefficient = (each[order] for each in entries)
    model.linear_constraint_matrix.row_ids.extend(row.tolist())
    model.linear_constraint_matrix.column_ids.extend(variable.tolist())
    model.linear_constraint_matrix.coefficients.extend(coefficient.tolist())
    return mathopt.Model.from_model_proto(model)
