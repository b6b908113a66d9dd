"""Checks: what `rmsplugin check` says of podman, runc and CRIU on the nodes, as pure rules on facts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rmsplugin.adapters.platform.base import HostInfo
from rmsplugin.adapters.platform.checks_base import AgentFacts
from rmsplugin.adapters.platform.podman.mounted_checks import judge_mounted
from rmsplugin.finding import Finding, error, ok, warning
from rmsplugin.settings import Settings

#: CRIU before it runs no action script where runc drives it, and cannot read sockets on Linux 6.16 and later.
_LEAST_CRIU = (4, 2)
_INSTALL = "apt-get install podman runc criu on this node"
_RELEASES = "Debian 12 and 13 have older ones; docs/operator/containers.md says where to have it from"


class PodmanChecks:
    """Implements ``checks_base.PlatformChecks``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def silent(self, subject: str, node: str, reason: str) -> Iterator[Finding]:
        """See ``PlatformChecks``: the node's agent is asked, which has a finding of its own."""
        yield error(subject, f"containers: {reason}", "mend the way to the node agent first")

    def host(self, subject: str, info: HostInfo, agent: AgentFacts | None) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        yield warning(
            subject,
            "containers share the node's kernel: whoever finds a hole in it is root of the node",
            'use `hypervisor.platform = "libvirt"` where users are not trusted so far (docs/security.md)',
        )

    def states(self, subject: str, agent: AgentFacts) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        facts = agent.platform
        criu = str(facts.get("criu", ""))
        if not criu or "criu check" in facts.get("silent", ()):
            return  # an older release, there is none, or it is silent: told by ``guards``
        if _numbers(criu) < _LEAST_CRIU:
            yield error(
                subject,
                f"has CRIU {criu}: no container that it restores would stand still until all of its vjob are there",
                f"install CRIU 4.2 or later on this node: {_RELEASES}",
            )
        elif lacks := str(facts.get("criu_check", "")):
            yield error(
                subject,
                f"CRIU {criu} cannot save containers with kernel {facts.get('kernel', '')}: {lacks}",
                "`criu check` there has to say that it looks good: use a kernel with CONFIG_CHECKPOINT_RESTORE",
            )
        else:
            yield ok(subject, f"CRIU {criu} saves and restores containers with kernel {facts.get('kernel', '')}")

    def guards(self, subject: str, agent: AgentFacts) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        facts: Mapping[str, Any] = agent.platform
        if not facts:
            return  # an older release
        silent = facts.get("silent", ())
        for command in silent:
            yield error(
                subject,
                f"`{command}` does not end there: nothing is known of what it would tell",
                "run it there by hand and find out what it waits for: a file system, a lock of podman's, a full CPU",
            )
        missing = [
            name for name in ("podman", "runc", "criu") if not facts.get(name) and f"{name} --version" not in silent
        ]
        if missing:
            yield error(subject, f"has no {', '.join(missing)}: no container can be started or saved there", _INSTALL)
        if facts.get("hook") is False:
            yield error(
                subject,
                "has no /etc/criu/rmsplugin: no container can be restored there",
                "copy hooks/criu to /etc/criu/rmsplugin on this node, mode 755; `rmsplugin setup node` does",
            )
        if facts.get("freezer") is False:
            yield error(
                subject,
                "has no freezer among its control groups: no container can stand still there",
                "mount control groups of version 2, as systemd does",
            )
        for reference, there in sorted(facts.get("images", {}).items()):
            if not there and "podman images" not in silent:
                yield error(subject, f"has no image {reference}", "`podman load` it there: docs/operator/images.md")

    def mounts(self, subject: str, found: Mapping[str, Any]) -> Iterator[Finding]:
        """See ``PlatformChecks``."""
        return judge_mounted(self._settings.guest.mounts, subject, found["mounts"])

    def states_between(self, agents: Mapping[str, AgentFacts]) -> Iterator[Finding]:
        """See ``PlatformChecks``: a state is restored with an image of the same id."""
        ids: dict[str, set[str]] = {}
        for agent in agents.values():
            for reference, image in agent.platform.get("images", {}).items():
                ids.setdefault(reference, set()).update({image} if image else ())
        for reference, found in sorted(ids.items()):
            if len(found) > 1:
                yield error(
                    "nodes",
                    f"have {len(found)} different images {reference}: what one has saved, another cannot restore",
                    "`podman load` the same file on all nodes",
                )

    def open_between(self, subject: str, source: str, destination: str) -> Iterator[Finding]:
        """See ``PlatformChecks``: no podman obeys another node."""
        return iter(())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:2])
