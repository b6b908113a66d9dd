"""Ledger care: checks and copies of a ledger, while the engine writes it or while the engine is down."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rmsplugin import __version__
from rmsplugin.engine.ledger.ledger_file import copy_database, damages, read_only, schema_steps, stamp
from rmsplugin.errors import LedgerError, OperationFailedError
from rmsplugin.presence import is_file, is_there

_TOLD = 5
#: The first bytes of any database of SQLite's.
_BEGIN = b"SQLite format 3\0"
#: The share of empty pages from which on a ledger is rewritten, if these are so many bytes, too.
_MANY_EMPTY, _MANY_EMPTY_BYTES = 0.25, 8 << 20
#: A ledger that has more than this is not rewritten while others wait.
_MOST_COMPACTED_BYTES = 512 << 20
#: How long a rewrite waits for a writer.
_COMPACT_BUSY_S = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """The result of a check of a ledger, for a person."""

    whole: bool
    sentence: str


def check(path: Path) -> Health:
    """Read the whole ledger: its pages, its indexes, its references, and the release of its schema. Changes nothing.

    Raises:
        LedgerError: the ledger is not there, or cannot be read.
    """
    require_there(path)
    if not path.stat().st_size:
        return Health(False, f"{path} is empty: the engine would begin with it as if it had never run")
    try:
        with closing(read_only(path)) as connection:
            found = damages(connection) or _dangling(connection)
            if found:
                return Health(False, f"{path} is damaged: {'; '.join(found)}")
            return _schema_health(path, connection)
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


def require_database(path: Path) -> None:
    """Refuse a file that is no database at all: somebody has named another one. An empty one may have been a ledger.

    Raises:
        LedgerError: it is none, is not there, or cannot be read.
    """
    require_there(path)
    try:
        with path.open("rb") as file:
            begin = file.read(len(_BEGIN))
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
    if begin and begin != _BEGIN:
        raise LedgerError(f"{path} is no ledger, or its beginning is damaged: it does not begin as SQLite's files do")


def backup(path: Path, copy: Path | None = None) -> Path:
    """Copy the ledger, as it is at one moment, to ``copy`` (0600), or to a new name beside it. Returns the copy.

    Raises:
        LedgerError: the ledger is not there, or ``copy`` is there already; nothing was changed.
        OperationFailedError: the ledger cannot be copied, or is damaged, as its copy then is; no copy is left.
    """
    require_there(path)
    copy = copy or path.with_name(f"{path.stem}-backup-{stamp()}{path.suffix}")
    try:
        if is_there(copy):
            raise LedgerError(f"{copy} is there already: it is not overwritten")
        copy_database(path, copy)
        health = check(copy)
    except FileExistsError as error:
        raise LedgerError(f"{error.filename} is there already: it is not overwritten") from error
    except (OSError, sqlite3.Error) as error:
        raise OperationFailedError(f"{path} cannot be copied to {copy}: {error}") from error
    if not health.whole:
        copy.unlink()
        raise OperationFailedError(f"no copy is kept of {path}, since the copy is not whole: {health.sentence}")
    return copy


def compact(path: Path) -> int:
    """Give back the room of the ledger's empty pages (VACUUM), if they are many. Returns how many bytes that were.

    Who writes meanwhile waits, for about a second for each 100 MB that stay. So a large ledger is left as it is: its
    empty pages are filled again.

    Raises:
        OperationFailedError: the ledger cannot be rewritten now; it is as it was.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_COMPACT_BUSY_S, isolation_level=None)) as connection:
            size, pages, empty = (
                connection.execute(f"pragma {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
            few = empty < _MANY_EMPTY * pages or empty * size < _MANY_EMPTY_BYTES
            if few or (pages - empty) * size > _MOST_COMPACTED_BYTES:
                return 0
            connection.execute("vacuum")
            left = connection.execute("pragma page_count").fetchone()[0]
            # The file itself gets shorter when the log of changes is written back.
            connection.execute("pragma wal_checkpoint(passive)")
            return int((pages - left) * size)
    except sqlite3.Error as error:
        raise OperationFailedError(f"{path} cannot be rewritten now: {error}") from error


def require_there(path: Path) -> None:
    """Look for a ledger that may be read.

    Raises:
        LedgerError: there is none, or it must not be read.
    """
    try:
        found = is_file(path)
    except PermissionError as error:
        raise _forbidden(path) from error
    except OSError as error:
        raise LedgerError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise LedgerError(f"there is no ledger {path}")
    if not os.access(path, os.R_OK, effective_ids=True):
        raise _forbidden(path)


def _forbidden(path: Path) -> LedgerError:
    return LedgerError(
        f"{path} cannot be read: it holds private keys, and only root and the engine's user (engine.user) may read it"
    )


def _dangling(connection: sqlite3.Connection) -> list[str]:
    """Rows that refer to rows which are not there."""
    rows = connection.execute("pragma foreign_key_check").fetchmany(_TOLD)
    return [f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there" for row in rows]


def _schema_health(path: Path, connection: sqlite3.Connection) -> Health:
    applied, known = schema_steps(connection)
    newest = max(applied, default="")
    if not applied:
        return Health(False, f"{path} is a whole database, but no ledger of rmsplugin's")
    if unknown := applied - known:
        names = ", ".join(sorted(unknown))
        return Health(
            False, f"{path} is whole, but of a newer release: rmsplugin {__version__} does not know its {names}"
        )
    if known - applied:
        return Health(True, f"{path} is whole; its schema ({newest}) is older: the engine copies it and brings it up")
    return Health(True, f"{path} is whole; its schema ({newest}) is that of rmsplugin {__version__}")
