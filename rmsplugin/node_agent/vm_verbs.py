"""VM verbs: what an engine has the node agent do with VMs, on a platform that obeys no engine by itself.

What each does, and leaves behind, is that of ``adapters.platform.base.Platform``.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmsplugin import defaults
from rmsplugin.adapters.platform.node_base import Call, WantedVM
from rmsplugin.node_agent import guest_filter
from rmsplugin.node_agent.errors import AgentError
from rmsplugin.node_agent.values import Reply, Report, VMName

if TYPE_CHECKING:
    from rmsplugin.adapters.platform.node_base import VMs
    from rmsplugin.node_agent.verbs import Agent

_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ANY_VM = r"vjob[0-9]{1,10}-[0-9]{1,6}"
_REFERENCE = r"[a-z0-9][A-Za-z0-9._/:@-]{0,254}"


class VMVerbs:
    """The verbs, by one agent."""

    def __init__(self, agent: Agent, report: Report) -> None:
        """Raises AgentError: engines reach the platform of this node by its own way."""
        vms = agent.platform.vms()
        if vms is None:
            raise AgentError("failed", f"{agent.config.platform} is asked by its own way: see hypervisor.connect")
        self._agent = agent
        self._report = report
        self._vms: VMs = vms

    def host(self) -> Reply:
        """Describe the node."""
        return self._vms.host()

    def list(self) -> Reply:
        """All VMs of ours that are here."""
        return {"vms": self._vms.list()}

    def has(self, vm: VMName) -> Reply:
        """Whether a VM is here in any form."""
        return {"here": self._vms.has(vm.name)}

    def statistics(self) -> Reply:
        """The counters of all VMs of ours."""
        return {"vms": self._vms.statistics()}

    def used(self, vm: VMName) -> Reply:
        """What the VM has used since it was first started."""
        return {"used": self._vms.used(vm.name)}

    def boot(self, vm: VMName, timeout_ms: int, wanted: bytes) -> Reply:
        """Boot the VM that standard input describes."""
        self._vms.boot(_wanted(vm, wanted), self._call(timeout_ms))
        return {}

    def restore(self, vm: VMName, timeout_ms: int, path: str, wanted: bytes) -> Reply:
        """Restore the VM that standard input describes from this file."""
        # Whose state it is, the file itself says.
        self._vms.restore(_wanted(vm, wanted), self._state(_ANY_VM, path), self._call(timeout_ms))
        return {}

    def stop(self, vm: VMName, timeout_ms: int) -> Reply:
        """End the VM."""
        self._vms.stop(vm.name, self._call(timeout_ms))
        return {}

    def save(self, vm: VMName, timeout_ms: int, path: str) -> Reply:
        """Write the VM's state to this file, and end the VM."""
        self._vms.save(vm.name, self._state(vm.name, path), self._call(timeout_ms))
        return {}

    def checkpoint(self, vm: VMName, timeout_ms: int, path: str) -> Reply:
        """Write the VM's state to this file."""
        self._vms.checkpoint(vm.name, self._state(vm.name, path), self._call(timeout_ms))
        return {}

    def pause(self, vm: VMName, timeout_ms: int) -> Reply:
        """Have the VM stand still."""
        self._vms.pause(vm.name, self._call(timeout_ms))
        return {}

    def unpause(self, vm: VMName, timeout_ms: int) -> Reply:
        """Let the VM go on."""
        self._vms.unpause(vm.name, self._call(timeout_ms))
        return {}

    def set_memory(self, vm: VMName, timeout_ms: int, mib: int) -> Reply:
        """Let the VM use so much memory."""
        self._vms.set_memory(vm.name, mib, self._call(timeout_ms))
        return {}

    def set_cpus(self, vm: VMName, timeout_ms: int, cpus: int) -> Reply:
        """Let the VM use so many CPUs."""
        self._vms.set_cpus(vm.name, cpus, self._call(timeout_ms))
        return {}

    def abort(self, vm: VMName) -> Reply:
        """Have a save or checkpoint of the VM that is under way end as a failure."""
        self._vms.abort(vm.name)
        return {}

    def _call(self, timeout_ms: int) -> Call:
        return Call(
            time.monotonic() + timeout_ms / 1000,
            self._agent.config,
            guest_filter.is_kept,
            self._agent.still_wanted,
            self._agent.one_act,
            self._report,
        )

    def _state(self, vm: str, path: str) -> Path:
        """The file, which has to be a state in a store, of a VM of this name (a pattern). Raises AgentError."""
        file = Path(path)
        if not re.fullmatch(rf"(checkpoint-[1-9][0-9]{{0,11}}\.)?{vm}\.state(\.partial)?", file.name):
            raise AgentError("failed", f"not the name of such a state: {path[:200]!r}")
        config, whole = self._agent.config, self._agent.config.whole_store
        of_groups = None if whole is None else whole / defaults.GROUPS_DIR
        if file.parent not in (config.store, whole) and (of_groups is None or file.parent.parent != of_groups):
            raise AgentError("failed", f"not in a store of this node's settings: {path[:200]!r}")
        return file


def _wanted(vm: VMName, text: bytes) -> WantedVM:
    """The VM that an engine describes. Raises AgentError."""
    try:
        said: dict[str, Any] = json.loads(text)
        mounts = tuple((str(path), bool(writable)) for path, writable in said["mounts"])
        cpus, memory_mib, filtered = int(said["cpus"]), int(said["memory_mib"]), bool(said["filtered"])
        uuid, reference = str(said["uuid"]), str(said["reference"])
        # An engine of an older release resizes nothing.
        resized = int(said.get("resized_cpus", 0)), int(said.get("resized_memory_mib", 0))
    except (ValueError, KeyError, TypeError) as error:
        raise AgentError("failed", f"not the description of a VM: {error}") from None
    if (
        not re.fullmatch(_UUID, uuid)
        or not re.fullmatch(_REFERENCE, reference)
        or cpus < 1
        or memory_mib < 1
        or min(resized) < 0
    ):
        raise AgentError("failed", f"not the description of a VM: {text[:200]!r}")
    return WantedVM(vm.name, uuid, cpus, memory_mib, reference, mounts, filtered, *resized)
