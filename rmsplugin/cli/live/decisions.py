"""Decisions: `rmsplugin decisions`, what was decided of one vjob, when and why."""

from __future__ import annotations

import argparse

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.table import (
    Field,
    add_table_options,
    columns_of,
    print_rows,
    text_of,
    time_of,
)

FIELDS = (
    Field("time", "when it was decided", time_of("time")),
    Field("cycle", "number of the context switch that followed, if one did", text_of("cycle"), right=True),
    Field("state", "the state decided for the vjob", text_of("state")),
    Field("code", "why, in a word", text_of("code")),
    Field("reason", "why, in a sentence", text_of("reason")),
)


def add_command(commands: options.Commands) -> None:
    """Add decisions to the command line."""
    decisions = options.add_command(
        commands,
        "decisions",
        "show what the engine decided about a vjob, and why, oldest first",
        _decisions,
        """
        One line for each change of the decision, or of the reason for it.

        examples:
          rmsplugin decisions 12
          rmsplugin decisions 12 --json
        """,
    )
    decisions.add_argument("job", metavar="JOBID", type=options.job_id, help=options.JOB_HELP)
    add_table_options(decisions, FIELDS, "time,cycle,state,code,reason")


def _decisions(arguments: argparse.Namespace) -> int:
    columns = columns_of(arguments, FIELDS)
    print_rows(arguments, columns, "decisions", find_engine(arguments).decisions(arguments.job))
    return 0
