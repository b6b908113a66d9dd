"""Sources: the cluster that a report is of, as settings, options and Slurm tell it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmsplugin.errors import ReportError, RmspluginError, UnavailableError

if TYPE_CHECKING:
    from rmsplugin.adapters.rms.slurm_accounting import Run
    from rmsplugin.report.build import Site
    from rmsplugin.report.document import Node
    from rmsplugin.settings import Settings

_HOW = "--nodes and --cpus-per-node say what nodes there are"


def site(arguments: argparse.Namespace, settings: Settings | None, show: Callable[[str, float], None]) -> Site:
    """The cluster, as far as it can be asked; why not where it cannot."""
    from rmsplugin.report.build import Site

    overhead_mib = settings.nodes.memory_overhead_mib if settings else 0
    why = ""
    nodes: list[Node] = []
    try:
        nodes = _nodes(arguments, settings)
    except RmspluginError as error:
        why = f"the nodes are not known: {error}; {_HOW}"

    def runs(since: float) -> Iterable[Run]:
        return _runs(arguments, settings, since, lambda part: show("asking accounting", part))

    return Site(nodes, why, overhead_mib, runs)


def _nodes(arguments: argparse.Namespace, settings: Settings | None) -> list[Node]:
    from rmsplugin.report.document import Node

    if arguments.nodes:
        shape = (arguments.cpus_per_node, arguments.memory_per_node or 0)
        return [Node(f"node{number}", *shape) for number in range(1, arguments.nodes + 1)]
    settings = _asked(arguments, settings)

    # No other command waits for what these import.
    from rmsplugin.adapters.rms.factory import open_rms
    from rmsplugin.engine.rooms import vm_hosts

    slurm, keeps = settings.slurm, settings.nodes
    seen = open_rms("cli", bin_dir=slurm.bin_dir, timeout_s=slurm.command_timeout_s).snapshot()
    found = [seen.nodes[name] for name in vm_hosts(settings, seen)]
    if not found:
        raise ReportError("Slurm has no node in the hosts partitions of the settings")
    return [
        Node(node.name, node.cpus - keeps.cpus_reserved, node.memory_mib - keeps.memory_reserved_mib) for node in found
    ]


def _runs(
    arguments: argparse.Namespace, settings: Settings | None, since: float, tell: Callable[[float], None]
) -> Iterable[Run]:
    from rmsplugin.adapters.rms.slurm_accounting import SlurmAccounting

    slurm = _asked(arguments, settings).slurm
    accounting = SlurmAccounting(slurm.bin_dir, slurm.command_timeout_s)
    return accounting.runs(slurm.partitions, since, arguments.until, tell)


def _asked(arguments: argparse.Namespace, settings: Settings | None) -> Settings:
    """The settings. Raises UnavailableError if Slurm shall not, or cannot, be asked."""
    if arguments.without_slurm:
        raise UnavailableError("Slurm was not asked (--without-slurm)")
    if settings is None:
        raise UnavailableError("Slurm was not asked, for there are no settings on this host")
    return settings
