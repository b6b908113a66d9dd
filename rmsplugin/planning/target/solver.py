"""Solver: HiGHS, single-threaded, through MathOpt, for integer programs over counts (docs/decisions/0012)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from ortools.math_opt.python import mathopt

from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.packing.solver_time import SPENT

#: The measured CPU seconds of HiGHS: for a variable (to presolve, probe and cut) and for an iteration of the
#: simplex method. A program that presolve solves takes few iterations, and less for a variable.
_VARIABLE = 3e-4
_ITERATION = 1.5e-4
_SOLVED_AT_ONCE = 1e-3

#: A node of the search tree, in CPU seconds, for a variable and at most.
_NODE = 1e-5
_MOST_NODE = 0.02

#: The factor for heuristics that solve smaller programs: four times the rest of the root's time.
_UNCOUNTED = ("mip_heuristic_run_rins", "mip_heuristic_run_root_reduced_cost")

#: The error that floating point may have added to a bound of the solver, relative to its size.
_BOUND_TOLERANCE = 1e-6

#: The greatest distance from a whole number of an objective that is one.
_NEARLY = 1e-3


@dataclass(frozen=True, slots=True)
class Solution:
    """The solver's result: values (None: no solution), the objective, a proven bound on it, and the time that it took.

    Objective and bound are whole numbers, for an objective that can only be whole.
    """

    values: Mapping[mathopt.Variable, float] | None
    objective: int | None
    lower_bound: int  # 0 if nothing is proven: no objective is negative
    infeasible: bool  # proven
    seconds: float
    units: float  # the same, deterministic: estimated by the work


def solve(
    model: mathopt.Model,
    search: Search,
    hint: Mapping[mathopt.Variable, float] | None = None,
    fraction: float = 0.0,
) -> Solution:
    """Minimise within the limits.

    HiGHS has no deterministic limit but the number of nodes, of which the root is one: see ``is_too_large``. With such
    a limit, two heuristics without any limit are left out.

    Args:
        model: its objective is whole, but for less than ``fraction`` that breaks ties.
        search: the limits.
        hint: a known solution, or a part of one.
        fraction: below 1.
    """
    variables, limit = model.get_num_variables(), search.deterministic_limit
    parameters = mathopt.SolveParameters(
        random_seed=search.seed, relative_gap_tolerance=0.0, absolute_gap_tolerance=0.0, enable_output=False
    )
    if limit is None:
        parameters.time_limit = timedelta(seconds=search.time_limit_s)
    else:
        after_root = max(0.0, limit - _root(variables))
        parameters.node_limit = 1 + int(after_root / min(_MOST_NODE, _NODE * variables + _ITERATION))
        parameters.highs.bool_options.update(dict.fromkeys(_UNCOUNTED, False))
    hints = [] if hint is None else [mathopt.SolutionHint(variable_values=dict(hint))]
    about = mathopt.ModelSolveParameters(solution_hints=hints)
    with SPENT.running():
        result = mathopt.solve(model, mathopt.SolverType.HIGHS, params=parameters, model_params=about)
    seconds = result.solve_time().total_seconds()
    iterations = result.solve_stats.simplex_iterations
    units = _ITERATION * iterations + min(_VARIABLE * variables, _SOLVED_AT_ONCE * iterations)
    bound = round_up(result.best_objective_bound() - fraction)
    if not result.has_primal_feasible_solution():
        infeasible = result.termination.reason is mathopt.TerminationReason.INFEASIBLE
        return Solution(None, None, bound, infeasible, seconds, units)
    objective = math.floor(result.objective_value() + _NEARLY)
    return Solution(result.variable_values(), objective, min(bound, objective), False, seconds, units)


def is_too_large(variables: int, budget: Budget) -> bool:
    """Whether the root of a program alone would take more than the rest of the limits."""
    return _root(variables) > budget.left


def _root(variables: int) -> float:
    """The expected work of the root: about one iteration for a variable."""
    return (_VARIABLE + _ITERATION) * variables


def round_up(bound: float) -> int:
    """The least whole number at or above a bound in floating point, with its error; 0 if the bound says nothing."""
    if not math.isfinite(bound):
        return 0
    return max(0, math.ceil(bound - _BOUND_TOLERANCE * max(1.0, abs(bound))))
