"""The seconds that solvers take are counted, whichever of them runs, where there is a clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from ortools.math_opt.python import mathopt
from ortools.sat.python import cp_model

from rmsplugin.model.elements import VM, Node
from rmsplugin.model.resources import Resources
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.classes import classify
from rmsplugin.packing.item import Item
from rmsplugin.packing.patterns import Pricer
from rmsplugin.packing.relaxation import relax
from rmsplugin.packing.search import Search
from rmsplugin.packing.solver_time import SPENT
from rmsplugin.planning.target import solver

SEARCH = Search(time_limit_s=60, workers=1, deterministic_limit=2)


def integers() -> None:
    Budget(SEARCH).solve(cp_model.CpModel())


def relaxation() -> None:
    classes = classify([Item(VM("v", Resources(1, 1024)))], [Node("n", Resources(2, 2048))])
    relax(classes, Pricer(classes, Budget(SEARCH)), [], classes.available, Budget(SEARCH))


def program() -> None:
    model = mathopt.Model()
    model.minimize(model.add_integer_variable(lb=1, ub=2))
    assert solver.solve(model, SEARCH).objective == 1


@pytest.mark.parametrize("solve", [integers, relaxation, program])
def test_a_run_of_a_solver_is_counted_by_the_clock(solve: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    before = SPENT.seconds
    solve()
    assert SPENT.seconds == before, "nobody has given it a clock"
    monkeypatch.setattr(SPENT, "clock", itertools.count().__next__)
    solve()
    assert SPENT.seconds >= before + 1
