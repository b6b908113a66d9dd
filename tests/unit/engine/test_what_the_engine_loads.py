"""The engine's own process loads no solver: a proposing process decides, and may be killed for its memory.

Neither of them loads pandas, which libraries of both would take, and which costs as much CPU as all else they load.
"""

from __future__ import annotations

import subprocess
import sys

import pytest


def _told(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("module", "solver"), [("rmsplugin.engine.daemon", "False"), ("rmsplugin.proposing.propose", "True")]
)
def test_the_solver_is_loaded_by_the_proposing_process_only(module: str, solver: str) -> None:
    assert _told(f"import sys, {module}; print('ortools' in sys.modules)") == [solver]


def test_the_engine_loads_no_pandas() -> None:
    code = "import sys, rmsplugin.engine.daemon; print('sqlite_utils' in sys.modules, 'pandas' in sys.modules)"
    assert _told(code) == ["True", "False"]


_CHILD = "import sys; from rmsplugin.proposer import child;"
_PROPOSE = "child._load('rmsplugin.proposing.propose:propose');"
_SOLVES = """
from ortools.sat.python import cp_model
model, solver = cp_model.CpModel(), cp_model.CpSolver()
most = model.new_int_var(0, 3, "most")
model.maximize(most)
solver.solve(model)
print(solver.value(most), "pandas" in sys.modules, any(name.startswith("pandas.") for name in sys.modules))
"""


def test_the_proposing_process_loads_no_pandas_and_its_solver_solves() -> None:
    assert _told(f"{_CHILD} {_PROPOSE} {_SOLVES}") == ["3", "False", "False"]


def test_a_solver_that_asks_more_of_pandas_is_given_it() -> None:
    nothing = "import types; child.empty_pandas = lambda: types.ModuleType('pandas');"
    assert _told(f"{_CHILD} {nothing} {_PROPOSE} {_SOLVES}") == ["3", "True", "True"]


def test_pandas_can_be_imported_after_an_import_without_it() -> None:
    code = "import rmsplugin.engine.ledger.ledger, pandas; print(pandas.Series([1, 2]).sum())"
    assert _told(code) == ["3"]


def test_pandas_that_is_loaded_already_stays() -> None:
    within = "with pandas_as(None): print(sys.modules['pandas'] is pandas)"
    code = f"import sys, pandas; from rmsplugin.left_out import pandas_as\n{within}\nprint('pandas' in sys.modules)"
    assert _told(code) == ["True", "True"]
