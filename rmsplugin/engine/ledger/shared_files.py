"""Shared files: the ledgers of several controllers, one file for each epoch, and copies of them.

Each engine that leads has a file of its own, ``ledger-EPOCH.sqlite``, which no other process ever opens with SQLite: a
deposed engine that was stopped would keep it locked. All others, also commands on the same host, read a copy of the
bytes. A copy is right if nothing in it is newer than what the log of changes (``-wal``) tells:

* The log only grows until it begins anew, which changes its first 32 bytes. What a checkpoint writes into the database
  is in the log. So a database that was read before the log, while the log did not begin anew, is whole with it.
* SQLite reads the log up to the last commit whose check sums are right. Half a change at its end does not count.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rmsplugin.errors import LedgerError

#: How long a copy is tried again while others write.
COPY_S = 30.0
#: Seconds between two tries.
_PAUSE_S = 0.02
_CHUNK_BYTES = 1 << 20
#: The header of a log of changes: with its number and two random words, all new when it begins anew.
_HEADER_BYTES = 32
#: The end of the name of a log of changes.
WAL = "-wal"

_NAME = re.compile(r"ledger-([1-9][0-9]*)\.sqlite")

#: Descriptors of the ledgers that this process has open, by path. The kernel drops all locks of a process on a file
#: when the process closes any descriptor of it: so these are read through descriptors that stay open.
_held: dict[str, int] = {}
_held_lock = threading.Lock()


def name_of(epoch: int) -> str:
    """The file name of the ledger of an epoch."""
    return f"ledger-{epoch}.sqlite"


def epoch_of(path: Path) -> int | None:
    """The epoch whose ledger has this name; None for all other names."""
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else None


def ledgers_in(directory: Path) -> list[Path]:
    """The ledgers of all epochs that are there, the oldest first. Raises OSError."""
    try:
        found = [path for path in directory.iterdir() if epoch_of(path) is not None]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: epoch_of(path) or 0)


def hold(path: Path) -> None:
    """Note that this process is about to open the ledger with SQLite."""
    with _held_lock:
        _held[str(path)] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def let_go(path: Path) -> None:
    """Note that this process has closed the ledger."""
    with _held_lock:
        if (descriptor := _held.pop(str(path), None)) is not None:
            os.close(descriptor)


def copy_ledger(source: Path, target: Path, *, at_rest: bool, within_s: float = COPY_S) -> None:
    """Copy a ledger and its log of changes to ``target`` (0600), as they are at one moment.

    Args:
        source: the ledger, which another process may have open.
        target: where to; overwritten.
        at_rest: nobody may write it meanwhile: a copy during which anything changed is made again.
        within_s: how long it is tried.

    Raises:
        LedgerError: others went on writing for so long.
        OSError: a file cannot be read or written.
    """
    deadline = time.monotonic() + within_s
    while not _copied(source, target, at_rest=at_rest):
        if time.monotonic() > deadline:
            raise LedgerError(f"{source} cannot be copied: it was written all the time, for {within_s:g} s")
        time.sleep(_PAUSE_S)


def _copied(source: Path, target: Path, *, at_rest: bool) -> bool:
    """Copy both files once. Returns whether the copy is right."""
    wal = source.with_name(source.name + WAL)
    log, database = _content(wal), _seen(source)
    _write(target, _chunks(source))
    now = _content(wal)
    _write(target.with_name(target.name + WAL), [now])
    if at_rest:
        return now == log and _seen(source) == database
    return now[:_HEADER_BYTES] == log[:_HEADER_BYTES]


def _content(path: Path) -> bytes:
    """All of a file; nothing if it is not there. It is opened anew, so that NFS asks the server for changes."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _seen(path: Path) -> tuple[int, int, int]:
    """Inode, size in bytes, and time of the last change of a database in nanoseconds."""
    with _reading(path) as descriptor:
        found = os.fstat(descriptor)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _chunks(path: Path) -> Iterator[bytes]:
    at = 0
    with _reading(path) as descriptor:
        while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
            yield chunk
            at += len(chunk)


@contextmanager
def _reading(path: Path) -> Iterator[int]:
    """A descriptor of a database: the one that stays open, if this process has the ledger open itself."""
    with _held_lock:
        held = _held.get(str(path))
    if held is not None:
        yield held
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.writelines(chunks)
