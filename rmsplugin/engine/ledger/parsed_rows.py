"""Parsed rows: what was read of a table before is not made anew where a row is as it was.

A large site has tens of thousands of rows, of which one cycle changes a few. A row's own values are the key, so that
nothing has to be told of changes: a row with another value is another key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ParsedRows(Generic[T]):
    """The objects of the rows that the last ``all_of`` read; they are shared, and nobody changes them."""

    def __init__(self, parse: Callable[[dict[str, Any]], T]) -> None:
        """``parse`` makes the object of a row, given as its values by column."""
        self._parse = parse
        self._known: dict[tuple[Any, ...], T] = {}
        self._columns: tuple[str, ...] = ()

    def all_of(self, cursor: sqlite3.Cursor) -> list[T]:
        """The objects of a cursor's rows, which are remembered in place of those of the call before."""
        columns = tuple(column[0] for column in cursor.description)
        known = self._known if columns == self._columns else {}
        now = {row: known.get(row) or self._parse(dict(zip(columns, row, strict=True))) for row in cursor}
        self._known, self._columns = now, columns
        return list(now.values())
