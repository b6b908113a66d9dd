"""The engine's own process loads no solver: a proposing process decides, and may be killed for its memory."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "solver"), [("rmsplugin.engine.daemon", "False"), ("rmsplugin.proposing.propose", "True")]
)
def test_the_solver_is_loaded_by_the_proposing_process_only(module: str, solver: str) -> None:
    code = f"import sys, {module}; print('ortools' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [solver]
