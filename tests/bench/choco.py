"""Choco: what both of the papers' models need of it, reached through pychoco (the papers used Choco 1.2 in Java)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pychoco.search.search_strategies import SearchStrategies

Variable = Any  # pychoco is imported where it is used, and has types of its own only in part


def branch_in_order(solver: Any, variables: Sequence[Variable]) -> None:
    """Take the variables in this order, and of each the lowest value first."""
    SearchStrategies.set_input_order_lb_search(solver, *variables)


def branch_on_conflicts(solver: Any, variables: Sequence[Variable]) -> None:
    """Take the variables that fail most (dom/wdeg); unlike the method of ``Solver``, print nothing meanwhile."""
    SearchStrategies.set_dom_over_w_deg_search(solver, *variables)


def solutions(solver: Any, watched: Sequence[Variable], time_limit_s: float) -> Iterator[tuple[float, list[int]]]:
    """Each solution until the limit: seconds since the search began, and the values of the watched variables."""
    solver.limit_time(f"{time_limit_s:.3f}s")
    started = time.monotonic()
    while solver.solve():
        yield time.monotonic() - started, [variable.get_value() for variable in watched]


def exhausted(solver: Any) -> bool:
    """Whether the search ended because nothing is left to search: then the last solution is proven to be the best."""
    return str(solver.get_search_state()) == "TERMINATED"
