"""Store: the directory of saved states. Its marker, a file, tells it from a directory that is not mounted."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rmsplugin.node_agent import files

MARKER = ".rmsplugin-store"


def marker_of(directory: Path) -> str | None:
    """The content of the store's marker; None if there is no marker, or no directory."""
    try:
        return (directory / MARKER).read_text(encoding="ascii").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def mark(directory: Path, identity: str) -> str:
    """Give the store a marker, unless it has one. Returns its marker then; of several concurrent calls one wins."""
    new = directory / f"{MARKER}.{identity}"
    files.remove(new)
    try:
        with files.create(new) as file:
            file.write(f"{identity}\n".encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(new, directory / MARKER)
    finally:
        files.remove(new)
    files.sync_directory(directory)
    return marker_of(directory) or identity
