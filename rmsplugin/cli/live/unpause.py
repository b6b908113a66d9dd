"""Unpause: `rmsplugin unpause`, by which an operator has the engine decide again."""

from __future__ import annotations

from rmsplugin.cli.live.pause import order
from rmsplugin.cli.shared import arguments as options


def add_command(commands: options.Commands) -> None:
    """Add unpause to the command line."""
    parser = options.add_command(
        commands,
        "unpause",
        "have the engine decide again",
        order,
        """
        For operators. A cycle runs at once.

        examples:
          rmsplugin unpause
        """,
    )
    parser.add_argument("--json", action="store_true", help="the engine's answer, as JSON")
