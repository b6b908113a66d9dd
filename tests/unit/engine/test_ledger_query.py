"""`rmsplugin ledger query`: what it answers, that it only reads, and what it keeps to itself."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from others import open_directory
from sqlite_utils.utils import decode_base64_values
from unit.cli.json_documents import answer_of
from unit.reported import Told, write_settings

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger import ledger_query
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.ledger_file import copy_database
from rmsplugin.engine.ledger.parcel_book import ParcelKind

#: Of a query that does not end.
ENDLESS = "with recursive n(x) as (select 1 union all select x + 1 from n) select max(x) from n"
#: Of one that never runs out of rows.
ROWS = "with recursive n(x) as (select 1 union all select x + 1 from n) select x from n"


@dataclass
class Said:
    status: int
    out: str
    err: str


Query = Callable[..., Said]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """The ledger of an engine that runs."""
    told = Told(tmp_path)
    with told.ledger.transaction():
        for number in range(4):
            told.at(number).ledger.event("kind", f"event {number}", vjob="12")
    yield told
    told.ledger.close()


@pytest.fixture
def query(told: Told, capsys: pytest.CaptureFixture[str]) -> Query:
    def ask(*words: str) -> Said:
        status = main(["ledger", "query", "--config", str(told.settings), *words])
        return Said(status, *capsys.readouterr())

    return ask


def files(path: Path) -> dict[str, bytes]:
    """The ledger and its log of changes. What SQLite keeps for those that read is beside them."""
    return {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}


# -- what it answers -------------------------------------------------------------------------------------------------


def test_rows_are_an_aligned_table_with_numbers_to_the_right(query: Query) -> None:
    said = query("select id, message, case id when 2 then null else id * 5 end as five from events where id < 3")
    assert said == Said(0, "ID MESSAGE FIVE\n 1 event 0    5\n 2 event 1    -\n", "")


def test_titles_can_be_left_out_and_are_there_without_rows(query: Query) -> None:
    assert query("--noheader", "select 1 as one, 'b' as two").out == "1 b\n"
    assert query("--noheader", "--csv", "select 1 as one, 'b' as two").out == "1,b\n"
    assert query("select id, kind from events where id > 9").out == "ID KIND\n"
    assert query("--csv", "select id, kind from events where id > 9").out == "id,kind\n"


def test_text_cannot_move_the_cursor(query: Query) -> None:
    assert query("select 'a' || char(27) || '[2J' as \"b\x1b\"").out == "B\\X1B\na\\x1b[2J\n"


def test_csv_is_read_back_as_it_was(query: Query) -> None:
    said = query("--csv", "select 'a,\"b' as x, null as y, 1.5 as z, x'00ff' as b")
    assert list(csv.reader(io.StringIO(said.out))) == [["x", "y", "z", "b"], ['a,"b', "", "1.5", "00ff"]]


def test_json_has_values_of_all_kinds_and_says_that_there_is_no_more(query: Query) -> None:
    answer = answer_of(query("--json", "select 1 as i, 0.5 as r, 't' as t, null as n, x'00ff' as b, 9e999 as f").out)
    (row,) = answer["rows"]
    assert decode_base64_values(row) == {"i": 1, "r": 0.5, "t": "t", "n": None, "b": b"\x00\xff", "f": None}
    assert answer["more"] is False


def test_columns_of_one_name_are_all_shown(query: Query) -> None:
    assert answer_of(query("--json", "select 1 as a, 2 as a").out)["rows"] == [{"a": 1, "a_2": 2}]


def test_more_rows_than_the_limit_are_left_off_and_that_is_said(query: Query) -> None:
    assert query("--limit", "2", "select id from events") == Said(
        0, "ID\n 1\n 2\n", "rmsplugin ledger: there are more rows than these 2 (--limit)\n"
    )
    assert query("--limit", "4", "select id from events").err == ""
    assert answer_of(query("--limit", "3", "--json", "select id from events").out)["more"] is True
    assert query("--noheader", ROWS).out.count("\n") == 1000


@pytest.mark.parametrize(
    ("value", "condition", "found"),
    [
        ("event 2", "message = :it", 3),
        ("3", "id = :it", 3),
        ("3", "id + 0 = :it", 3),  # a column says what it compares with; a sum does not
        ("2.5", "id + 0.0 > :it and id < 4", 3),
        ("-1", "-id + 0 = :it", 1),
        ("12", "vjob = :it and id = 1", 1),
        ("' or 1 --", "message = :it", None),
        ("99999999999999999999", "message = :it", None),
    ],
)
def test_a_parameter_compares_as_numbers_and_text_do(
    query: Query, value: str, condition: str, found: int | None
) -> None:
    said = query("--json", "-p", "it", value, f"select id from events where {condition}")
    assert [row["id"] for row in answer_of(said.out)["rows"]] == ([] if found is None else [found])


def test_tables_says_each_column_with_its_type_and_what_it_refers_to(query: Query, told: Told) -> None:
    rows = answer_of(query("--tables", "--json").out)["rows"]
    with closing(sqlite3.connect(told.path)) as connection:
        there = connection.execute(
            "select m.name, c.name from sqlite_master m, pragma_table_info(m.name) c where m.type = 'table'"
        ).fetchall()
    assert {(row["table"], row["column"]) for row in rows} == set(there)
    assert {"table": "vms", "column": "job_id", "type": "integer", "refers_to": "vjobs.job_id"} in rows
    assert query("--tables").out.splitlines()[0].split() == ["TABLE", "COLUMN", "TYPE", "REFERS_TO"]


def test_tables_of_json_and_what_describes_tables_can_be_asked(query: Query) -> None:
    assert query("--noheader", "select value from json_each('[7, 8]')").out == "7\n8\n"
    assert query("--noheader", "select name from pragma_table_info('stores')").out == "name\nmarker\n"
    assert "marker" in query("pragma table_info(stores)").out
    assert "SCAN events" in query("explain query plan select * from events").out


def test_a_copy_can_be_asked_where_there_are_no_settings(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_database(told.path, tmp_path / "copy.sqlite")
    told.ledger.event("kind", "later")
    words = ["ledger", "query", "--config", "/no/such/file", "--noheader", "select count(*) from events"]
    assert main([*words, "--ledger", str(tmp_path / "copy.sqlite")]) == 0
    assert capsys.readouterr().out == "4\n"


# -- what is refused -------------------------------------------------------------------------------------------------


CHANGES = [
    "delete from events",
    "insert into events (time, vjob, vm, node, kind, message) values (1, '', '', '', '', '') returning id",
    "with one as (select 1) update events set kind = 'x'",
    "replace into stores values ('a', 'b')",
    "drop table events",
    "alter table events rename to past",
    "create table more (a)",
    "create temp table more (a)",
    "create index more on events (kind)",
    "create virtual table more using fts5 (a)",
    "update sqlite_master set sql = ''",
    "analyze",
    "reindex",
    "vacuum",
    "vacuum into '{other}'",
    "attach '{other}' as other",
    "detach main",
    "begin exclusive",
    "savepoint a",
    "pragma journal_mode = delete",
    "PRAGMA wal_checkpoint(truncate)",
    "/* only */ pragma user_version = 7",
    "pragma query_only = off",
    "pragma writable_schema = on",
    "select * from pragma_journal_mode",
    "select load_extension('{other}')",
]


@pytest.mark.parametrize("sql", CHANGES)
def test_what_does_more_than_read_is_refused_and_changes_nothing(
    query: Query, told: Told, tmp_path: Path, sql: str
) -> None:
    before = files(told.path)
    said = query(sql.format(other=tmp_path / "other"))
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert "refused" in said.err or "may not be modified" in said.err
    assert files(told.path) == before


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("selec 1", 'near "selec": syntax error'),
        ("select fruit from events", "no such column: fruit"),
        ("select * from fruit", "no such table: fruit"),
        ("select 1; select 2", "one statement at a time"),
        ("select 'a\nb", "unrecognized token"),
        ("", "returns no rows"),
        ("-- nothing", "returns no rows"),
        ("select :it", ":it"),
        ("select ?", "no name"),
        ("select abs(-9223372036854775808)", "integer overflow"),
        ("select length(hex(zeroblob(60000000)))", "too big"),
        ("select cast(x'ff' as text)", "UTF-8"),
        ("select '\udcff'", "not UTF-8"),
    ],
)
def test_wrong_sql_is_one_line_and_status_2(query: Query, sql: str, complaint: str) -> None:
    said = query(sql)
    assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
    assert said.err.startswith("rmsplugin ledger: ") and complaint in said.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "required"),
        (("--tables", "select 1"), "not allowed with"),
        (("--json", "--csv", "select 1"), "not allowed with"),
        (("-p", "a b", "1", "select 1"), "'a b' is not the NAME"),
        (("--limit", "0", "select 1"), "at least 1"),
        (("--timeout", "0", "select 1"), "seconds above 0"),
    ],
)
def test_wrong_usage_is_status_2(
    query: Query, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        query(*words)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_query_that_does_not_end_is_given_up_with_status_1(query: Query) -> None:
    said = query("--timeout", "0.05", ENDLESS)
    assert said == Said(1, "", "rmsplugin ledger: the query did not end within 0.05 s (--timeout)\n")


def when_looked_at(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something when a query under way looks at the clock first; the next time its time is over."""
    looks = iter([0.0, 0.0])

    class Clock:
        @staticmethod
        def monotonic() -> float:
            look = next(looks, None)
            if look is None:
                return 1e9
            clock.looked += 1
            if clock.looked == 2:  # the first is at its beginning
                act()
            return look

    clock = Clock()
    clock.looked = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(ledger_query, "time", clock)


def test_a_query_is_interrupted_by_ctrl_c(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt  # as Python does wherever it is then; a signal would go to the main thread

    when_looked_at(monkeypatch, interrupt)
    assert query(ENDLESS) == Said(130, "", "")


# -- the engine, and other readers -----------------------------------------------------------------------------------


def test_the_engine_writes_while_a_query_is_under_way(
    query: Query, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Ledger(told.path, busy_s=0.01)
    when_looked_at(monkeypatch, lambda: engine.event("kind", "meanwhile"))
    reads = f"select (select count(*) from events) + max(x) from ({ROWS})"
    assert query(reads).status == 1  # its time was over
    assert engine.events(limit=1)[0].message == "meanwhile"
    engine.close()


def test_a_query_sees_what_was_there_while_the_engine_is_in_a_transaction(query: Query, told: Told) -> None:
    with told.ledger.transaction():
        told.ledger.event("kind", "not yet")
        assert query("--noheader", "select count(*) from events").out == "4\n"
    assert query("--noheader", "select count(*) from events").out == "5\n"


def test_a_ledger_whose_engine_has_ended_can_be_asked_and_used_again(query: Query, told: Told) -> None:
    told.ledger.close()
    assert query("--noheader", "select count(*) from events").out == "4\n"
    told.ledger = Ledger(told.path)
    told.ledger.event("kind", "again")
    assert query("--noheader", "select count(*) from events").out == "5\n"


def test_a_ledger_that_another_process_has_locked_is_said_to_be(
    query: Query, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.ledger.close()
    monkeypatch.setattr(ledger_query, "BUSY_S", 0.01)
    with closing(sqlite3.connect(told.path, isolation_level=None)) as other:
        other.execute("pragma locking_mode = exclusive")
        other.execute("delete from stores")
        said = query("select * from events")
    assert (said.status, said.out, said.err.count("\n")) == (1, "", 1)
    assert "another process has it locked" in said.err


@pytest.mark.parametrize("words", [("select * from events",), ("--tables",)])
def test_what_is_no_ledger_is_said_in_a_line(query: Query, told: Told, tmp_path: Path, words: tuple[str]) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    text = query("--ledger", str(tmp_path / "text"), *words)
    assert (text.status, text.err.count("\n")) == (2, 1)
    assert "is no ledger" in text.err
    (tmp_path / "ruin").write_bytes(b"SQLite format 3\0" + b"no database " * 100)
    damaged = query("--ledger", str(tmp_path / "ruin"), *words)
    assert (damaged.status, damaged.err.count("\n")) == (1, 1)
    assert "is damaged" in damaged.err
    gone = query("--ledger", str(tmp_path / "gone"), *words)
    assert gone == Said(2, "", f"rmsplugin ledger: there is no ledger {tmp_path}/gone\n")
    assert not (tmp_path / "gone").exists()


# -- keys ------------------------------------------------------------------------------------------------------------


def test_private_keys_are_in_no_column_and_their_absence_is_said(query: Query, told: Told) -> None:
    for number in (12, 13):
        told.submit(number)
        told.ledger.update_vjob(number, private_key="SECRET", public_key="open")
        told.ledger.update_vm(f"vjob{number}-0", host_key="SECRET", host_key_public="open")
    told.ledger.set_aside.open(told.ledger.vjob(12), told.ledger.vms(12), "put aside")
    with told.ledger.transaction():  # vjob 13 goes to another group
        content = {"rows": told.ledger.handed.take_out(13)}
        told.ledger.parcels.pack(ParcelKind.VJOB, 13, "b", content)
    assert sum(data.count(b"SECRET") for data in files(told.path).values()) >= 6
    said_of = {}
    for table in {row["table"] for row in answer_of(query("--tables", "--json").out)["rows"]}:
        said = query("--json", f"select * from {table}")
        assert said.status == 0 and "SECRET" not in said.out
        said_of[table] = said.err
    assert {table for table, err in said_of.items() if err} == {"vjobs", "vms", "asides", "parcels"}
    assert said_of["vms"] == "rmsplugin ledger: private keys are not shown\n"
    assert query("--noheader", "select k is null from (select max(host_key) as k from vms v)").out == "1\n"
    assert query("--noheader", "select host_key_public from vms").out == "open\n"


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody can pass, which a test's own is not."""
    with open_directory() as place:
        yield place


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mode", [0o700, 0o755])
@pytest.mark.parametrize("words", [("query", "select 1"), ("query", "--tables"), ("check",), ("backup",)])
def test_who_may_not_read_the_ledger_is_told_who_may(
    public: Path, capsys: pytest.CaptureFixture[str], mode: int, words: tuple[str, ...]
) -> None:
    state = public / "state"
    state.mkdir(mode)
    Ledger(state / "ledger.sqlite").close()
    write_settings(public / "rmsplugin.toml", state)
    os.seteuid(65534)
    try:
        status = main(["ledger", words[0], "--config", str(public / "rmsplugin.toml"), *words[1:]])
    finally:
        os.seteuid(0)
    assert (status, *capsys.readouterr()) == (
        *(2, ""),
        f"rmsplugin ledger: {state}/ledger.sqlite cannot be read: it holds private keys, and only root and the "
        "engine's user (engine.user) may read it\n",
    )
