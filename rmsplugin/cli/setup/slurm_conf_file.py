"""Slurm.conf as this host has it: on a front slurmd reads it there, and slurmctld may have another one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

#: Slurm's own bound is the number of files that may be open.
_DEPTH = 16
_INCLUDE = re.compile(r"include\s+(\S+)\s*", re.IGNORECASE)


def value_in(path: Path, key: str) -> str | None:
    """Return the value that slurm.conf gives a parameter, with the files that it includes.

    Args:
        path: of slurm.conf.
        key: name of the parameter, in upper or lower case, as Slurm takes it.

    Returns:
        The value; of several the last, as Slurm does; empty if there is none. None: there is no such file.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    wanted = re.compile(rf'(?:^|\s){re.escape(key)}\s*=\s*("[^"]*"|\S+)', re.IGNORECASE)
    found = [match[1].strip('"') for line in _lines(text, path.parent, _DEPTH) for match in wanted.finditer(line)]
    return found[-1] if found else ""


def _lines(text: str, directory: Path, depth: int) -> Iterator[str]:
    """The lines without comments, continued ones as one, those of included files in their places."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        said = re.sub(r"(?<!\\)#.*", "", line).strip()
        included = _INCLUDE.fullmatch(said)
        if included is None:
            yield said
        elif depth:
            path = directory / included[1]
            try:
                yield from _lines(path.read_text(errors="replace"), directory, depth - 1)
            except OSError:
                continue
