"""Undrain: `rmsplugin undrain NODE` ends Slurm's drain of nodes."""

from __future__ import annotations

from rmsplugin.cli.live.drain import add_wait_options, drain_or_undrain
from rmsplugin.cli.shared import arguments as options


def add_command(commands: options.Commands) -> None:
    """Add undrain to the command line."""
    undrain = options.add_command(
        commands,
        "undrain",
        "end the drain of nodes in Slurm, and wait until the engine has seen it",
        drain_or_undrain,
        """
        As `scontrol update NodeName=NODE State=RESUME`, which whoever may do may do here.

        examples:
          rmsplugin undrain n3
          rmsplugin undrain 'n[3-5]' --no-wait
        """,
    )
    add_wait_options(undrain)
