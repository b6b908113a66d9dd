"""Shared writes: how long the directory that controllers share takes for a small write that is safe."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

#: A start of a vjob commits about ten times: a write that takes longer than this is felt.
SLOW_S = 0.5
_BYTES = 4096


def write_once(directory: Path) -> float:
    """Write a file of a page there, safely, and remove it. Returns how many seconds the write took. Raises OSError."""
    path = directory / f".write-{socket.gethostname()}-{uuid.uuid4().hex}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        began = time.monotonic()
        os.write(descriptor, bytes(_BYTES))
        os.fsync(descriptor)
        return time.monotonic() - began
    finally:
        os.close(descriptor)
        path.unlink(missing_ok=True)


class SharedWrites:
    """Writes that are tried again and again by one thread, and looked at by others while one of them hangs."""

    def __init__(self, directory: Path, write: Callable[[Path], float] = write_once) -> None:
        """Try nothing yet."""
        self._directory, self._write = directory, write
        self._began: float | None = None  # of the write under way
        self._took_s, self._error = 0.0, ""

    def try_one(self) -> None:
        """Try one write."""
        self._began = time.monotonic()
        try:
            self._took_s, self._error = self._write(self._directory), ""
        except OSError as error:
            self._error = error.strerror or str(error)
        self._began = None

    def problem(self) -> str:
        """What is wrong with the directory, in a sentence; empty if nothing is."""
        began = self._began
        if began is not None and (hangs_s := time.monotonic() - began) > SLOW_S:
            return f"the shared directory {self._directory} has not taken a write for {hangs_s:.0f} s"
        if self._error:
            return f"the shared directory {self._directory} cannot be written: {self._error}"
        if self._took_s > SLOW_S:
            return f"the shared directory {self._directory} is slow: a small write took {self._took_s:.1f} s"
        return ""
