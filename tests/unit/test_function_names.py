"""Names that said nothing of what they name: a name says what is looked at, and what is run."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import rmsplugin

PACKAGE = Path(rmsplugin.__file__).parent

#: Where `run` is the right word: the object is one thing that is carried out as a whole, or a program is run.
RUNS = {
    "adapters/platform/podman/on_node/program.py",  # a program
    "adapters/rms/slurm_commands.py",  # a program
    "engine/cycle.py",  # the cycle
    "engine/daemon.py",  # the engine
    "engine/schedule/programs.py",  # a program
    "hook.py",  # the hook
    "manager/main.py",  # the manager
    "model/action.py",  # the action of this name
    "node_agent/digests.py",  # as `threading` calls it
    "room_hook.py",  # the hook
    "simulation/replay.py",  # the replay
    "wrapper/attach/program.py",  # the wrapper
    "wrapper/carry_out/program.py",  # a program
}


def functions(source: str) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)}


@functools.cache
def modules() -> dict[str, set[str]]:
    return {str(path.relative_to(PACKAGE)): functions(path.read_text()) for path in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize("name", ["look", "_look", "_run"])
def test_no_function_leaves_open_what_it_looks_at_or_runs(name: str) -> None:
    assert [path for path, names in modules().items() if name in names] == []


def test_run_is_said_of_programs_and_of_what_is_one_thing() -> None:
    assert {path for path, names in modules().items() if "run" in names} == RUNS


def test_functions_are_found_wherever_they_are() -> None:
    source = "class A:\n    async def look(self): ...\ndef f():\n    def _run(): ..."
    assert functions(source) == {"look", "f", "_run"}
