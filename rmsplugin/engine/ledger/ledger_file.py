"""Ledger file: opens the ledger's database. A newer release's ledger is refused, an older one's copied and migrated.

A damaged ledger is refused, too: the engine would read there what it never wrote.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import sqlite_utils

from rmsplugin import __version__
from rmsplugin.engine.ledger.migrations import migrations
from rmsplugin.engine.ledger.shared_files import copy_ledger, epoch_of
from rmsplugin.errors import LedgerError, LedgerUnavailableError
from rmsplugin.presence import is_there

#: The file name of the ledger in engine.state_dir.
LEDGER_NAME = "ledger.sqlite"
#: How many copies of older ledgers are kept.
COPIES = 3
#: How long a statement waits for another process that has the ledger locked.
BUSY_S = 30.0
#: The number of damages that are told, of all that SQLite finds.
_TOLD = 5

#: The errors of SQLite for a database that cannot be used now, and the reason for a person.
_UNAVAILABLE = {
    sqlite3.SQLITE_BUSY: "another process has it locked",
    sqlite3.SQLITE_LOCKED: "another process has it locked",
    sqlite3.SQLITE_FULL: "no space is left on its disk",
    sqlite3.SQLITE_IOERR: "its disk fails, or is full",
    sqlite3.SQLITE_CANTOPEN: "its files cannot be opened",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CORRUPT: "it is damaged: see `rmsplugin ledger check`",
    sqlite3.SQLITE_NOTADB: "it is damaged: see `rmsplugin ledger check`",
}


def open_database(path: Path, *, busy_s: float = BUSY_S, exclusive: bool = False) -> sqlite_utils.Database:
    """Open, or make, the ledger at ``path`` (0600), with the schema of this release.

    A ledger with an older schema is copied first, to ``ledger-before-VERSION-TIME.sqlite`` beside it (0600); the newest
    ``COPIES`` copies are kept. All its migrations are done together, or none.

    Args:
        path: of the file.
        busy_s: how long a statement waits for another process that has the ledger locked, in seconds.
        exclusive: it is a ledger on a shared directory, or a copy for one, whose predecessor is kept: it is kept
            locked, needs no memory that processes share, and is not looked through before, nor copied.

    Raises:
        LedgerError: the file is a newer release's, damaged, no ledger, or cannot be copied or migrated.
    """
    try:
        if not exclusive:
            _require_whole(path)
            if _is_older(path):
                _copy(path)
        # Made with the right mode before SQLite opens it: it holds private keys.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        # One connection behind the ledger's lock; SQLite itself is in serialized mode.
        db = _wrapped(sqlite3.connect(path, check_same_thread=False, timeout=busy_s))
        try:
            if exclusive:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.enable_wal()
            db.execute("PRAGMA synchronous = FULL")  # an intent must survive a power cut, too
            with db.atomic():
                migrations.apply(db)
        except BaseException:
            db.close()
            raise
        return db
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(
            f"{path} cannot be used as the engine's ledger: {error}; see `rmsplugin ledger check`"
        ) from error


@contextmanager
def available() -> Iterator[None]:
    """Raise LedgerUnavailableError for an SQLite error that is not the statement's fault."""
    try:
        yield
    except sqlite3.Error as error:
        why = _UNAVAILABLE.get(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF)
        if why is None:
            raise
        raise LedgerUnavailableError(f"the engine's ledger cannot be used now: {why} ({error})") from error


def read_only(path: Path, *, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Connect to the database at ``path`` without changing it. Raises sqlite3.Error.

    The ledger of an epoch, on a shared directory, belongs to one engine alone: a copy of it is read, which has no name
    any more when this returns.
    """
    if epoch_of(path) is None:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=busy_s)
    try:
        with tempfile.TemporaryDirectory(prefix="rmsplugin-ledger-") as directory:
            copy = Path(directory) / LEDGER_NAME
            copy_ledger(path, copy, at_rest=False)
            with closing(sqlite3.connect(copy)) as whole:
                whole.execute("pragma locking_mode = exclusive")
                whole.execute("pragma journal_mode = delete")  # what is in the log goes into the one file
            connection = sqlite3.connect(f"{copy.as_uri()}?mode=ro", uri=True, timeout=busy_s)
            connection.execute("pragma schema_version").fetchone()
            return connection
    except (OSError, LedgerError) as error:
        raise sqlite3.OperationalError(f"no copy of it can be made: {error}") from error


def damages(connection: sqlite3.Connection, *, quick: bool = False) -> list[str]:
    """The first damages that SQLite finds in the database; empty if it is whole.

    Args:
        connection: to the database.
        quick: do not compare the indexes with the tables (a tenth of the time).
    """
    try:
        found = [
            str(row[0]) for row in connection.execute(f"pragma {'quick' if quick else 'integrity'}_check({_TOLD})")
        ]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise  # the database could not be read: nothing is known
        return [str(error)]
    return [] if found == ["ok"] else [" ".join(line.split()) for line in found]


def _require_whole(path: Path) -> None:
    """Raise LedgerError if there is a file with content at ``path`` that is damaged. Only reads."""
    if not is_there(path) or not path.stat().st_size:
        return
    with closing(read_only(path)) as connection:
        found = damages(connection, quick=True)
    if found:
        raise LedgerError(
            f"{path} is damaged ({'; '.join(found)}): the engine does not start with it. `rmsplugin ledger check` "
            "tells more; docs/operator/restoring.md says how to go back to a backup"
        )


def _is_older(path: Path) -> bool:
    """Whether ``path`` is a ledger with an older schema. Only reads.

    Raises:
        LedgerError: the ledger is of a newer release.
    """
    if not is_there(path):
        return False
    with closing(read_only(path)) as connection:
        applied, known = schema_steps(connection)
    unknown = ", ".join(sorted(applied - known))
    if unknown:
        raise LedgerError(
            f"{path} was made by a newer release of rmsplugin ({__version__} does not know its {unknown}): install that"
            " release again (docs/operator/upgrading.md)"
        )
    return bool(applied and known - applied)


def schema_steps(connection: sqlite3.Connection) -> tuple[set[str], set[str]]:
    """The steps that led to the schema of a database, and those that this release knows."""
    applied = {step.name for step in migrations.applied(_wrapped(connection))}
    with closing(sqlite3.connect(":memory:")) as empty:
        return applied, {step.name for step in migrations.pending(_wrapped(empty))}


def with_newest_schema(connection: sqlite3.Connection) -> None:
    """Give a database that nobody else has the schema of this release, whatever its schema was."""
    migrations.apply(_wrapped(connection))


def newest_step() -> str:
    """The last step of the schema that this release knows: the higher, the newer."""
    with closing(sqlite3.connect(":memory:")) as empty:
        return max(step.name for step in migrations.pending(_wrapped(empty)))


def _wrapped(connection: sqlite3.Connection) -> sqlite_utils.Database:
    """Without plugins: to look for some reads the metadata of all installed packages."""
    return sqlite_utils.Database(connection, execute_plugins=False)


def copy_database(path: Path, copy: Path) -> None:
    """Copy the database at ``path`` to ``copy`` (0600), as it is at one moment, while others write it.

    ``copy`` is there as a whole, or not at all.

    Raises:
        FileExistsError: there is something at ``copy`` already; it is unchanged.
        OSError, sqlite3.Error: the database cannot be copied.
    """
    new = copy.with_name(f"{copy.name}.new")
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    try:
        with closing(read_only(path)) as source, closing(sqlite3.connect(new)) as target:
            source.backup(target)
            target.execute("pragma journal_mode = delete")  # one file, and reading it makes no others beside it
        _flush(new)
        os.link(new, copy)  # unlike a rename it replaces nothing
        _flush(copy.parent)
    finally:
        new.unlink(missing_ok=True)


def stamp() -> str:
    """The time, as a part of a file's name."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")


def _copy(path: Path) -> None:
    for left in path.parent.glob(f"{path.stem}-before-*.new"):  # left by an engine that was killed
        left.unlink()
    copy_database(path, path.with_name(f"{path.stem}-before-{__version__}-{stamp()}{path.suffix}"))
    copies = sorted(path.parent.glob(f"{path.stem}-before-*{path.suffix}"), key=lambda made: made.stat().st_mtime_ns)
    for old in copies[:-COPIES]:
        old.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
