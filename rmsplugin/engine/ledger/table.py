"""Table: a part of the ledger with tables of its own. All parts share the ledger's database, lock and clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlite_utils

from rmsplugin.errors import NotFoundError
from rmsplugin.model.job_names import JobName


class Rows(Protocol):
    """The ledger's way to read: rows of a query, each by column."""

    def __call__(self, sql: str, parameters: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Run the query."""
        ...


class LedgerTable:
    """The base of all parts of the ledger. Times are seconds since the epoch; several threads may call."""

    def __init__(
        self,
        write: Callable[[], AbstractContextManager[sqlite_utils.Database]],
        rows: Rows,
        clock: Callable[[], float],
    ) -> None:
        """Take the ledger's transaction, its query, and its clock."""
        self._write = write
        self._rows = rows
        self._clock = clock


# One statement each. The methods of sqlite-utils take some ten statements, most of which ask for the schema.


def insert(db: sqlite_utils.Database, table: str, row: Mapping[str, Any]) -> int:
    """Insert a row. Returns its id, where the table gives it one."""
    marks = ",".join("?" * len(row))
    cursor = db.execute(f"insert into {table} ({','.join(row)}) values ({marks})", list(row.values()))
    return cursor.lastrowid or 0


def update(db: sqlite_utils.Database, table: str, key: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Change columns of the one row that has ``key``, its primary key. Raises NotFoundError."""
    sets, where = " = ?, ".join(changes), " = ? and ".join(key)
    sql = f"update {table} set {sets} = ? where {where} = ?"
    if not db.execute(sql, [*changes.values(), *key.values()]).rowcount:
        raise NotFoundError(f"the ledger has nothing in {table} with {dict(key)}")


def called(column: str, name: JobName) -> tuple[str, list[Any]]:
    """The SQL condition that ``name`` means the vjob whose display id is in ``column``, and its parameters."""
    if not name.ranges:
        return f"({column} = ? or {column} glob ?)", [str(name.job), f"{name.job}_*"]
    element = f"cast(substr({column}, instr({column}, '_') + 1) as integer)"
    within = f"{element} between value ->> 0 and value ->> 1"
    return f"({column} glob ? and exists (select 1 from json_each(?) where {within}))", [
        f"{name.job}_*",
        json.dumps(name.ranges),
    ]
