"""Pack: `rmsplugin pack`, the VMs that run packed onto the fewest nodes, for a configuration in a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rmsplugin.cli.plan.display import display, warn_of_unknown_nodes
from rmsplugin.cli.plan.search_options import ENERGY, INSTANCE, add_search_options, search_of
from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.document import print_document
from rmsplugin.cli.shared.printable import printable

if TYPE_CHECKING:
    pass


def add_command(commands: options.Commands) -> None:
    """Add pack to the command line."""
    pack = options.add_command(
        commands,
        "pack",
        "pack the VMs that run onto the fewest nodes, for a configuration in a file",
        _pack,
        """
        Solves the VM Packing Problem alone: only VMs of vjobs that run are packed, from scratch, on nodes that are up.
        The keys `nodes` and `exclude` of vjobs are respected, and so are placement rules (`rules`). The lower bound is
        proven. The file is that of `rmsplugin plan`. --heuristic better-fit does not search: the VMs arrive in the
        order of the file, and each may take the place of one that fills its node less.

        examples:
          rmsplugin pack --instance cluster.json.gz --json
          rmsplugin pack --instance cluster.json.gz --heuristic better-fit

          echo '{"nodes": [{"name": "n1", "cpu": 2, "memory_mib": 4096},
                           {"name": "n2", "cpu": 2, "memory_mib": 4096}],
                 "vjobs": [{"name": "vjob1", "state": "running",
                            "vms": [{"name": "vjob1-0", "cpu": 1, "memory_mib": 512, "host": "n1"},
                                    {"name": "vjob1-1", "cpu": 1, "memory_mib": 512, "host": "n2"}]}]}' |
          rmsplugin pack --instance -
        """,
    )
    pack.add_argument("--instance", metavar="FILE", required=True, help=INSTANCE)
    pack.add_argument(
        "--heuristic",
        metavar="NAME",
        choices=("better-fit",),
        help="better-fit: do not search; VMs arrive one after the other, in the order of the file (RR-7398)",
    )
    pack.add_argument("--energy", metavar="FILE", help=ENERGY)
    add_search_options(pack)
    pack.add_argument("--json", action="store_true", help="the answer as JSON")


def _pack(arguments: argparse.Namespace) -> int:
    with display() as show:
        from rmsplugin.cli.plan import energy, packing
        from rmsplugin.instance import read

        show(f"reading {arguments.instance}")
        configuration = read(arguments.instance)
        warn_of_unknown_nodes(arguments.command, configuration)
        show("packing")
        watts = energy.read(arguments.energy, configuration)
        packed = packing.pack_running(configuration, search_of(arguments), arguments.heuristic)
    told = None if watts is None else energy.of_packing(configuration, packed.packing.assignment, watts)
    if arguments.json:
        document = packing.document(configuration, packed)
        print_document(arguments, document if told is None else {**document, "energy": told})
    else:
        for line in packing.lines(configuration, packed):
            print(printable(line))
        if told is not None:
            print(energy.line(told))
    return 0
