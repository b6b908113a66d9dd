"""What all parts of the building share: places, errors, and programs that are run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent


class BuildError(Exception):
    """Something the user can act on; its text is shown without a traceback."""


class RefusedError(BuildError):
    """This machine, or what was asked, is not fit (exit status 2)."""


def output_of(command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> str:
    """Run a program and return what it says on standard output.

    Args:
        command: the program and its arguments.
        more: variables beside those of this process. The caller's PYTHON* are left out: they are of another Python.

    Raises:
        BuildError: it cannot be run, or fails; with the end of what it said.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env={**kept, "LC_ALL": "C.UTF-8", **(more or {})}
        )
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        words = " ".join(map(str, command[:4]))
        raise BuildError(f"{words} ... failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
