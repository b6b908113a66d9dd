"""Settings of a site whose vjobs are plain jobs of Slurm (``hypervisor.platform = "native"``): what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmsplugin.model.durations import NATIVE_DURATIONS
from rmsplugin.settings.cluster import Cluster
from rmsplugin.settings.power import Power
from rmsplugin.settings.slurm import Partition

#: A network that no VM is on.
_NO_NETWORK = {"pool": "0.0.0.0-0.0.0.0", "prefix_length": 32, "filter": ""}
#: Sections that say something of VMs, of their nodes, or of groups of these.
_OF_VMS = ("hosts", "group", "rule", "nodes", "start", "network", "memory", "guest", "image")


def is_native(data: Any) -> bool:
    """Whether settings, as they are read from a file, have the platform `native`."""
    hypervisor = data.get("hypervisor") if isinstance(data, Mapping) else None
    return isinstance(hypervisor, Mapping) and hypervisor.get("platform") == "native"


def for_native(data: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are read, with what each site with VMs has to say; a partition has its own nodes.

    Raises:
        ValueError: a section is there that only counts for VMs.
    """
    if given := [name for name in _OF_VMS if data.get(name)]:
        raise ValueError(f'[{given[0]}] says something of VMs, and hypervisor.platform is "native": remove it')
    durations = data.get("durations", {})
    told = {**NATIVE_DURATIONS, **durations} if isinstance(durations, Mapping) else durations
    return {**data, "network": _NO_NETWORK, "image": {}, "partition": _partitions(data), "durations": told}


def _partitions(data: Mapping[str, Any]) -> Any:
    slurm, given = data.get("slurm"), data.get("partition", {})
    names = slurm.get("partitions") if isinstance(slurm, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(names, list | tuple):
        return given  # as with VMs, it is told what is wrong with them
    return {**{name: {"hosts": name} for name in names if isinstance(name, str)}, **given}


def why_not_native(partitions: Mapping[str, Partition], power: Power, cluster: Cluster) -> str:
    """What these sections ask for that plain jobs do not have, and what to do; empty: nothing."""
    for name, partition in partitions.items():
        where = f"[partition.{name}]"
        if partition.hosts not in partitions:
            return f"{where} hosts is {partition.hosts!r}, which is none of slurm.partitions; remove it"
        if partition.memory == "observed":
            return f'{where} memory = "observed": Slurm books the memory that a native job asked for; remove it'
        if partition.cpu_overbooking != 1:
            return f"{where} cpu_overbooking: Slurm starts no job beside CPUs that it gave away; remove it"
        if partition.checkpoint_interval_s:
            return f"{where} checkpoint_interval_s: native jobs have no checkpoints; remove it"
    if power.switch:
        return "power.switch: nodes of native jobs are switched by Slurm's own power saving; remove it"
    if cluster.coordination != "local":
        return 'cluster.coordination: native jobs have one engine; set "local"'
    return ""
