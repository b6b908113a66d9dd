"""Presence: whether a path leads to a file. A path that cannot be looked at is an error, and not absent.

From Python 3.14 on ``Path.exists`` and ``Path.is_file`` answer False for every error, and a ledger or a key that could
not be looked at for a moment would be taken for one that was never made.
"""

from __future__ import annotations

import stat
from pathlib import Path


def is_there(path: Path) -> bool:
    """Whether a file of any kind is there. Raises OSError if that cannot be told."""
    return _mode(path) != 0


def is_file(path: Path) -> bool:
    """Whether there is a regular file. Raises OSError if that cannot be told."""
    return stat.S_ISREG(_mode(path))


def is_directory(path: Path) -> bool:
    """Whether there is a directory. Raises OSError if that cannot be told."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
