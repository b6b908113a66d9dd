"""Querying: `rmsplugin ledger query`, which asks the engine's ledger in SQL, and only reads."""

from __future__ import annotations

import argparse
import base64
import csv
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin.cli.ledger import whose
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable
from rmsplugin.cli.shared.table import Column, Field, Row, Table

if TYPE_CHECKING:
    from rmsplugin.engine.ledger.ledger_query import Answer
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger

_LIMIT = 1000
_TIMEOUT_S = 60
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")


def add_command(commands: options.Commands) -> None:
    """Add query to those of `rmsplugin ledger`."""
    parser = options.add_command(
        commands,
        "query",
        "ask the engine's ledger in SQL, on the controller",
        _query,
        """
        For root and engine.user, on the engine's host, whether or not the engine runs. A query does not hold the engine
        up. Nobody else can read the ledger's file, since it holds private keys. A query does not show these: they are
        NULL, and standard error says so.

        SQL is one statement in SQLite's SQL that returns rows. The ledger is only read: statements that change
        something, ATTACH, and pragmas other than those that describe tables are refused. --tables lists the tables.
        Times are seconds since the epoch: datetime(submitted, 'unixepoch', 'localtime') makes one readable. Tables and
        columns may change with a release.

        Where groups have engines of their own, each of their ledgers is asked, and the column `group` says whose each
        row is; what is counted is counted in each. Ledgers from before, that no engine goes on with, are asked by
        --ledger.

        A VALUE of -p that is a number is bound as one, any other as text; cast(:NAME as text) makes a number text.
        In the table and with --csv, NULL is empty and a blob is in hexadecimal. --json prints an object: the rows, and
        whether there were more. There a blob is an object as sqlite-utils writes it: "$base64", "encoded".

        exit status: 2 where SQL is wrong or refused, or the ledger cannot be read; 1 where the query takes too long, or
        the ledger is locked or damaged.

        examples:
          rmsplugin ledger query --tables
          rmsplugin ledger query "select state, count(*) as vjobs from vjobs group by state"
          rmsplugin ledger query -p user alice "select display_id, state, reason from vjobs where user = :user"
          rmsplugin ledger query --csv --limit 100000 "select * from samples where vm = 'vjob12-0'"
          rmsplugin ledger query --ledger /var/backups/rmsplugin.sqlite --json "select * from stores"
        """,
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("sql", metavar="SQL", nargs="?", help="what to ask")
    asked.add_argument("--tables", action="store_true", help="list the tables and their columns")
    parser.add_argument(
        *("-p", "--param"),
        metavar=("NAME", "VALUE"),
        nargs=2,
        action="append",
        default=[],
        help="value of :NAME in SQL; may be given several times",
    )
    parser.add_argument("--ledger", metavar="FILE", type=Path, help="a copy of the ledger (default: the engine's own)")
    whose.add_option(parser)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=options.positive_number,
        default=_LIMIT,
        help="show at most N rows, and say when there are more (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=options.positive_seconds,
        default=_TIMEOUT_S,
        help="give up after this time, in seconds (default: %(default)s)",
    )
    parser.add_argument("--noheader", action="store_true", help="leave the line of titles out")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the rows as JSON")
    form.add_argument("--csv", action="store_true", help="the rows as comma-separated values")
    parser.set_defaults(misused=parser.error)


def _query(arguments: argparse.Namespace) -> int:
    # The ledger is the engine's: no other command waits for what it imports.
    from rmsplugin.engine.ledger import ledger_care, ledger_query
    from rmsplugin.engine.ledger.site_ledgers import SiteLedger

    parameters = _parameters(arguments)
    if arguments.ledger is not None:
        whose.refuse_both(arguments)
        ledger_care.require_database(arguments.ledger)
        ledgers = [SiteLedger(arguments.ledger)]
    else:
        ledgers = whose.chosen(arguments, left=False)
    if arguments.tables:
        answer = ledger_query.tables(ledgers[0].path, timeout_s=arguments.timeout)
    elif len(ledgers) == 1:
        answer = _ask(arguments, ledgers[0], parameters)
    else:
        answer = _together({each.group: _ask(arguments, each, parameters) for each in ledgers}, arguments.limit)
    _print(arguments, answer)
    for note in _notes(arguments, answer):
        _say(note)
    return 0


def _notes(arguments: argparse.Namespace, answer: Answer) -> list[str]:
    """What is not shown."""
    more = [f"there are more rows than these {arguments.limit} (--limit)"] if answer.more else []
    return [*more, *(["private keys are not shown"] if answer.withheld else [])]


def _ask(arguments: argparse.Namespace, ledger: SiteLedger, parameters: dict[str, Any]) -> Answer:
    from rmsplugin.engine.ledger import ledger_query

    return ledger_query.ask(ledger.path, arguments.sql, parameters, limit=arguments.limit, timeout_s=arguments.timeout)


def _together(answers: dict[str, Answer], limit: int) -> Answer:
    """The rows of all groups, each with the name of its group."""
    name = "group"
    while any(name in answer.columns for answer in answers.values()):
        name += "_"
    rows = [{name: group, **row} for group, answer in answers.items() for row in answer.rows]
    first = next(iter(answers.values()))
    return replace(
        first,
        columns=(name, *first.columns),
        rows=tuple(rows[:limit]),
        more=len(rows) > limit or any(answer.more for answer in answers.values()),
        withheld=any(answer.withheld for answer in answers.values()),
    )


def _parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    for name, _ in arguments.param:
        if not _NAME.fullmatch(name):
            arguments.misused(f"argument -p: {name!r} is not the NAME of a :NAME")
    return {name: _value(text) for name, text in arguments.param}


def _value(text: str) -> int | float | str:
    """A value as SQLite compares it: text is larger than any number, where no column says what it is."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


def _print(arguments: argparse.Namespace, answer: Answer) -> None:
    if arguments.json:
        rows = [{name: _finite(value) for name, value in row.items()} for row in answer.rows]
        told = {"rows": rows, "more": answer.more}
        print_document(arguments, told, warnings=_notes(arguments, answer), default=_blob)
    elif arguments.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if not arguments.noheader:
            writer.writerow(answer.columns)
        writer.writerows([_text(value) for value in row.values()] for row in answer.rows)
    else:
        table = Table([_column(name, answer) for name in answer.columns], header=not arguments.noheader)
        for line in table.lines(answer.rows):
            print(line)


def _column(name: str, answer: Answer) -> Column:
    """Numbers are aligned to the right, where there is nothing else."""
    kinds = {type(row[name]) for row in answer.rows} - {type(None)}
    right = bool(kinds) and kinds <= {int, float}

    def text(row: Row) -> str:
        return _text(row[name])

    return Column(Field(printable(name), "", text, right), right)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return "" if value is None else str(value)


def _finite(value: Any) -> Any:
    """JSON has no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _blob(value: bytes) -> dict[str, Any]:
    return {"$base64": True, "encoded": base64.b64encode(value).decode()}


def _say(sentence: str) -> None:
    print(f"rmsplugin ledger: {sentence}", file=sys.stderr)
