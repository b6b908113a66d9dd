"""Chapter: a part of the ledger with tables of its own; all chapters share the ledger's database, lock and clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import sqlite_utils


class Rows(Protocol):
    """A query of the ledger's: its rows, by column."""

    def __call__(self, sql: str, parameters: Iterable[Any] = ()) -> list[dict[str, Any]]:
        """Ask it."""
        ...


class Chapter:
    """What each part needs. Times are seconds since the epoch; several threads may call."""

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


def insert(db: sqlite_utils.Database, table: str, row: dict[str, Any]) -> int:
    """Insert a row into a table that gives it an id. Returns the id."""
    key = db.table(table).insert(row, pk="id").last_pk
    assert isinstance(key, int)
    return key
