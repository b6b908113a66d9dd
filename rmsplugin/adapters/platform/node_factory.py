"""Factory of nodes: the node's half of the platform that the settings name (``hypervisor.platform``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rmsplugin.errors import SettingsError

if TYPE_CHECKING:
    from rmsplugin.adapters.platform.node_base import PlatformOnNode


def _libvirt() -> PlatformOnNode:
    from rmsplugin.adapters.platform.libvirt.on_node.half import LibvirtOnNode

    return LibvirtOnNode()


def _podman() -> PlatformOnNode:
    from rmsplugin.adapters.platform.podman.on_node.half import PodmanOnNode

    return PodmanOnNode()


#: The function that makes the node's half of each platform, by its name in the settings.
HALVES: Mapping[str, Callable[[], PlatformOnNode]] = {"libvirt": _libvirt, "podman": _podman}

#: Option with which a platform's own hook starts the node agent -> the platform.
HOOK_OPTIONS: Mapping[str, str] = {"--qemu-hook": "libvirt"}


def platform_on_node(name: str) -> PlatformOnNode:
    """The node's half of this platform. Raises SettingsError: there is no such platform."""
    if name not in HALVES:
        raise SettingsError(f"hypervisor.platform is {name!r}, which is none of {', '.join(HALVES)}")
    return HALVES[name]()
