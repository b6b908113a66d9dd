"""Ledger query: what a person asks of a ledger in SQL, while the engine writes it or while it is down.

It only reads: the file is opened so (``mode=ro``), the connection is told so (``query_only``), and an authorizer lets
through nothing but what reads. All rows are fetched, and the ledger closed, before anybody looks at them: a reader that
stays keeps SQLite from emptying the engine's log of changes (``-wal``), though never the engine from writing.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import sqlite_utils
from sqlite_utils.utils import dedupe_keys

from rmsplugin.engine.ledger.ledger_care import require_there
from rmsplugin.engine.ledger.ledger_file import available, read_only
from rmsplugin.errors import QueryError, TimedOutError

#: How long a query waits for a process that has the ledger locked (seconds).
BUSY_S = 5.0
#: No value, and no row, is longer (bytes): a slip in a query does not take the controller's memory.
LONGEST = 64 << 20
#: So many of SQLite's instructions, a millisecond or less, go by between two looks at the clock and at ctrl-C.
_INSTRUCTIONS = 10_000

#: Columns with private keys, which read as NULL. Two have whole rows as JSON: ``asides.vms`` those of VMs, and
#: ``parcels.content`` all that belongs to a vjob.
SECRET = frozenset(
    {
        ("vjobs", "private_key"),
        ("vms", "host_key"),
        ("asides", "private_key"),
        ("asides", "vms"),
        ("parcels", "content"),
    }
)
#: Pragmas that describe a schema, and change nothing.
_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"})
#: What reading is, for an authorizer: https://www.sqlite.org/c3ref/c_alter_table.html
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
#: So SQLite declares a function that makes a table, as json_each, at its first use. It refuses UPDATE sqlite_master
#: itself.
_DECLARING = (sqlite3.SQLITE_UPDATE, "sqlite_master")
#: What is asked for most often that does not read.
_CHANGES = {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
    sqlite3.SQLITE_ATTACH: "ATTACH",
    sqlite3.SQLITE_DETACH: "DETACH",
    sqlite3.SQLITE_TRANSACTION: "a transaction",
    sqlite3.SQLITE_SAVEPOINT: "a savepoint",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a query found, and what is not in them."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]  # by column; values as SQLite has them: None, int, float, str, bytes
    more: bool = False  # there were more rows than were asked for
    withheld: bool = False  # private keys were asked for, and are NULL


def ask(path: Path, sql: str, parameters: Mapping[str, Any], *, limit: int, timeout_s: float) -> Answer:
    """Ask the ledger at ``path``.

    Args:
        path: the ledger, or a copy of it; of whatever release.
        sql: one statement that returns rows.
        parameters: what stands for ``:NAME`` in it.
        limit: the first so many rows are answered.
        timeout_s: how long SQLite may take for them.

    Raises:
        QueryError: it is no SQL, does not only read, or returns no rows.
        TimedOutError: it did not end in time.
        KeyboardInterrupt: somebody did not want to wait.
        LedgerError, LedgerUnavailableError: the ledger cannot be read, or not now.
    """
    with _reading(path, timeout_s) as (db, guard):
        cursor = db.execute(sql, dict(parameters))
        if cursor.description is None:
            raise QueryError("this returns no rows: ask with one SELECT")
        columns = tuple(dedupe_keys(column[0] for column in cursor.description))
        rows = [dict(zip(columns, row, strict=True)) for row in islice(cursor, limit + 1)]
    return Answer(columns, tuple(rows[:limit]), len(rows) > limit, guard.withheld)


def tables(path: Path, *, timeout_s: float) -> Answer:
    """What there is to ask for: each column of each table, its type, and the column that its values refer to.

    Raises:
        TimedOutError, KeyboardInterrupt, LedgerError, LedgerUnavailableError: as ``ask``.
    """
    rows = []
    with _reading(path, timeout_s) as (db, _):
        for table in db.tables:
            refers = {key.column: f"{key.other_table}.{key.other_column}" for key in table.foreign_keys}
            rows += [
                {"table": table.name, "column": it.name, "type": it.type.lower(), "refers_to": refers.get(it.name, "")}
                for it in table.columns
            ]
    return Answer(("table", "column", "type", "refers_to"), tuple(rows))


class _Guard:
    """Says for each statement what of it is read, and ends it when its time is over."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s
        self._late = False
        self._refused = ""
        self.withheld = False

    def authorize(self, action: int, what: str | None, more: str | None, *_: str | None) -> int:
        """SQLite's question before it compiles a statement. Returns SQLITE_OK, SQLITE_DENY or SQLITE_IGNORE."""
        if action == sqlite3.SQLITE_READ and (what, more) in SECRET:
            self.withheld = True
            return sqlite3.SQLITE_IGNORE
        if action in _READING:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION:
            return sqlite3.SQLITE_OK if more != "load_extension" else self._refuse("load_extension()")
        if action == sqlite3.SQLITE_PRAGMA:
            return sqlite3.SQLITE_OK if str(what).lower() in _PRAGMAS else self._refuse(f"PRAGMA {what}")
        if (action, what) == _DECLARING:
            return sqlite3.SQLITE_OK
        schema = what in ("sqlite_master", "sqlite_temp_master")
        return self._refuse(_CHANGES[action] if action in _CHANGES and not schema else "a change of the schema")

    def is_over(self) -> bool:
        """SQLite's question while it runs a statement. An interrupt is raised here, too, and then SQLite ends it."""
        self._late = time.monotonic() > self._end
        return self._late

    def told(self, error: Exception) -> BaseException:
        """What an error of SQLite's is for a person."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if self._refused:
            return QueryError(f"the ledger is only read: {self._refused} is refused")
        if code == sqlite3.SQLITE_INTERRUPT and self._late:
            return TimedOutError(f"the query did not end within {self._timeout_s:g} s (--timeout)")
        if code in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_AUTH):
            return KeyboardInterrupt()  # in a callback, where Python's sqlite3 keeps it for itself
        return QueryError(" ".join(str(error).split()))

    def _refuse(self, what: str) -> int:
        self._refused = what
        return sqlite3.SQLITE_DENY


@contextmanager
def _reading(path: Path, timeout_s: float) -> Iterator[tuple[sqlite_utils.Database, _Guard]]:
    """Open the ledger for statements of a person; their errors are this module's."""
    require_there(path)
    guard = _Guard(timeout_s)
    try:
        with available(), closing(read_only(path, busy_s=BUSY_S)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            # Plugins of sqlite-utils, if this host has any, are not for the ledger.
            db = sqlite_utils.Database(connection, recursive_triggers=False, execute_plugins=False)
            db.execute("pragma query_only = on")
            connection.set_authorizer(guard.authorize)
            connection.set_progress_handler(guard.is_over, _INSTRUCTIONS)
            yield db, guard
    except UnicodeError as error:
        raise QueryError("the query, or a value, is not UTF-8") from error
    except sqlite3.Error as error:
        raise guard.told(error) from error
