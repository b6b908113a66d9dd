"""A case: a batch script whose comments ``#CASE KEY: VALUE`` say how it is submitted and what may differ.

tests/e2e/cases/README.md has the form for those who write one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).resolve().parents[1] / "cases"

_LINE = re.compile(r"^#CASE (.*)$", re.MULTILINE)
_KEY = re.compile(r"(title|options|submit|differs|gap|ci|alone)(?: ([^:]+))?: *(.*)")


class CaseError(ValueError):
    """A case's file is not of the form; the text names the file and the line."""


@dataclass(frozen=True)
class Allowed:
    """A difference that a case's file admits."""

    part: str  # of an outcome, e.g. "sacct NNodes" or "file slurm-JOB1.out"
    reason: str
    mendable: bool  # a VM can help it: it is a gap, not a difference for good


@dataclass(frozen=True)
class Case:
    """One file of tests/e2e/cases."""

    name: str  # "TOPIC/FILE" without its suffix
    title: str
    script: bytes
    submit: str  # shell lines
    allowed: tuple[Allowed, ...] = ()
    ci: bool = False
    alone: bool = False  # no other case runs meanwhile

    @property
    def topic(self) -> str:
        """The directory that the case is in."""
        return self.name.partition("/")[0]


def read_cases(directory: Path = CASES) -> list[Case]:
    """All cases below a directory, by name. CaseError: a file is not of the form."""
    paths = sorted(path for path in directory.glob("*/*") if path.is_file())
    return [parse(str(path.relative_to(directory).with_suffix("")), path.read_bytes()) for path in paths]


def parse(name: str, script: bytes) -> Case:
    """One case of its file's bytes. CaseError: an unknown key, no title, a reason that is no sentence."""
    title, options, submit, allowed = "", "", [], []
    flags = {"ci": False, "alone": False}
    for line in _LINE.findall(script.decode("utf-8", "replace")):
        found = _KEY.fullmatch(line.strip())
        if not found:
            raise CaseError(f"{name}: '#CASE {line}' is not of the form '#CASE KEY: VALUE'")
        key, part, value = found.groups()
        if (part is None) == (key in ("differs", "gap")):
            raise CaseError(f"{name}: '#CASE {line}': {key} {'says' if part is None else 'does not say'} which part")
        if key == "title":
            title = value
        elif key == "options":
            options = value
        elif key == "submit":
            submit.append(value)
        elif key in flags:
            flags[key] = True
        else:
            allowed.append(_allowed(name, part, value, key == "gap"))
    if not title:
        raise CaseError(f"{name}: no '#CASE title: ...'")
    if options and submit:
        raise CaseError(f"{name}: options are of the submission that is made where no '#CASE submit:' says another")
    lines = "\n".join(submit) or f"sbatch {options} job.sh"
    return Case(name, title, script, lines, tuple(allowed), **flags)


def _allowed(name: str, part: str, reason: str, mendable: bool) -> Allowed:
    if not reason.endswith(".") or len(reason.split()) < 4 or "|" in reason:
        raise CaseError(f"{name}: '{reason}' is not a sentence for the guide's table")
    return Allowed(part.strip(), reason, mendable)
