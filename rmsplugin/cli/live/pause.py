"""Pausing: an operator has the engine begin no context switch for a while."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import find_engine
from rmsplugin.cli.shared.document import tell
from rmsplugin.cli.shared.sentences import pause_sentence

if TYPE_CHECKING:
    from rmsplugin.api.answers import PauseAnswer


def add_command(commands: options.Commands) -> None:
    """Add pause to the command line."""
    parser = options.add_command(
        commands,
        "pause",
        "have the engine begin no context switch, start or resume until `unpause`",
        order,
        """
        For operators. Steps under way are finished, and steps that have not begun are skipped. The engine still keeps
        vjobs alive: ended jobs are cleaned up, nodes that are drained or taken back are emptied. `suspend`, `resume`
        and `migrate` by hand work as ever. A pause outlives a restart of the engine. `rmsplugin status` shows the
        pause, and `rmsplugin check` warns of it.

        examples:
          rmsplugin pause
          rmsplugin plan --live      # what would be done
          rmsplugin unpause
        """,
    )
    parser.add_argument("--json", action="store_true", help="the engine's answer, as JSON")


def order(arguments: argparse.Namespace) -> int:
    """Have the engine pause, or go on, as the command is called."""
    engine = find_engine(arguments)
    answer = engine.pause() if arguments.command == "pause" else engine.unpause()
    tell(arguments, answer, _sentence(answer))
    return 0


def _sentence(answer: PauseAnswer) -> str:
    pause, changed = answer["paused"], answer["changed"]
    if pause is not None:
        return pause_sentence(pause) if changed else f"{pause_sentence(pause)} already"
    return "the engine decides again" if changed else "the engine is not paused"
