"""A checkout of Slurm's sources: is it fit, which tests it has, which of them are asked for."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Steps, scancel, sbcast, sbatch, arrays.
DEFAULT = "1.*,6.*,14.*,17.*,28.*"

_SUITE = Path("testsuite") / "expect"
_PROGRAMS = {"expect": "expect", "gcc": "gcc"}  # and Debian's packages that have them


class SourcesError(Exception):
    """The suite cannot be run; the text says what is missing."""


@dataclass(frozen=True)
class Sources:
    """A checkout whose suite can be run here."""

    directory: Path
    version: str
    tests: tuple[str, ...]  # "17.5", in the order of their numbers

    @property
    def suite(self) -> Path:
        """Where the tests are."""
        return self.directory / _SUITE


def read_sources(directory: Path) -> Sources:
    """Look at a checkout. SourcesError: it is none, or has no tests."""
    globals_file, meta = directory / _SUITE / "globals", directory / "META"
    for path in (globals_file, meta):
        if not path.is_file():
            raise SourcesError(
                f"{directory} is no checkout of Slurm's sources: it has no {path.relative_to(directory)}"
            )
    version = version_of_meta(meta.read_text(errors="replace"))
    if not version:
        raise SourcesError(f"{meta} does not say which release of Slurm this is")
    names = (re.fullmatch(r"test(\d+\.\d+)", path.name) for path in globals_file.parent.iterdir() if path.is_file())
    tests = sorted((found[1] for found in names if found), key=number)
    if not tests:
        raise SourcesError(f"{globals_file.parent} has no tests")
    return Sources(directory, version, tuple(tests))


def version_of_meta(text: str) -> str | None:
    """The release that a META file names, e.g. "22.05.8"."""
    found = re.search(r"^\s*Version:\s*(\d+\.\d+\S*)", text, re.MULTILINE)
    return found[1] if found else None


def check_machine(sources: Sources, installed: str | None, which: Callable[[str], str | None] = shutil.which) -> None:
    """SourcesError: a program that the suite runs is not here, or Slurm is of another release than the sources."""
    missing = [package for program, package in _PROGRAMS.items() if not which(program)]
    if missing:
        raise SourcesError(f"Slurm's suite needs Debian's packages {' and '.join(missing)}: apt-get install them")
    if installed is None:
        raise SourcesError("there is no Slurm here (slurmctld -V): run contrib/run-tests first")
    if installed.split(".")[:2] != sources.version.split(".")[:2]:
        raise SourcesError(f"these are the sources of Slurm {sources.version}, and {installed} is installed here")


def installed_version() -> str | None:
    """The release of Slurm on this machine; None without one."""
    try:
        done = subprocess.run(["/usr/sbin/slurmctld", "-V"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"\d+\.\d+\S*", done.stdout)
    return found[0] if found else None


def choose(asked: str, tests: Sequence[str]) -> list[str]:
    """The tests that e.g. "17.5,1.*" names, in that order. SourcesError: it cannot be read, or a part names none."""
    chosen: dict[str, None] = {}
    for word in filter(None, re.split(r"[,\s]+", asked)):
        found = re.fullmatch(r"(?:test)?(\d+)\.(\d+|\*)", word)
        if not found:
            raise SourcesError(f"{word!r} names no tests: write 17.5 for one, 17.* for all of 17, commas between them")
        fitting = [test for test in tests if _fits(test, *found.groups())]
        if not fitting:
            raise SourcesError(f"the sources have no test {word}")
        chosen |= dict.fromkeys(in_order(fitting))
    if not chosen:
        raise SourcesError("no tests are named")
    return list(chosen)


def _fits(test: str, major: str, minor: str) -> bool:
    own = test.split(".")
    return own[0] == major and minor in ("*", own[1])


def number(test: str) -> tuple[int, ...]:
    """What to sort tests by: 1.9 is before 1.10."""
    return tuple(map(int, test.split(".")))


def in_order(tests: Iterable[str]) -> list[str]:
    """Tests by their numbers."""
    return sorted(tests, key=number)
