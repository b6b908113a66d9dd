"""What an attached wrapper imports: it is what it costs, and a front has a thousand of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rmsplugin.wrapper import process

REPOSITORY = Path(__file__).parents[3]

# Each of these brings a megabyte or more, most of them also others of them.
TOO_DEAR = (
    "asyncio", "concurrent.futures", "cryptography", "dataclasses", "email", "http", "inspect", "logging", "paramiko",
    "pathlib", "pydantic", "random", "shutil", "subprocess", "tarfile", "tempfile", "tomllib", "typing", "urllib",
)  # fmt: skip
# The other imports; one more is a decision, to be taken with `contrib/run-benchmarks g` beside it.
OURS = {
    "rmsplugin", "rmsplugin.client", "rmsplugin.errors", "rmsplugin.wrapper", "rmsplugin.wrapper.attach",
    "rmsplugin.wrapper.attach.preparation", "rmsplugin.wrapper.attach.program", "rmsplugin.wrapper.attach.sentry",
    "rmsplugin.wrapper.attach.telltale", "rmsplugin.wrapper.engine", "rmsplugin.wrapper.process",
    "rmsplugin.wrapper.session", "rmsplugin.wrapper.session.access", "rmsplugin.wrapper.session.answers",
    "rmsplugin.wrapper.session.commands", "rmsplugin.wrapper.session.guest_state", "rmsplugin.wrapper.session.libssh2",
    "rmsplugin.wrapper.session.mailbox", "rmsplugin.wrapper.session.session", "rmsplugin.wrapper.session.steps",
    "rmsplugin.wrapper.session.streams", "rmsplugin.wrapper.signals",
}  # fmt: skip


def modules(statements: str) -> set[str]:
    """What is imported by the statements, in an interpreter started as the wrapper's is."""
    code = f"import sys; sys.path.append({str(REPOSITORY)!r}); {statements}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_attached_wrapper_imports_nothing_dear() -> None:
    found = modules("from rmsplugin.wrapper.attach import program")
    assert found & set(TOO_DEAR) == set()
    assert {name for name in found if name.startswith("rmsplugin")} == OURS


def test_talking_to_an_engine_on_another_host_brings_nothing_dear() -> None:
    found = modules("from rmsplugin.wrapper.attach import program; from rmsplugin.adapters import munge")
    assert found & set(TOO_DEAR) == set()
    assert {name for name in found if name.startswith("rmsplugin")} - OURS == {
        "rmsplugin.adapters",
        "rmsplugin.adapters.munge",
    }


def test_it_is_started_without_site_packages_and_the_users_variables() -> None:
    words = process.command("attach", "more")
    assert words[1:3] == ["-I", "-S"]
    assert words[4:] == ["attach", "more"]
    assert Path(words[3]).parents[2] == REPOSITORY


@pytest.mark.parametrize("program", ["attach", "prepare"])
def test_a_program_of_the_wrapper_finds_its_package_wherever_it_is_started(program: str, tmp_path: Path) -> None:
    done = subprocess.run(process.command(program), capture_output=True, text=True, cwd=tmp_path, env={})
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "No module" not in line
