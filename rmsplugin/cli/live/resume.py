"""Resume: `rmsplugin resume` restores the VMs of a vjob."""

from __future__ import annotations

from rmsplugin.cli.live import operation
from rmsplugin.cli.shared import arguments as options


def add_command(commands: options.Commands) -> None:
    """Add resume to the command line."""
    parser = operation.add_operation(
        commands,
        "resume",
        "restore the VMs of a sleeping vjob, here or on another node",
        """
        For the vjob's user and for operators. Without --to the engine chooses the nodes, and prefers those
        that hold the saved states. The id of a job array means all of its elements; with --to name one of them.

        examples:
          rmsplugin resume 12
          rmsplugin resume 12 15
          rmsplugin resume 12 --to n2
        """,
    )
    operation.add_node_option(parser)
    operation.add_end_options(parser)
