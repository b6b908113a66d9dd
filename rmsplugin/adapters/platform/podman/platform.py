"""Podman platform: containers on all nodes, through the nodes' agents.

An agent obeys no engine whose turn is over, so neither does what it does with containers (``node_agent/vm_verbs.py``).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from rmsplugin.adapters.guests.used import COLUMNS, Used
from rmsplugin.adapters.platform.base import (
    NODE_FILTER,
    AgentCalls,
    ContainerImage,
    HostInfo,
    Progress,
    Ready,
    VMInfo,
    VMPower,
    VMSpec,
    VMStatistics,
    at_once,
)
from rmsplugin.errors import NotFoundError, OperationFailedError
from rmsplugin.model.capabilities import PODMAN, Capabilities
from rmsplugin.model.epochs import FIRST_EPOCH

#: An agent keeps the time of an act itself, and says how it ended; more than this it is not waited for.
_LATER_S = 15.0


class PodmanPlatform:
    """The ``Platform`` of containers; see the module."""

    def __init__(self, agents: AgentCalls) -> None:
        """Ask nobody yet; ``agents``: of the engine, with its epoch."""
        self._agents = agents

    @property
    def capabilities(self) -> Capabilities:
        """See ``Platform``."""
        return PODMAN

    def listen(self, heard: Callable[[str, str], None]) -> None:
        """See ``Platform``: agents tell nothing by themselves."""

    def host_info(self, node: str) -> HostInfo:
        """See ``Platform``."""
        said = self._agents.call(node, ["vm-host"])
        return HostInfo(node, said["cpus"], said["memory_mib"], said["hypervisor"], "podman", frozenset())

    def list_vms(self, node: str) -> dict[str, VMInfo]:
        """See ``Platform``."""
        said: Mapping[str, Any] = self._agents.call(node, ["vm-list"])["vms"]
        return {
            name: VMInfo(name, node, VMPower(vm["power"]), vm["uuid"], vm["job_running"]) for name, vm in said.items()
        }

    def has_vm(self, node: str, name: str) -> bool:
        """See ``Platform``."""
        return bool(self._agents.call(node, ["vm-has", name])["here"])

    def statistics(self, node: str) -> dict[str, VMStatistics]:
        """See ``Platform``."""
        said: Mapping[str, Any] = self._agents.call(node, ["vm-statistics"])["vms"]
        return {name: _statistics(vm) for name, vm in said.items()}

    def used(self, node: str, name: str) -> Used | None:
        """See ``Platform``."""
        said: Mapping[str, Any] = self._agents.call(node, ["vm-used", name])["used"]
        return Used(**{key: int(said[key]) for key in COLUMNS if key in said})

    def template_key(self, node: str, spec: VMSpec) -> str:
        """See ``Platform``."""
        raise _cannot("start a VM from a template")

    def boot(self, node: str, spec: VMSpec, *, timeout_s: float) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-boot", spec.name], timeout_s, content=_description(spec))

    def stop(self, node: str, name: str, *, timeout_s: float) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-stop", name], timeout_s)

    def save(self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-save", name], timeout_s, path, progress=progress)

    def checkpoint(
        self, node: str, name: str, path: str, *, timeout_s: float, progress: Progress | None = None
    ) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-checkpoint", name], timeout_s, path, progress=progress)

    def restore(self, node: str, spec: VMSpec, path: str, *, timeout_s: float) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-restore", spec.name], timeout_s, path, content=_description(spec))

    def pause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``Platform``."""
        self._when_ready(node, "vm-pause", name, timeout_s, ready)

    def unpause(self, node: str, name: str, *, timeout_s: float, ready: Ready = at_once) -> None:
        """See ``Platform``."""
        self._when_ready(node, "vm-unpause", name, timeout_s, ready)

    def set_memory(self, node: str, name: str, mib: int, *, timeout_s: float) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-memory", name], timeout_s, str(mib))

    def set_cpus(self, node: str, name: str, cpus: int, *, timeout_s: float) -> None:
        """See ``Platform``."""
        self._act(node, ["vm-cpus", name], timeout_s, str(cpus))

    def migrate(
        self,
        name: str,
        source: str,
        destination: str,
        *,
        timeout_s: float,
        progress: Progress | None = None,
        epoch: int = FIRST_EPOCH,
    ) -> None:
        """See ``Platform``."""
        raise _cannot("move a VM that runs")

    def abort_job(self, node: str, name: str) -> None:
        """See ``Platform``."""
        self._agents.call(node, ["vm-abort", name])

    def close(self) -> None:
        """See ``Platform``: the connections are the agents'."""

    def _when_ready(self, node: str, verb: str, name: str, timeout_s: float, ready: Ready) -> None:
        if not self.has_vm(node, name):
            raise NotFoundError(f"{name} is not on {node}")
        ready()
        self._act(node, [verb, name], timeout_s)

    def _act(
        self,
        node: str,
        words: list[str],
        timeout_s: float,
        *more: str,
        content: bytes = b"",
        progress: Progress | None = None,
    ) -> None:
        def advance(step: Mapping[str, int]) -> None:
            if progress:
                progress(step["bytes_done"], step["bytes_total"])

        milliseconds = str(max(1, math.ceil(timeout_s * 1000)))
        all_words = [*words, milliseconds, *more]
        self._agents.call(node, all_words, content=content, timeout_s=timeout_s + _LATER_S, advance=advance)


def _statistics(said: Mapping[str, Any]) -> VMStatistics:
    used_kib, most_kib = said["used_kib"], said["most_kib"]
    usable_kib = None if used_kib is None or most_kib is None else max(0, most_kib - used_kib)
    return VMStatistics(
        said["cpu_time_ns"],
        said["cpu_delay_ns"],
        used_kib,
        most_kib,
        memory_usable_kib=usable_kib,
        guest_said_s=said["time_s"],
        # An agent of an older release does not say these.
        cpus=said.get("cpus"),
        received_bytes=said.get("received_bytes"),
        sent_bytes=said.get("sent_bytes"),
    )


def _description(spec: VMSpec) -> bytes:
    """The VM as the node's agent reads it. Raises OperationFailedError: it is no container."""
    if not isinstance(spec.image, ContainerImage):
        raise _cannot("run a VM whose image is no container's")
    if spec.network_filter not in ("", NODE_FILTER):
        raise _cannot(f"have the network filter {spec.network_filter}")
    said = {
        "uuid": spec.uuid,
        "cpus": spec.cpus,
        "memory_mib": spec.memory_mib,
        "reference": spec.image.reference,
        "mounts": [list(mount) for mount in spec.image.mounts],
        "filtered": spec.network_filter == NODE_FILTER,
        "resized_cpus": spec.resized_cpus,
        "resized_memory_mib": spec.resized_memory_mib,
    }
    return json.dumps(said).encode()


def _cannot(what: str) -> OperationFailedError:
    return OperationFailedError(f"podman cannot {what}")
