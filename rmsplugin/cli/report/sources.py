"""Sources: the cluster that a report is of, as settings, options and Slurm tell it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmsplugin.errors import RmspluginError, UnavailableError

if TYPE_CHECKING:
    from rmsplugin.adapters.rms.slurm_accounting import Run
    from rmsplugin.report.build import Site
    from rmsplugin.report.document import Node
    from rmsplugin.settings import Settings

_HOW = "--nodes and --cpus-per-node say what nodes there are"


def site(arguments: argparse.Namespace, settings: Settings | None, show: Callable[[str, float], None]) -> Site:
    """The cluster, as far as it can be asked; why not where it cannot."""
    from rmsplugin.energy.parameters import EnergyParameters
    from rmsplugin.report.build import Site
    from rmsplugin.report.power import parameters_of
    from rmsplugin.report.slurm import runs_of

    overhead_mib = settings.memory_overhead_mib if settings else 0
    overheads_mib = {name: image.overhead_mib for name, image in settings.image.items()} if settings else {}
    why = ""
    nodes: list[Node] = []
    cpus: dict[str, int] = {}
    try:
        nodes, cpus = _nodes(arguments, settings)
    except RmspluginError as error:
        why = f"the nodes are not known: {error}; {_HOW}"

    def runs(since: float) -> Iterable[Run]:
        return runs_of(
            _asked(arguments, settings), since, arguments.until, lambda part: show("asking accounting", part)
        )

    energy = parameters_of(settings, cpus) if settings else EnergyParameters({})
    return Site(nodes, why, overhead_mib, cpus, overheads_mib, runs, energy)


def _nodes(arguments: argparse.Namespace, settings: Settings | None) -> tuple[list[Node], dict[str, int]]:
    """The nodes to replay on, and the CPUs of those on which VMs ran, as far as Slurm is asked for either."""
    from rmsplugin.report.document import Node
    from rmsplugin.report.slurm import nodes_of

    if arguments.nodes:
        shape = (arguments.cpus_per_node, arguments.memory_per_node or 0)
        return [Node(f"node{number}", *shape) for number in range(1, arguments.nodes + 1)], {}
    return nodes_of(_asked(arguments, settings))


def _asked(arguments: argparse.Namespace, settings: Settings | None) -> Settings:
    """The settings. Raises UnavailableError if Slurm shall not, or cannot, be asked."""
    if arguments.without_slurm:
        raise UnavailableError("Slurm was not asked (--without-slurm)")
    if settings is None:
        raise UnavailableError("Slurm was not asked, for there are no settings on this host")
    return settings
