"""Solver: HiGHS, single-threaded, through MathOpt, for integer programs over counts (docs/decisions/0012)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from ortools.math_opt.python import mathopt

from rmsplugin.packing.search import Search

#: Nodes of the search tree for one unit of a deterministic limit: about a second's worth on the papers' clusters.
_TREE_NODES_PER_UNIT = 200

#: Iterations of the simplex method that count as a unit.
_ITERATIONS_PER_UNIT = 10_000

#: What floating point may have added to a bound of the solver, relative to its size.
_BOUND_TOLERANCE = 1e-6

#: How far from a whole number an objective that is one can be.
_NEARLY = 1e-3


@dataclass(frozen=True, slots=True)
class Solution:
    """What the solver found: values (None: no solution), the objective, a proven bound on it, and how long it took.

    Objective and bound are whole numbers, of an objective that can only be whole.
    """

    values: Mapping[mathopt.Variable, float] | None
    objective: int | None
    lower_bound: int  # 0 if nothing is proven: no objective is negative
    infeasible: bool  # proven
    seconds: float
    units: float  # the same, deterministic


def solve(
    model: mathopt.Model,
    search: Search,
    hint: Mapping[mathopt.Variable, float] | None = None,
    fraction: float = 0.0,
) -> Solution:
    """Minimise within the limits.

    Args:
        model: its objective is whole, but for less than ``fraction`` that breaks ties.
        search: the limits.
        hint: a solution, or a part of one, that is known.
        fraction: below 1.
    """
    limit = search.deterministic_limit
    parameters = mathopt.SolveParameters(
        time_limit=timedelta(seconds=search.time_limit_s) if limit is None else None,
        node_limit=None if limit is None else max(1, round(limit * _TREE_NODES_PER_UNIT)),
        random_seed=search.seed,
        relative_gap_tolerance=0.0,
        absolute_gap_tolerance=0.0,
        enable_output=False,
    )
    hints = [] if hint is None else [mathopt.SolutionHint(variable_values=dict(hint))]
    about = mathopt.ModelSolveParameters(solution_hints=hints)
    result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters, model_params=about)
    seconds = result.solve_time().total_seconds()
    about_nodes = result.solve_stats.node_count / _TREE_NODES_PER_UNIT
    units = max(about_nodes, result.solve_stats.simplex_iterations / _ITERATIONS_PER_UNIT)
    bound = round_up(result.best_objective_bound() - fraction)
    if not result.has_primal_feasible_solution():
        infeasible = result.termination.reason is mathopt.TerminationReason.INFEASIBLE
        return Solution(None, None, bound, infeasible, seconds, units)
    objective = math.floor(result.objective_value() + _NEARLY)
    return Solution(result.variable_values(), objective, min(bound, objective), False, seconds, units)


def round_up(bound: float) -> int:
    """The least whole number that a bound in floating point leaves; 0 if it says nothing."""
    if not math.isfinite(bound):
        return 0
    return max(0, math.ceil(bound - _BOUND_TOLERANCE * max(1.0, abs(bound))))
