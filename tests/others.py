"""What tests that act as another user need: a directory that others may enter, and a program that they may run.

pytest's own directories are for nobody else, and each pytest that starts closes them anew: no test opens them. A test
that did so would also have others pass that then fail in another order.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: In Python that root runs: become another user, of no group, and only then do what is asked. So it does not matter
#: whether that user may enter the checkout, in whose virtual environment the interpreter is.
_BECOME = "import os, sys; uid = int(sys.argv.pop(1)); os.setgroups([]); os.setgid(uid); os.setuid(uid)\n"


def lets_others_in(directory: Path) -> bool:
    """Whether any user may enter this directory, and all those above it."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in (directory, *directory.parents))


def _checkout_lets_others_in() -> bool:
    interpreter = Path(sys.executable)
    return all(lets_others_in(each.parent) for each in (Path(__file__).resolve(), interpreter, interpreter.resolve()))


#: For a test in which another user starts rmsplugin's own commands: they, and their Python, are in the checkout.
runs_commands_as_others = pytest.mark.skipif(
    os.geteuid() != 0 or not _checkout_lets_others_in(),
    reason="needs root, and a checkout that lets all users in: another user runs its commands",
)


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory of its own that everybody may enter, for as long as it is needed."""
    base = next(each for each in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")) if lets_others_in(each))
    with tempfile.TemporaryDirectory(dir=base) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def python_as(uid: int, code: str, *arguments: str, before: str = "", cwd: Path = Path("/")) -> str:
    """What this code prints as that user; ``before``: code that root runs first, as imports from the checkout."""
    command = [sys.executable, "-c", f"{before}\n{_BECOME}{code}", str(uid), *arguments]
    return subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True).stdout
