"""Pausing: an operator has the engine begin no context switch for a while."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rmsplugin.cli import arguments as options
from rmsplugin.cli.connection import connect, read_settings
from rmsplugin.cli.table import Row, local_time, printable


def add_commands(commands: options.Commands) -> None:
    """Add pause and unpause to the command line."""
    pause = options.add_command(
        commands,
        "pause",
        "have the engine begin no context switch, start or resume until `unpause`",
        _run,
        """
        For operators. What is under way is finished, steps that have not begun are skipped, and what keeps vjobs alive
        goes on: ended jobs are cleaned up, nodes that are drained or taken back are emptied. `suspend`, `resume` and
        `migrate` by hand work as ever. A pause outlives a restart of the engine. `rmsplugin status` shows it, and
        `rmsplugin check` warns of it.

        examples:
          rmsplugin pause
          rmsplugin plan --live      # what would be done
          rmsplugin unpause
        """,
    )
    unpause = options.add_command(
        commands,
        "unpause",
        "have the engine decide again",
        _run,
        """
        For operators. A cycle runs at once.

        examples:
          rmsplugin unpause
        """,
    )
    for command in (pause, unpause):
        command.add_argument("--json", action="store_true", help="what the engine answered, as JSON")


def pause_sentence(pause: Row) -> str:
    """Since when, and by whom: "paused since 2026-01-01T12:00:00 by alice"."""
    return f"paused since {local_time(pause['since'])} by {pause['by']}"


def _run(arguments: argparse.Namespace) -> int:
    answer = connect(read_settings(arguments.config)).request("POST", f"/v1/{arguments.command}", {})
    print(json.dumps(answer) if arguments.json else printable(_sentence(answer)))
    return 0


def _sentence(answer: dict[str, Any]) -> str:
    pause, changed = answer["paused"], answer["changed"]
    if pause is not None:
        return pause_sentence(pause) if changed else f"{pause_sentence(pause)} already"
    return "the engine decides again" if changed else "the engine is not paused"
