"""Setup: make what a host of the cluster needs, as far as a program can."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rmsplugin.cli.shared import arguments as options
from rmsplugin.cli.shared.connection import read_settings
from rmsplugin.cli.shared.printable import printable
from rmsplugin.errors import RefusedError

if TYPE_CHECKING:
    from rmsplugin.cli.setup.writing import Writer
    from rmsplugin.settings import Settings

_ROLES = ("controller", "front", "node")


def add_command(commands: options.Commands) -> None:
    """Add setup to the command line."""
    parser = options.add_command(
        commands,
        "setup",
        "make the keys, certificates and files that this host needs, and say what is left to do",
        _setup,
        """
        Run it as root, first on the controller, with the settings in their place. It makes what is missing, and changes
        no file that is there, but for lines that it adds to root's authorized_keys and to the hypervisor's
        configuration. So it may be run again at any time: after a node was added, or to see what differs. It starts
        nothing.

        controller: the engine's key for node agents; a certificate authority in /etc/rmsplugin/ca and the engine's
        certificate, unless the site has its own, or runs jobs in containers, which need none; a file for each VM host
        in /etc/rmsplugin/nodes, with its certificate and keys; site.lua, job_submit.lua, and the lines that slurm.conf
        lacks. Where slurmctld cannot be asked yet, --node names the VM hosts.

        node: the hypervisor's hook and TLS, and directories; with --from what the controller has made for this host.

        front: nothing is made; it says what is missing.

        With platform native only the controller needs something: a directory, site.lua, job_submit.lua, and lines of
        slurm.conf.

        The exit status is 0 also where something is left to do; `rmsplugin check` says whether all is in order.

        examples:
          sudo rmsplugin setup controller --dry-run
          sudo rmsplugin setup controller
          sudo rmsplugin setup controller --node n1 --node n2
          sudo rmsplugin setup node --from n1.tar
        """,
    )
    parser.add_argument("role", metavar="|".join(_ROLES), choices=_ROLES, help="what this host is")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be made")
    parser.add_argument(
        "--node",
        metavar="NODE",
        action="append",
        type=options.node_name,
        help="of a controller: a VM host; may be repeated (default: those that Slurm has)",
    )
    parser.add_argument("--from", dest="parcel", metavar="FILE", type=Path, help="of a VM host: what it is given")
    parser.set_defaults(misused=parser.error)


def _setup(arguments: argparse.Namespace) -> int:
    from rmsplugin.cli.setup.writing import Writer

    if arguments.node and arguments.role != "controller":
        arguments.misused("--node is for a controller")
    if arguments.parcel and arguments.role != "node":
        arguments.misused("--from is for a VM host")
    settings = read_settings(arguments.config)
    if settings.native and (arguments.role != "controller" or arguments.node):
        arguments.misused("platform native has neither VM hosts nor fronts, and needs nothing there: setup controller")
    if os.geteuid() != 0:
        raise RefusedError("setup has to be run by root: try sudo rmsplugin setup")
    writer = Writer(arguments.dry_run)
    _prepare(arguments, settings, writer)
    for line in writer.told:
        print(printable(line))
    if writer.to_do:
        print("left to do:")
    for each in writer.to_do:
        print("\n".join(map(printable, f"  {each}".split("\n"))))
    return 0


def _prepare(arguments: argparse.Namespace, settings: Settings, writer: Writer) -> None:
    if arguments.role == "controller":
        from rmsplugin.cli.check.probe import probe_slurm
        from rmsplugin.cli.setup.controller import Controller

        slurm = probe_slurm(settings)
        nodes = arguments.node or slurm.vm_hosts(settings)
        if not nodes and not settings.native:
            writer.later("name the VM hosts with --node, or start slurmctld: nothing was made for them")
        Controller(settings, slurm, writer).prepare(nodes)
    elif arguments.role == "node":
        from rmsplugin.cli.setup import node
        from rmsplugin.cli.setup.parcel import read_parcel

        node.prepare(settings, writer, read_parcel(arguments.parcel) if arguments.parcel else None)
    else:
        from rmsplugin.cli.check.probe import probe_slurm
        from rmsplugin.cli.setup import front

        front.prepare(settings, writer, lambda: probe_slurm(settings).config)
