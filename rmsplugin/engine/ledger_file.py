"""Ledger file: opens the ledger's database; one of a newer release is refused, an older one copied and migrated."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import sqlite_utils

from rmsplugin import __version__
from rmsplugin.engine.migrations import migrations
from rmsplugin.errors import LedgerError

#: How many copies of older ledgers are kept.
COPIES = 3


def open_database(path: Path) -> sqlite_utils.Database:
    """Open, or make, the ledger at ``path`` (0600), with the schema of this release.

    A ledger with an older schema is copied first, to ``ledger-before-VERSION-TIME.sqlite`` beside it (0600); the newest
    ``COPIES`` copies are kept. All its migrations are done together, or none.

    Raises:
        LedgerError: it is of a newer release, no ledger, or cannot be copied or migrated; it is as it was.
    """
    try:
        if _is_older(path):
            _copy(path)
        # Made with the right mode before SQLite opens it: it holds private keys.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        # One connection behind the ledger's lock; SQLite itself is in serialized mode.
        db = sqlite_utils.Database(sqlite3.connect(path, check_same_thread=False, timeout=30))
        try:
            db.enable_wal()
            db.execute("PRAGMA synchronous = FULL")  # an intent must survive a power cut, too
            with db.atomic():
                migrations.apply(db)
        except BaseException:
            db.close()
            raise
        return db
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{path} cannot be used as the engine's ledger: {error}") from error


def _is_older(path: Path) -> bool:
    """Whether ``path`` is a ledger with an older schema. Only reads.

    Raises:
        LedgerError: it is a ledger of a newer release.
    """
    if not path.exists():
        return False
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
        db = sqlite_utils.Database(connection)
        applied = {step.name for step in migrations.applied(db)}
    known = {step.name for step in migrations.pending(sqlite_utils.Database(memory=True))}
    unknown = ", ".join(sorted(applied - known))
    if unknown:
        raise LedgerError(
            f"{path} was made by a newer release of rmsplugin ({__version__} does not know its {unknown}): install that"
            " release again (operator guide, upgrades)"
        )
    return bool(applied and known - applied)


def _copy(path: Path) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    copy = path.with_name(f"{path.stem}-before-{__version__}-{stamp}{path.suffix}")
    new = copy.with_suffix(".new")
    for left in path.parent.glob(f"{path.stem}-before-*.new"):  # by an engine that was killed
        left.unlink()
    try:
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        with (
            closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as source,
            closing(sqlite3.connect(new)) as target,
        ):
            source.backup(target)
        _flush(new)
        new.rename(copy)
        _flush(path.parent)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    copies = sorted(path.parent.glob(f"{path.stem}-before-*{path.suffix}"), key=lambda made: made.stat().st_mtime_ns)
    for old in copies[:-COPIES]:
        old.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
