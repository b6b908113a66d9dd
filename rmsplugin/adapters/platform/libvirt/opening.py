"""Opening: libvirt as the settings describe it."""

from __future__ import annotations

from rmsplugin.adapters.platform.base import WaysThroughAgents
from rmsplugin.adapters.platform.libvirt.platform import LibvirtPlatform
from rmsplugin.adapters.platform.libvirt.ways import ByUri, ThroughAgents
from rmsplugin.settings.nodes import Hypervisor


def open_platform(wanted: Hypervisor, ways: WaysThroughAgents | None) -> LibvirtPlatform:
    """Libvirt on all nodes, by the section [hypervisor] of the settings; connects to nothing yet.

    ``ways``: the ways through the nodes' agents; None: libvirt's own way.
    """
    return LibvirtPlatform(
        ThroughAgents(ways) if ways is not None else ByUri(wanted.uri),
        wanted.migrate_host,
        domain_type=wanted.domain_type,
        machine_type=wanted.machine,
        migrate_tls=wanted.migrate_tls,
        migrate_converge=wanted.migrate_converge,
        migrate_emulated=wanted.migrate_emulated,
        connect_timeout_s=wanted.connect_timeout_s,
    )
