"""Events: `rmsplugin events`, what happened, and what happens."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    Table,
    add_table_options,
    columns_of,
    print_rows,
    text_of,
    time_of,
)
from rmsplugin.errors import UnavailableError

if TYPE_CHECKING:
    from rmsplugin.api.answers import Event
    from rmsplugin.api.binding import Engine


#: Pause between two looks for new events, and how many of them one look takes: more do not happen in a pause.
_FOLLOW_S = 1.0

_FOLLOW_LIMIT = 10000

FIELDS = (
    Field("id", "number of the event, for --since", text_of("id"), right=True),
    Field("time", "when it happened", time_of("time")),
    Field("vjob", "the vjob that it concerns", text_of("vjob"), right=True),
    Field("vm", "the VM that it concerns", text_of("vm")),
    Field("node", "the node that it concerns", text_of("node")),
    Field("kind", "its kind, one word", text_of("kind")),
    Field("message", "what happened, in a sentence", text_of("message")),
)


def add_command(commands: options.Commands) -> None:
    """Add events to the command line."""
    events = options.add_command(
        commands,
        "events",
        "show what happened, oldest first",
        _events,
        """
        With --follow and --json, one JSON object a line.

        examples:
          rmsplugin events
          rmsplugin events -n 5 --format=time,message
          rmsplugin events --since 0 --json
        """,
    )
    events.add_argument("-f", "--follow", action="store_true", help="follow: show further events as they happen")
    events.add_argument("--vjob", metavar="JOBID", type=options.job_id, help="only events of this vjob")
    events.add_argument("--since", metavar="N", type=options.whole_number, default=0, help="only events after number N")
    events.add_argument(
        "-n",
        "--limit",
        metavar="LIMIT",
        type=options.positive_number,
        default=100,
        help="at most the newest N (default: %(default)s)",
    )
    add_table_options(events, FIELDS, "id,time,vjob,vm,node,kind,message")


def _events(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    engine = find_engine(arguments.config)
    rows = _read_events(engine, arguments.vjob, arguments.since, arguments.limit)
    if not arguments.follow:
        print_rows(arguments, columns, "events", rows)
        return 0
    table = Table(columns, header=not arguments.noheader, parsable=arguments.parsable2)
    last = arguments.since
    while True:
        _print_batch(arguments, table, rows)
        last = max([last, *(int(row["id"]) for row in rows)])
        time.sleep(_FOLLOW_S)
        rows = _await_events(engine, arguments.vjob, last)


def _print_batch(arguments: argparse.Namespace, table: Table, rows: list[Event]) -> None:
    lines: Iterable[str] = (json.dumps(row) for row in rows) if arguments.json else table.lines(rows)
    for line in lines:
        print(line)
    sys.stdout.flush()


def _read_events(engine: Engine, vjob: str | None, since: int, limit: int) -> list[Event]:
    return engine.events(since=since, vjob=vjob or "", limit=limit)


def _await_events(engine: Engine, vjob: str | None, since: int) -> list[Event]:
    """Read on; an engine that is being restarted is waited for, as `tail -F` waits for a file."""
    complained = False
    while True:
        try:
            return _read_events(engine, vjob, since, _FOLLOW_LIMIT)
        except UnavailableError as error:
            if not complained:
                print(f"rmsplugin events: {error}; waiting for it", file=sys.stderr)
            complained = True
            time.sleep(_FOLLOW_S)
