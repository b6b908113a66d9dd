"""Slurm.conf as this host has it: on a front slurmd reads it there, and slurmctld may have another one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rmsplugin.errors import SettingsError

_INCLUDE = re.compile(r"include\s+(\S+)\s*", re.IGNORECASE)


def value_in(path: Path, key: str) -> str | None:
    """Return the value that slurm.conf gives a parameter, with the files that it includes.

    Args:
        path: of slurm.conf.
        key: name of the parameter, in upper or lower case, as Slurm takes it.

    Returns:
        The value; of several the last, as Slurm does; empty if there is none. None: there is no such file.

    Raises:
        SettingsError: a file includes itself, by way of others too, which no program of Slurm's takes.
    """
    if not os.access(path, os.R_OK):
        return None
    return _Reading(path.parent, key).value_in(path.resolve(), ()) or ""


class _Reading:
    """Looks for one parameter; each file is read once, however often it is included."""

    def __init__(self, directory: Path, key: str) -> None:
        """``directory``: of slurm.conf, from which names of included files begin."""
        self._directory = directory
        self._wanted = re.compile(rf'(?:^|\s){re.escape(key)}\s*=\s*("[^"]*"|\S+)', re.IGNORECASE)
        self._known: dict[Path, str | None] = {}

    def value_in(self, path: Path, within: tuple[Path, ...]) -> str | None:
        """The last value that the file gives, or one that it includes; None: it gives none, or cannot be read.

        ``within``: the files that include it, slurm.conf first.
        """
        if path in within:
            chain = " -> ".join(each.name for each in (*within, path))
            raise SettingsError(f"{within[-1]}: Include {path.name} leads in a circle, {chain}; Slurm takes none")
        if path not in self._known:
            self._known[path] = self._read(path, (*within, path))
        return self._known[path]

    def _read(self, path: Path, within: tuple[Path, ...]) -> str | None:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            return None
        value = None
        for line in re.sub(r"\\\n", " ", text).splitlines():
            said = re.sub(r"(?<!\\)#.*", "", line).strip()
            if included := _INCLUDE.fullmatch(said):
                inner = self.value_in((self._directory / included[1]).resolve(), within)
                value = value if inner is None else inner
            for match in self._wanted.finditer(said):
                value = match[1].strip('"')
        return value
