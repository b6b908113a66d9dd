"""Parsed rows: one object for each row as long as the row is as it was."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from rmsplugin.engine.ledger.parsed_rows import ParsedRows


@dataclass
class Thing:
    """The object of a row; two of the same values are still two."""

    values: dict[str, Any]


def database() -> sqlite3.Connection:
    """Three rows."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table things (name text primary key, size int)")
    connection.executemany("insert into things values (?, ?)", [("a", 1), ("b", 2), ("c", None)])
    return connection


def test_a_row_that_is_as_it_was_has_the_same_object_and_a_changed_one_another() -> None:
    connection, parsed = database(), ParsedRows(Thing)
    before = parsed.all_of(connection.execute("select * from things order by name"))
    connection.execute("update things set size = 5 where name = 'b'")
    connection.execute("delete from things where name = 'c'")
    connection.execute("insert into things values ('d', 4)")
    after = parsed.all_of(connection.execute("select * from things order by name"))
    assert [thing.values for thing in after] == [
        {"name": "a", "size": 1},
        {"name": "b", "size": 5},
        {"name": "d", "size": 4},
    ]
    assert after[0] is before[0]
    assert after[1] is not before[1]


def test_the_same_values_under_other_columns_are_another_row() -> None:
    connection, parsed = database(), ParsedRows(Thing)
    parsed.all_of(connection.execute("select name, size from things where name = 'a'"))
    (renamed,) = parsed.all_of(connection.execute("select name as label, size from things where name = 'a'"))
    assert renamed.values == {"label": "a", "size": 1}


def test_rows_that_were_not_read_the_last_time_are_forgotten() -> None:
    connection, parsed = database(), ParsedRows(Thing)
    (first,) = parsed.all_of(connection.execute("select * from things where name = 'a'"))
    parsed.all_of(connection.execute("select * from things where name = 'b'"))
    (again,) = parsed.all_of(connection.execute("select * from things where name = 'a'"))
    assert again == first
    assert again is not first
