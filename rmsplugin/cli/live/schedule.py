"""Schedule: what the engine does at times of day, when next, when last, and what came of it."""

from __future__ import annotations

import argparse

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    Row,
    add_table_options,
    columns_of,
    duration,
    print_rows,
    text_of,
    time_of,
)


def _took(row: Row) -> str:
    return "" if row.get("took_s") is None else duration(row["took_s"])


FIELDS = (
    Field("job", "its name", text_of("job")),
    Field("what", "what it does", text_of("what")),
    Field(
        "cron",
        "the times: minute, hour, day of month, month, day of week; for quiet hours of both ends",
        text_of("cron"),
    ),
    Field("next", "its next run", time_of("next")),
    Field("last", "its last run", time_of("last")),
    Field("took", "how long that took", _took, right=True),
    Field(
        "state",
        "waiting (for its first run), running, done, failed, interrupted (the engine ended meanwhile), or off",
        text_of("state"),
    ),
    Field("failures", "how often it has failed in a row", text_of("failures"), right=True),
    Field("result", "result of the last run, or why it is off", text_of("result")),
)
_COLUMNS = "job,cron,next,last,took,state,result"


def add_command(commands: options.Commands) -> None:
    """Add schedule to the command line."""
    parser = options.add_command(
        commands,
        "schedule",
        "show what the engine does at times of day: the next run, the last one, and its result",
        _schedule,
        """
        The times are in section [schedule] of the settings, in its time zone. A job that was missed while no engine
        ran, or because the host's clock was set, is done once. A job that fails is told as an event, too, and tried
        again at its next time. From the second failure in a row on it rests for two minutes, then longer, up to six
        hours.

        examples:
          rmsplugin schedule
          rmsplugin schedule --format job,what,next
          rmsplugin schedule --json
        """,
    )
    add_table_options(parser, FIELDS, _COLUMNS)


def _schedule(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    print_rows(arguments, columns, "schedule", find_engine(arguments).schedule())
    return 0
