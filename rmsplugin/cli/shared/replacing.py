"""Replacing: whether a file that a command writes would take the place of one that it reads, or writes besides."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path


def replaced(outputs: Mapping[str, str | None], inputs: Mapping[str, str | Path | None]) -> str:
    """Why the outputs cannot be written where they are named, in a sentence; empty if they can.

    Args:
        outputs: the option of each, and its file; None or "-" is none.
        inputs: what each is, and its file; None or "" is none, and "-" is standard input.
    """
    files = {option: name for option, name in outputs.items() if name not in (None, "", "-")}
    for (option, name), (what, read) in itertools.product(files.items(), inputs.items()):
        if read and _is_input(str(name), str(read)):
            return f"{option} would replace {what}"
    for (option, name), (other, its_name) in itertools.combinations(files.items(), 2):
        if _are_one(str(name), str(its_name)):
            return f"{option} and {other} are the same file"
    return ""


def _is_input(output: str, name: str) -> bool:
    """Whether the output is there, and the input of this name."""
    try:
        return os.path.samestat(os.stat(output), os.fstat(0) if name == "-" else os.stat(name))
    except (OSError, ValueError):  # one of them is not there, or no path at all
        return False


def _are_one(output: str, other: str) -> bool:
    """Whether both are one file, whether or not it is there yet."""
    try:
        return Path(output).resolve() == Path(other).resolve() or os.path.samefile(output, other)
    except (OSError, ValueError, RuntimeError):  # as above; links in a circle
        return False
