"""Factory: opens the platform that runs the VMs of this site, as the settings name it (``hypervisor.platform``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmsplugin.adapters.platform.base import AgentCalls, Platform, WaysThroughAgents
from rmsplugin.adapters.platform.checks_base import PlatformChecks
from rmsplugin.adapters.platform.host_files import HostFiles
from rmsplugin.settings import Settings


def _libvirt(settings: Settings, ways: WaysThroughAgents | None, agents: AgentCalls) -> Platform:
    from rmsplugin.adapters.platform.libvirt import opening  # here: no other platform needs its packages

    return opening.open_platform(settings.hypervisor, ways)


def _podman(settings: Settings, ways: WaysThroughAgents | None, agents: AgentCalls) -> Platform:
    from rmsplugin.adapters.platform.podman.platform import PodmanPlatform

    return PodmanPlatform(agents)


def _checks_of_libvirt(settings: Settings) -> PlatformChecks:
    from rmsplugin.adapters.platform.libvirt.checks.rules import LibvirtChecks

    return LibvirtChecks(settings)


def _checks_of_podman(settings: Settings) -> PlatformChecks:
    from rmsplugin.adapters.platform.podman.checks import PodmanChecks

    return PodmanChecks(settings)


def _files_of_libvirt() -> HostFiles:
    from rmsplugin.adapters.platform.libvirt import setting_up

    return setting_up.FILES


def _files_of_podman() -> HostFiles:
    from rmsplugin.adapters.platform.podman import setting_up

    return setting_up.FILES


#: The function that opens each platform, by its name in the settings. Nothing is connected to before the first call.
PLATFORMS: Mapping[str, Callable[[Settings, WaysThroughAgents | None, AgentCalls], Platform]] = {
    "libvirt": _libvirt,
    "podman": _podman,
}

#: The function that makes the rules of each platform for ``rmsplugin check``.
CHECKS: Mapping[str, Callable[[Settings], PlatformChecks]] = {
    "libvirt": _checks_of_libvirt,
    "podman": _checks_of_podman,
}

#: The function that says what each platform needs on a VM host, for ``rmsplugin setup``.
FILES: Mapping[str, Callable[[], HostFiles]] = {"libvirt": _files_of_libvirt, "podman": _files_of_podman}


def open_platform(settings: Settings, ways: WaysThroughAgents | None, agents: AgentCalls) -> Platform:
    """The platform that the settings name, on all nodes of the site.

    Args:
        settings: the site's.
        ways: the ways to it through the nodes' agents; None: its own way.
        agents: the agents of the nodes, for a platform that has them do all.
    """
    return PLATFORMS[settings.hypervisor.platform](settings, ways, agents)


def platform_checks(settings: Settings) -> PlatformChecks:
    """The rules of the platform that the settings name."""
    return CHECKS[settings.hypervisor.platform](settings)


def platform_files(settings: Settings) -> HostFiles:
    """What the platform that the settings name needs on a VM host."""
    return FILES[settings.hypervisor.platform]()
