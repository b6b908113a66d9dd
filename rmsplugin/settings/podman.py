"""Settings of a site whose vjobs run in containers (``hypervisor.platform = "podman"``): what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmsplugin.settings.guests import ContainerImage, Guest, Image
from rmsplugin.settings.nodes import Hypervisor, Network
from rmsplugin.settings.slurm import Partition

#: Keys of [hypervisor] that say something of libvirt or QEMU.
_OF_ANOTHER = (
    "uri",
    "connect",
    "migrate_host",
    "domain_type",
    "machine",
    "migrate_tls",
    "migrate_converge",
    "migrate_emulated",
    "migrate_timeout_s",
)
#: Filters that a node has without libvirt.
_FILTERS = ("nftables", "")


def refuse_of_other_platform(data: Any) -> None:
    """Refuse settings, as they are read from a file, with a key or section that containers have no use for.

    Raises:
        ValueError: there is one.
    """
    hypervisor = data.get("hypervisor") if isinstance(data, Mapping) else None
    if not isinstance(hypervisor, Mapping) or hypervisor.get("platform") != "podman":
        return
    if given := [key for key in _OF_ANOTHER if key in hypervisor]:
        raise ValueError(f'hypervisor.{given[0]} is for libvirt, and hypervisor.platform is "podman": remove it')
    if data.get("start"):
        raise ValueError('[start] is about templates of VMs, and hypervisor.platform is "podman": remove it')


def why_not_containers(
    hypervisor: Hypervisor,
    images: Mapping[str, Image],
    guest: Guest,
    network: Network,
    partitions: Mapping[str, Partition],
) -> str:
    """What these sections ask for that the platform does not have, and what to do; empty: nothing."""
    containers = hypervisor.platform == "podman"
    for name, image in images.items():
        if isinstance(image, ContainerImage) != containers:
            wanted = 'kind = "container"' if containers else 'kind = "kernel" or "qcow2"'
            return f'[image.{name}] hypervisor.platform is "{hypervisor.platform}", which needs {wanted}'
    if not containers:
        return ""
    if given := [key for key in ("tmp_size", "shm_size") if getattr(guest, key)]:
        return f"guest.{given[0]}: a container's files in memory count as its memory, which bounds them; remove it"
    if network.filter not in _FILTERS:
        return f'network.filter is "{network.filter}", a filter of libvirt: set "nftables", or "" for none'
    for name, partition in partitions.items():
        if partition.memory == "observed":
            return f'[partition.{name}] memory = "observed": containers have the memory that is booked; remove it'
    return ""
