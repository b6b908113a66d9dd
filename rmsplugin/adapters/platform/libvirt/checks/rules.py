"""The rules behind the Protocol: libvirt and QEMU on each node, and between nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rmsplugin.adapters.platform.base import NODE_FILTER, HostInfo
from rmsplugin.adapters.platform.checks_base import AgentFacts
from rmsplugin.adapters.platform.libvirt.checks.confinement import judge_confinement, judge_filter
from rmsplugin.adapters.platform.libvirt.checks.formats import judge_format, judge_formats
from rmsplugin.adapters.platform.libvirt.checks.servers import judge_servers
from rmsplugin.finding import Finding, error, warning
from rmsplugin.settings import Settings

_HOOK = "copy hooks/qemu to /etc/libvirt/hooks/qemu on this node, mode 755, and restart libvirtd"


class LibvirtChecks:
    """Implements ``checks_base.PlatformChecks``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def silent(self, subject: str, node: str, reason: str) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        uri = self._settings.hypervisor.uri.replace("{node}", node)
        user = self._settings.engine.user
        yield error(
            subject,
            f"libvirt: {reason}",
            f"`virsh -c '{uri}' version` has to work as {user}: does libvirtd run there, do the certificates match?",
        )

    def host(self, subject: str, info: HostInfo, agent: AgentFacts | None) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        machine = self._settings.hypervisor.machine
        if machine not in info.machines:
            versioned = sorted((name for name in info.machines if "q35" in name), key=_by_version)
            newest = ", ".join(versioned[-4:]) or "none"
            yield error(
                subject,
                f"its QEMU has no machine type {machine}: no VM can be started there, or come there",
                f"set hypervisor.machine to one that all nodes have; newest here: {newest}",
            )
        if info.domain_type != "kvm":
            yield warning(
                subject,
                "VMs are emulated, not virtualised (no KVM): at a tenth of the speed or less, and they stand still "
                "while they are migrated: for trials only",
                "switch virtualisation on in the firmware, load kvm_intel or kvm_amd, check /dev/kvm",
            )
        yield from judge_filter(self._settings.network.filter, subject, info.filters)
        yield from judge_confinement(subject, info, agent)

    def states(self, subject: str, agent: AgentFacts) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        yield from judge_format(subject, agent, "save", agent.save_format)
        if any(each.checkpoint_interval_s for each in self._settings.partition.values()):
            yield from judge_format(subject, agent, "snapshot", agent.snapshot_format)

    def guards(self, subject: str, agent: AgentFacts) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        wanted = self._settings.network.filter
        if agent.vm_hook is False:
            yield error(
                subject,
                "libvirt has no hook that refuses VMs other than ours, or unfiltered ones: root of any node that sends "
                "VMs is root here",
                _HOOK,
            )
        if wanted not in ("", NODE_FILTER) and agent.filter_tools:
            yield error(
                subject,
                f"has no {', '.join(agent.filter_tools)}, by which libvirt filters: no VM starts there, or comes there",
                "install iptables, which has them, on this node; or take network.filter out of the settings: nodes "
                "filter without them",
            )

    def mounts(self, subject: str, found: Mapping[str, Any]) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        return judge_servers(subject, found["file_servers"])

    def states_between(self, agents: Mapping[str, AgentFacts]) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        return judge_formats(agents)

    def open_between(self, subject: str, source: str, destination: str) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        yield error(
            subject,
            f"libvirt on {destination} obeys {source}: whoever is root here is root there",
            f"name the engine's certificate alone in tls_allowed_dn_list of /etc/libvirt/libvirtd.conf on "
            f"{destination}, and restart libvirtd: migrations need no other (docs/operator/certificates-and-keys.md)",
        )


def _by_version(machine: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", machine.partition("q35")[2])]
