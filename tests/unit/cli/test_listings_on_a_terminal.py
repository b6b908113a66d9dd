"""Listings fit the terminal that shows them; a program that reads them gets whole cells."""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import struct
import termios
from typing import Any

import pytest

from rmsplugin.cli.live import events, nodes, vjobs
from rmsplugin.cli.shared import table
from rmsplugin.cli.shared.table import Field, Row, Table, local_time, parse_format, print_rows, table_of, text_of

REASON = "needs 4 CPUs and 8192 MiB in 2 VMs, which there are on no node beside those that are ahead of it"
FIELDS = tuple(Field(name, "", text_of(name)) for name in ("id", "name", "nothing", "nodes", "reason"))
ROWS: list[Row] = [
    {"id": 12, "name": "a-name-of-a-job-that-somebody-chose", "nodes": "n1,n2,n3,n4,n5,n6,n7", "reason": REASON},
    {"id": 7, "name": "b", "nodes": "n1", "reason": "short"},
]


def asked(format_: str, **more: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"format": format_, "noheader": False, "parsable2": False, "json": False, **more})


def printed(capsys: pytest.CaptureFixture[str], arguments: argparse.Namespace, rows: list[Row] = ROWS) -> list[str]:
    print_rows(arguments, parse_format(arguments.format, FIELDS), "rows", rows)
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Any:
    def wide(width: int | None) -> None:
        monkeypatch.setattr(table, "terminal_width", lambda: width)

    return wide


ALL = "id,name,nothing,nodes,reason"


def test_what_a_program_reads_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    header, first, second = printed(capsys, asked(ALL))
    assert first.endswith(REASON) and header.split() == ["ID", "NAME", "NOTHING", "NODES", "REASON"]
    assert second.split() == ["7", "b", "-", "n1", "short"]


def test_a_cell_of_blanks_holds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, asked(ALL), [{"name": "  ", "reason": "short"}])[1].split() == [*"----", "short"]


@pytest.mark.parametrize("width", [60, 80, 132])
def test_no_line_is_wider_than_the_terminal_and_no_word_of_a_sentence_is_lost(
    capsys: pytest.CaptureFixture[str], wide: Any, width: int
) -> None:
    wide(width)
    header, *lines = printed(capsys, asked(ALL))
    assert max(map(len, [header, *lines])) <= width
    assert header.split() == ["ID", "NAME", "NODES", "REASON"], "a column that holds nothing takes no room"
    at = header.index("REASON")
    assert " ".join(line[at:] for line in lines[:-1]) == REASON
    assert lines[0].startswith("12 a-name-") and all(not line[:at].strip() for line in lines[1:-1])
    assert lines[-1].split() == ["7", "b", "n1", "short"]


def test_a_word_why_stays_whole_and_a_last_column_that_holds_nothing_makes_way(
    capsys: pytest.CaptureFixture[str], wide: Any
) -> None:
    wide(60)
    code = {**ROWS[0], "reason": "DependencyNeverSatisf"}
    assert [line.split()[-1] for line in printed(capsys, asked(ALL), [code])] == ["REASON", code["reason"]]
    header, *lines = printed(capsys, asked("id,name,nodes,nothing"), [{**ROWS[0], "name": REASON}])
    assert header.split() == ["ID", "NAME", "NODES"] and lines[0].endswith(ROWS[0]["nodes"])


def test_ids_numbers_and_starts_are_cut_after_names() -> None:
    row = {"display_id": "1234_[0-9]", "partition": "vjob-partition", "name": "a-long-name", "user": "somebody"}
    row |= {"state": "waiting", "start": 1e10, "vms": 12, "cpus": 32, "memory_mib": 131072, "code": "no-room"}
    columns = parse_format("jobid,partition,name,user,state,start,vms,cpus,memory,why", vjobs.FIELDS)
    _, line = Table(columns, width=80).lines([row])
    job, *names = line.split()[:4]
    assert job == "1234_[0-9]" and all(name.endswith("+") for name in names)
    assert line.split()[4:] == ["waiting", local_time(1e10), "12", "32", "131072M", "no-room"]


def test_what_fits_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], wide: Any) -> None:
    wide(80)
    assert printed(capsys, asked(ALL), ROWS[1:])[0].split() == ["ID", "NAME", "NOTHING", "NODES", "REASON"]
    assert printed(capsys, asked(ALL), []) == ["ID NAME NOTHING NODES REASON"]


def test_a_column_with_a_width_of_its_own_keeps_it(capsys: pytest.CaptureFixture[str], wide: Any) -> None:
    wide(60)
    header, first, *_ = printed(capsys, asked("name%-30,nothing%9,reason%50"))
    assert header == f"{'NAME':<30} {'NOTHING':>9} {'REASON':>50}"
    assert first == f"{'a-name-of-a-job-that-somebody+'} {'-':>9} {REASON[:49]}+"


def test_parsable_lines_are_whole_on_a_terminal(capsys: pytest.CaptureFixture[str], wide: Any) -> None:
    wide(60)
    _, first, _ = printed(capsys, asked(ALL, parsable2=True))
    assert first == f"12|{ROWS[0]['name']}||{ROWS[0]['nodes']}|{REASON}"


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize(
    ("fields", "format_"),
    [(vjobs.FIELDS, vjobs._COLUMNS), (vjobs.FIELDS, vjobs._START_COLUMNS), (nodes.FIELDS, nodes._COLUMNS)],
)
def test_default_listings_of_busy_rows_fit_the_terminal(fields: tuple[Field, ...], format_: str, width: int) -> None:
    full = {each: Field(each.name, "", lambda row: "123456789012345678901234567890") for each in fields}
    lines = list(Table(parse_format(format_, list(full.values())), width=width).lines([{}, {}]))
    assert max(map(len, lines)) <= width


def on_a_narrow_terminal(*rows: Row) -> list[str]:
    columns = parse_format("node,state,vms,cpusused,cpus,memory,load,reason", nodes.FIELDS)
    return list(Table(columns, width=40).lines(rows))


NODE = {"name": "n1.example.org", "state": "draining", "vms": 3, "cpus_used": 2.5, "cpus": 16, "memory_mib": 131072}


def test_a_row_has_several_lines_where_one_would_show_too_little() -> None:
    titles, more_titles, last_title, *lines = on_a_narrow_terminal({**NODE, "reason": REASON}, {**NODE, "reason": "-"})
    assert [*titles.split(), *more_titles.split()] == ["NODE", "STATE", "VMS", "CPUSUSED", "CPUS", "MEMORY", "LOAD"]
    assert last_title == "  REASON" and more_titles.startswith("  ")
    assert lines[0].split() == ["n1.example.org", "draining", "3", "2.5"]
    assert lines[1].split() == ["16", "131072M", "-"] and lines[1].startswith("  ")
    assert lines[0].index("draining") == titles.index("STATE"), "each column stands below its title"
    assert lines[1].index("131072M") + 7 == more_titles.index("MEMORY") + 6
    assert " ".join(line.strip() for line in lines[2:-3]) == REASON
    assert [line.split()[0] for line in lines[-3:]] == ["n1.example.org", "16", "-"]


def test_a_column_with_a_width_of_its_own_keeps_it_where_a_row_has_several_lines() -> None:
    columns = parse_format("node%-6,state,vms%9,cpusused,cpus,memory,load,reason%-30", nodes.FIELDS)
    titles, _, last_title, line, _, last = Table(columns, width=40).lines([{**NODE, "reason": REASON}])
    assert titles == f"{'NODE':<6} {'STATE':<8} {'VMS':>9} CPUSUSED CPUS" and last_title == "  REASON"
    assert line == f"n1.ex+ draining {'3':>9} {'2.5':>8}   16" and last == f"  {REASON[:29]}+"


def test_rows_that_follow_have_the_lines_of_the_first() -> None:
    columns = parse_format("node,state,vms,cpusused,cpus,memory,load,reason", nodes.FIELDS)
    followed = Table(columns, width=40)
    first = list(followed.lines([{**NODE, "reason": REASON}]))
    later = list(followed.lines([{**NODE, "name": "n2." + "example." * 8, "reason": REASON}]))
    assert [line.split()[-1] for line in later] == [line.split()[-1] for line in first[3:]], "three lines are titles"
    assert max(map(len, later)) <= 40


def test_events_that_follow_fit_as_the_first_did(wide: Any) -> None:
    wide(70)
    columns = parse_format("id,time,vjob,vm,node,kind,message", events.FIELDS)
    followed = table_of(asked(""), columns)
    event = {"id": 7, "time": 1e9, "vjob": "12", "vm": "", "node": "n1", "kind": "vjob-waiting", "message": REASON}
    first = list(followed.lines([event]))
    again = list(followed.lines([event, {**event, "message": "short"}]))
    assert again[: len(first) - 1] == first[1:] and max(map(len, again)) <= 70


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    main, sub = pty.openpty()
    try:
        fcntl.ioctl(sub, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 97, 0, 0))
        with os.fdopen(os.dup(sub), "w") as terminal:
            monkeypatch.setattr("sys.stdout", terminal)
            monkeypatch.setattr("sys.__stdout__", terminal)
            assert (table.terminal_width(), table.terminal_width(indent=2)) == (97, 95)
            monkeypatch.undo()
    finally:
        os.close(main)
        os.close(sub)
    assert table.terminal_width() is None
