"""Digests: files that are read from end to end. The verbs that read none start faster without this module."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from rmsplugin.node_agent import files


def digest_of(path: Path, beat: Callable[[int], None] = lambda _: None) -> tuple[int, str]:
    """Size and BLAKE2b of a file; ``beat`` is called with the bytes read so far, again and again."""
    digest, done = hashlib.blake2b(), 0
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(files.CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            beat(done)
    return done, digest.hexdigest()


def sync_and_digest(path: Path, beat: Callable[[int], None]) -> tuple[int, str]:
    """``digest_of``, while other processes' writes to the file go to the disk; returns when all of them are there."""
    with open(path, "rb") as file:
        syncing = _Sync(file.fileno())
        size, blake2b = digest_of(path, beat)
        while not syncing.wait(files.PULSE_S):
            beat(size)
    return size, blake2b


class _Sync(threading.Thread):
    """An fsync in a thread of its own: it may take minutes, in which the verb has to report that all is well."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(daemon=True)
        self._descriptor = descriptor
        self._error: OSError | None = None
        self.start()

    def run(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Whether the fsync has ended within the time. Raises OSError if it has failed."""
        self.join(seconds)
        if self._error is not None:
            raise self._error
        return not self.is_alive()
