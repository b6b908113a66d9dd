"""The ledger that a test begins with: a copy of one that was made once in this process.

To make one takes all migrations, some 16 ms of CPU; to lay down a copy and open it takes a tenth of that. What is
tested of new ledgers themselves is tested without this.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rmsplugin.engine.ledger.ledger import Ledger


@functools.cache
def _content() -> bytes:
    """What the file of a new ledger holds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.sqlite"
        Ledger(path).close()
        return path.read_bytes()


def laid_down(path: Path) -> Path:
    """The path, at which there is a new ledger now; whatever was there before stays as it is."""
    if not path.exists():
        with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(_content())
    return path


@contextmanager
def in_memory() -> Iterator[Path]:
    """A directory in memory: a ledger syncs at each step, which is what costs time on a disk."""
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as path:
        yield Path(path)
