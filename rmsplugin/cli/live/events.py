"""Events: `rmsplugin events`, what happened, and what happens."""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    Table,
    add_table_options,
    columns_of,
    print_rows,
    table_of,
    text_of,
    time_of,
)
from rmsplugin.cli.shared.unknown_names import sentences_of_unknown
from rmsplugin.errors import RefusedError, UnavailableError, WrongOrderError
from rmsplugin.model.event_kinds import GROUPS

if TYPE_CHECKING:
    from rmsplugin.api.answers import Event
    from rmsplugin.api.binding import Engine

#: The HTTP statuses of a place of others, and of a question that an older release does not know.
_CONFLICT, _NOT_UNDERSTOOD = 409, 400
#: Pause between two looks for new events.
_FOLLOW_S = 1.0

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
        With --follow and --json, one JSON object a line. Without --follow, the document has a cursor: --since with it
        gives what is told later, and of more than --limit events the oldest. The next cursor goes on behind them, so
        nothing is missed. A number gives the newest, and misses none only where one engine has all groups.

        kinds of events:
        {kinds}

        examples:
          rmsplugin events
          rmsplugin events -n 5 --format=time,message
          rmsplugin events --since 1h --node n1,n2
          rmsplugin events --user alice --kind vjob-sleeping,vjob-running --since yesterday
          rmsplugin events --since 0 --json
        """.replace("{kinds}", "\n        ".join(_kinds())),
    )
    events.add_argument("-f", "--follow", action="store_true", help="follow: show further events as they happen")
    events.add_argument("--vjob", metavar="JOBID", type=options.job_id, help="only events of this vjob")
    events.add_argument(
        "--since",
        metavar="TIME",
        type=_since,
        default=_Since(),
        help="only events since then: 1h, 30m, 7d, today, YYYY-MM-DD[THH:MM[:SS]]; or only those after the event of "
        "this number; or only those told since the answer with this cursor (see --json)",
    )
    for key, what in (
        ("node", "that name one of these nodes"),
        ("user", "of vjobs of these users"),
        ("kind", "of these kinds"),
    ):
        events.add_argument(
            f"--{key}",
            metavar=f"{key.upper()},...",
            type=options.node_names if key == "node" else options.names,
            default=(),
            help=f"only events {what}",
        )
    events.add_argument(
        "-n",
        "--limit",
        metavar="LIMIT",
        type=options.number_of_rows,
        default=100,
        help="at most the newest N; since a cursor, the oldest (default: %(default)s)",
    )
    add_table_options(events, FIELDS, "id,time,vjob,vm,node,kind,message")


def _kinds() -> Iterator[str]:
    """The kinds of events, by what they are about, in lines of the help."""
    for what, kinds in GROUPS.items():
        yield from textwrap.wrap(
            f"of {what}: {', '.join(kinds)}", 78, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )


class _Since(NamedTuple):
    """Where events begin: behind that of a number, behind a cursor, or at a time in seconds since the epoch.

    With a cursor, the number is for an engine of an older release, which knows no cursors.
    """

    number: int = 0
    time: float = 0.0
    cursor: str = ""


def _since(text: str) -> _Since:
    if text.isdecimal():
        return _Since(number=options.whole_number(text))
    if re.match("[0-9]+[,:]", text):
        return _cursor(text)
    try:
        return _Since(time=options.past_time(text))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; and it is not a whole number") from None


def _cursor(text: str) -> _Since:
    from rmsplugin.model.event_cursor import EventCursor

    try:
        cursor = EventCursor.parse(text)
        return _Since(number=cursor.number, cursor=str(cursor))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _events(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    engine = find_engine(arguments)

    def ask(since: _Since, limit: int) -> tuple[list[Event], str]:
        wanted = {key: getattr(arguments, key) for key in ("node", "user", "kind")}
        return engine.events_and_cursor(
            since=0 if since.cursor else since.number,
            after=since.cursor,
            vjob=arguments.vjob or "",
            limit=limit,
            begin=since.time,
            wanted=wanted,
        )

    def read(since: _Since, limit: int) -> tuple[list[Event], _Since]:
        """The events, and where the next ones begin."""
        try:
            rows, cursor = ask(since, limit)
        except RefusedError as error:
            if error.status == _CONFLICT:
                raise WrongOrderError(str(error)) from None
            if error.status != _NOT_UNDERSTOOD or not since.cursor:
                raise
            rows, cursor = ask(since._replace(cursor=""), limit)  # an engine of an older release goes on from a number
        number = max([since.number, _number_of(cursor), *(int(row.get("id") or 0) for row in rows)])
        return rows, _Since(number, since.time, cursor)

    rows, following = read(arguments.since, arguments.limit)
    # Events name no users: those of whom there are some are known.
    wanted = {"node": arguments.node, "user": () if rows else arguments.user, "kind": arguments.kind}
    unknown = sentences_of_unknown(engine, wanted, rows)
    if unknown and arguments.follow:
        raise WrongOrderError("\n".join(unknown))  # it would be waited for in vain
    if not arguments.follow:
        notes = list(_notes(arguments, engine, len(rows), kinds=not unknown))
        more = {"cursor": following.cursor} if following.cursor else {}
        print_rows(arguments, columns, "events", rows, errors=unknown, warnings=notes, more=more)
        for note in () if arguments.json else notes:
            print(f"rmsplugin events: {note}", file=sys.stderr)
        if unknown:
            raise WrongOrderError("\n".join(unknown))
        return 0
    arguments.json_lines = True
    table = table_of(arguments, columns)
    while True:
        _print_batch(arguments, table, rows)
        time.sleep(_FOLLOW_S)
        rows, following = _await_events(read, following)


def _number_of(cursor: str) -> int:
    """The number of a cursor, for who goes on without one; 0: it is of no engine."""
    own = cursor.partition(",")[0].partition(":")[0]
    return int(own) if own.isdecimal() else 0


def _notes(arguments: argparse.Namespace, engine: Engine, shown: int, *, kinds: bool) -> Iterator[str]:
    """What a list does not show of itself; with ``kinds`` also which kinds there are, where it is empty."""
    if shown == arguments.limit and arguments.since != _Since():
        which = "oldest" if arguments.since.cursor else "newest"
        yield f"only the {which} {shown} events are shown; see --limit"
    if kinds and arguments.kind and not shown:
        newest = engine.events(limit=options.MOST_ROWS)
        there = sorted({event["kind"] for event in newest})
        known = f"there are {', '.join(there)}" if there else "there is none"
        yield f"no such event; of the kinds of the newest {len(newest)} events {known}"


def _print_batch(arguments: argparse.Namespace, table: Table, rows: list[Event]) -> None:
    lines: Iterable[str] = (json.dumps(row) for row in rows) if arguments.json else table.lines(rows)
    for line in lines:
        print(line)
    sys.stdout.flush()


def _await_events(
    read: Callable[[_Since, int], tuple[list[Event], _Since]], since: _Since
) -> tuple[list[Event], _Since]:
    """Read on; an engine that is being restarted is waited for, as `tail -F` waits for a file."""
    complained = False
    while True:
        try:
            return read(since, options.MOST_ROWS)
        except UnavailableError as error:
            if not complained:
                print(f"rmsplugin events: {error}; waiting for it", file=sys.stderr)
            complained = True
            time.sleep(_FOLLOW_S)
