"""Migrate: `rmsplugin migrate` moves the VMs of a vjob while they run."""

from __future__ import annotations

from rmsplugin.cli.live import operation
from rmsplugin.cli.shared import arguments as options


def add_command(commands: options.Commands) -> None:
    """Add migrate to the command line."""
    parser = operation.add_operation(
        commands,
        "migrate",
        "move the VMs of a running vjob to other nodes while they run",
        """
        For operators. Without --to the engine chooses the nodes. The id of a job array means all of its elements;
        with --to or --vm name one of them.

        examples:
          rmsplugin migrate 12 --to n2
          rmsplugin migrate 12 15 --to n2
          rmsplugin migrate 12 --vm 0 --to n3
        """,
    )
    operation.add_node_option(parser)
    parser.add_argument("--vm", metavar="VM", type=options.vm, help="only this VM: its name, or its number from 0 on")
    operation.add_end_options(parser)
