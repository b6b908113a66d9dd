"""Slurm: the nodes and the accounting of a report, from Slurm."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmsplugin.adapters.rms.factory import open_rms
from rmsplugin.adapters.rms.slurm_accounting import Run, SlurmAccounting
from rmsplugin.engine.observe.rooms import vm_hosts
from rmsplugin.errors import ReportError
from rmsplugin.report.document import Node
from rmsplugin.settings import Settings


def nodes_of(settings: Settings) -> tuple[list[Node], dict[str, int]]:
    """The VM hosts, each with the part of it that VMs may take; and the number of CPUs of each, by name.

    Raises:
        RmspluginError: Slurm does not answer, or has none.
    """
    slurm, keeps = settings.slurm, settings.nodes
    seen = open_rms("cli", bin_dir=slurm.bin_dir, timeout_s=slurm.command_timeout_s).snapshot()
    found = [seen.nodes[name] for name in vm_hosts(settings, seen)]
    if not found:
        raise ReportError("Slurm has no node in the hosts partitions of the settings")
    offered = [
        Node(node.name, node.cpus - keeps.cpus_reserved, node.memory_mib - keeps.memory_reserved_mib) for node in found
    ]
    return offered, {node.name: node.cpus for node in found}


def runs_of(settings: Settings, since: float, until: float, tell: Callable[[float], None]) -> Iterator[Run]:
    """Accounting's facts about the vjob partitions; see ``SlurmAccounting.runs``. Raises RmspluginError."""
    slurm = settings.slurm
    accounting = SlurmAccounting(slurm.bin_dir, slurm.command_timeout_s)
    return accounting.runs(slurm.partitions, since, until, tell)
