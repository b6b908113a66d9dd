"""Suspend: `rmsplugin suspend` saves the VMs of a vjob to files."""

from __future__ import annotations

from rmsplugin.cli.live import operation
from rmsplugin.cli.shared import arguments as options


def add_command(commands: options.Commands) -> None:
    """Add suspend to the command line."""
    parser = operation.add_operation(
        commands,
        "suspend",
        "save the VMs of a running vjob to files, and free their CPUs and memory",
        """
        For the vjob's user and for operators. The Slurm job is SUSPENDED meanwhile. The id of a job array means
        all of its elements, as for `scontrol suspend`.

        examples:
          rmsplugin suspend 12
          rmsplugin suspend --no-wait 12
          rmsplugin suspend '12_[1-3]'
          rmsplugin suspend 12 15 '20_[1-3]'
        """,
    )
    operation.add_end_options(parser)
