"""Factory: opens the platform that runs the VMs of this site, as the settings name it (``hypervisor.platform``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmsplugin.adapters.platform.base import Platform, WaysThroughAgents
from rmsplugin.adapters.platform.checks_base import PlatformChecks
from rmsplugin.adapters.platform.host_files import HostFiles
from rmsplugin.settings import Settings


def _libvirt(settings: Settings, ways: WaysThroughAgents | None) -> Platform:
    from rmsplugin.adapters.platform.libvirt import opening  # here: no other platform needs its packages

    return opening.open_platform(settings.hypervisor, ways)


def _checks_of_libvirt(settings: Settings) -> PlatformChecks:
    from rmsplugin.adapters.platform.libvirt.checks.rules import LibvirtChecks

    return LibvirtChecks(settings)


def _files_of_libvirt() -> HostFiles:
    from rmsplugin.adapters.platform.libvirt import setting_up

    return setting_up.FILES


#: The function that opens each platform, by its name in the settings. Nothing is connected to before the first call.
PLATFORMS: Mapping[str, Callable[[Settings, WaysThroughAgents | None], Platform]] = {"libvirt": _libvirt}

#: The function that makes the rules of each platform for ``rmsplugin check``.
CHECKS: Mapping[str, Callable[[Settings], PlatformChecks]] = {"libvirt": _checks_of_libvirt}


#: The function that says what each platform needs on a VM host, for ``rmsplugin setup``.
FILES: Mapping[str, Callable[[], HostFiles]] = {"libvirt": _files_of_libvirt}


def open_platform(settings: Settings, ways: WaysThroughAgents | None) -> Platform:
    """The platform that the settings name, on all nodes of the site.

    ``ways``: the ways to it through the nodes' agents; None: its own way.
    """
    return PLATFORMS[settings.hypervisor.platform](settings, ways)


def platform_checks(settings: Settings) -> PlatformChecks:
    """The rules of the platform that the settings name."""
    return CHECKS[settings.hypervisor.platform](settings)


def platform_files(settings: Settings) -> HostFiles:
    """What the platform that the settings name needs on a VM host."""
    return FILES[settings.hypervisor.platform]()
