"""The engine's own process loads no solver: a proposing process decides, and may be killed for its memory.

Neither of them loads pandas, which libraries of both would take, and which costs as much CPU as all else they load.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from rmsplugin.left_out import no_authorities


def _told(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("module", "solver"), [("rmsplugin.engine.daemon", "False"), ("rmsplugin.proposing.propose", "True")]
)
def test_the_solver_is_loaded_by_the_proposing_process_only(module: str, solver: str) -> None:
    assert _told(f"import sys, {module}; print('ortools' in sys.modules)") == [solver]


def test_the_engine_loads_nothing_that_its_libraries_take_for_what_it_does_not_do() -> None:
    names = ("sqlite_utils", "paramiko", "pandas", "numpy", "invoke")
    code = f"import sys, rmsplugin.engine.daemon; print(*(name in sys.modules for name in {names}))"
    assert _told(code) == ["True", "True", "False", "False", "False"]


def test_an_engine_that_is_alone_loads_nothing_of_what_groups_are_handed() -> None:
    names = ("adapters.rms.slurm_handed", "engine.territory.leaders_pulse", "engine.territory.leaders_readings")
    code = f"import sys, rmsplugin.engine.daemon; print(*('rmsplugin.' + name in sys.modules for name in {names}))"
    assert _told(code) == ["False", "False", "False"]


def test_the_engine_reads_no_certificates() -> None:
    code = """
import ssl
whole = ssl.create_default_context
ssl.SSLContext.load_default_certs = lambda *_: print("read")
import rmsplugin.engine.serve.service
print(ssl.create_default_context is whole)
"""
    assert _told(code) == ["True"]


def test_a_client_without_authorities_trusts_nobody() -> None:
    with no_authorities():
        context = ssl.create_default_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509"] == 0


def test_what_is_loaded_is_not_collected_again() -> None:
    code = """
import gc
from rmsplugin.latency import loading
with loading():
    print(gc.isenabled())
    import rmsplugin.engine.daemon
print(gc.isenabled(), gc.get_freeze_count() > 100_000)
"""
    assert _told(code) == ["False", "True", "True"]


def test_the_ledger_looks_for_no_plugins(tmp_path: Path) -> None:
    code = f"""
import importlib.metadata, pathlib
from rmsplugin.engine.ledger.ledger import Ledger
importlib.metadata.entry_points = importlib.metadata.distributions = None
Ledger(pathlib.Path({str(tmp_path / "ledger.sqlite")!r}), clock=lambda: 0.0)
print(pathlib.Path({str(tmp_path / "ledger.sqlite")!r}).stat().st_size > 0)
"""
    assert _told(code) == ["True"]


_CHILD = "import sys; from rmsplugin.proposer import child;"
_PROPOSE = "child._load('rmsplugin.proposing.answering:answer');"
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
    code = (
        "import rmsplugin.engine.ledger.ledger, pandas, numpy; print(pandas.Series([1, 2]).sum(), numpy.ones(2).size)"
    )
    assert _told(code) == ["3", "2"]


def test_pandas_that_is_loaded_already_stays() -> None:
    within = "with imports_give(pandas=None): print(sys.modules['pandas'] is pandas)"
    code = f"import sys, pandas; from rmsplugin.left_out import imports_give\n{within}\nprint('pandas' in sys.modules)"
    assert _told(code) == ["True", "True"]
