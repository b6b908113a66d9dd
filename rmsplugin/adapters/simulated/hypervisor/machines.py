"""Simulated machines: the VMs on each node of a cluster in memory, the counters of their CPUs, and their memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from rmsplugin.adapters.platform.base import VMPower, VMSpec
from rmsplugin.adapters.simulated.hypervisor.memory import SimulatedMemory
from rmsplugin.errors import NotFoundError, OperationFailedError
from rmsplugin.model.epochs import FIRST_EPOCH


class InvariantBreachedError(AssertionError):
    """The engine asked for something that must never happen."""


@dataclass(slots=True)
class SimulatedVM:
    """A VM on a node, in whatever state."""

    spec: VMSpec
    power: VMPower
    job_running: bool = False
    cpu_time_ns: float = 0.0
    vcpu_delay_ns: float = 0.0
    received_bytes: float = 0.0
    sent_bytes: float = 0.0

    def refuse_half(self) -> None:
        """Raise OperationFailedError if only a part of the VM is here."""
        if self.power is VMPower.HALF:
            raise OperationFailedError(f"{self.spec.name} is only half there: its post-copy migration broke off")

    def refuse_busy(self) -> None:
        """Raise OperationFailedError while an action on the VM is under way."""
        if self.job_running:
            raise OperationFailedError(f"another action on {self.spec.name} is under way")


class SimulatedMachines:
    """All VMs of all nodes. A caller that changes them, or goes through ``vms``, holds ``lock``."""

    def __init__(self, nodes: Mapping[str, tuple[int, int]], clock: Callable[[], float]) -> None:
        """Make nodes without VMs: name -> (CPUs, memory in MiB)."""
        self.capacity = dict(nodes)
        self.vms: dict[str, dict[str, SimulatedVM]] = {node: {} for node in nodes}
        self.violations: list[str] = []
        self.lock = threading.RLock()
        self._clock = clock
        self._counted_at = dict.fromkeys(nodes, clock())
        self._demands: dict[str, float] = {}  # CPUs, by VM
        self._traffic: dict[str, tuple[float, float]] = {}  # bytes a second, received and sent, by VM
        self._bounds: dict[str, int] = {}  # the CPUs that a VM may use, where the platform bounds them
        self.memory = SimulatedMemory()
        self.epochs: dict[str, int] = {}  # by node, the highest of an engine that has acted there
        #: The nodes on which an engine has shown since they were booted that it leads; None: no node asks for that.
        self.owned: set[str] | None = None

    def boot_anew(self, node: str) -> None:
        """Let the node, which has no VMs now, forget all engines, as one without disks does."""
        self.epochs.pop(node, None)
        if self.owned is not None:
            self.owned.discard(node)

    def where(self, vm: str) -> list[str]:
        """The nodes where the VM exists in any form."""
        with self.lock:
            return [node for node, vms in self.vms.items() if vm in vms]

    def seen(self) -> dict[str, dict[str, SimulatedVM]]:
        """A copy of all VMs as they are at one instant, by node and name."""
        with self.lock:
            return {node: {name: replace(vm) for name, vm in vms.items()} for node, vms in self.vms.items()}

    def on(self, node: str, vm: str) -> SimulatedVM:
        """The VM on the node.

        Raises:
            NotFoundError: the VM is not there.
        """
        found = self.vms[node].get(vm)
        if found is None:
            raise NotFoundError(f"no VM {vm} on {node}")
        return found

    def place(self, node: str, spec: VMSpec, moving_from: str | None = None) -> None:
        """Put a VM on the node.

        VMs whose memory is observed may be larger together than the node, which bounds their use by other means.

        Raises:
            OperationFailedError: an engine of a higher epoch than the VM's has acted there, or none has shown that it
                leads.
            InvariantBreachedError: the VM is elsewhere (I1), or the node has not the memory (I3).
        """
        if spec.epoch < self.epochs.get(node, FIRST_EPOCH):
            raise OperationFailedError(
                f"{node} refuses {spec.name}: the turn of the engine that creates it (epoch {spec.epoch}) is over"
            )
        if self.owned is not None and node not in self.owned:
            raise OperationFailedError(f"{node} refuses {spec.name}: no engine has shown there that it leads")
        elsewhere = [other for other in self.where(spec.name) if other != moving_from]
        if elsewhere:
            self.breach(f"I1: {spec.name} would run on {node} while it is on {', '.join(elsewhere)}")
        capacity_mib = self.capacity[node][1]
        free_mib = capacity_mib - sum(vm.spec.memory_mib for vm in self.vms[node].values() if not vm.spec.bounded)
        if not spec.bounded and spec.memory_mib > free_mib:
            self.breach(f"I3: {spec.name} needs {spec.memory_mib} MiB on {node}, {free_mib} of {capacity_mib} are free")
        self.vms[node][spec.name] = SimulatedVM(spec, VMPower.INCOMING, job_running=True)

    def stand_still(self, node: str, vm: str) -> VMPower:
        """Begin an action on a VM that does not run meanwhile. Returns its power before."""
        self.count(node)
        found = self.on(node, vm)
        before, found.power, found.job_running = found.power, VMPower.PAUSED, True
        return before

    def become(self, node: str, vm: str, power: VMPower) -> None:
        """End the action on the VM, and set its power after it."""
        self.count(node)
        found = self.vms[node].get(vm)
        if found is not None:
            found.power, found.job_running = power, False

    def remove(self, node: str, vm: str) -> None:
        """Remove the VM from the node, or end it there."""
        self.count(node)
        self.vms[node].pop(vm, None)

    def set_demand(self, vm: str, cpus: float) -> None:
        """Let the VM want so many CPUs from now on; see ``SimulatedHypervisor.set_demand``."""
        with self.lock:
            for node in self.where(vm):
                self.count(node)
            self._demands[vm] = cpus

    def set_traffic(self, vm: str, received_bytes_s: float, sent_bytes_s: float) -> None:
        """Let the VM receive and send so many bytes a second from now on, whenever it runs."""
        with self.lock:
            for node in self.where(vm):
                self.count(node)
            self._traffic[vm] = received_bytes_s, sent_bytes_s

    def set_cpus(self, vm: str, cpus: int) -> None:
        """Let the VM use so many CPUs at most; 0: all of its own."""
        for node in self.where(vm):
            self.count(node)
        self._bounds[vm] = cpus

    def cpus(self, spec: VMSpec) -> int:
        """The CPUs that the VM may use."""
        return min(spec.cpus, self._bounds.get(spec.name) or spec.cpus)

    def count(self, node: str) -> None:
        """Bring the counters of the node up to date: to be called before any change of the VMs that run there."""
        now = self._clock()
        passed_ns = max(0.0, now - self._counted_at[node]) * 1e9
        self._counted_at[node] = now
        running = [vm for vm in self.vms[node].values() if vm.power is VMPower.RUNNING]
        wanted = {vm.spec.name: min(self._demands.get(vm.spec.name, 0.0), self.cpus(vm.spec)) for vm in running}
        share = min(1.0, self.capacity[node][0] / (sum(wanted.values()) or 1.0))
        for vm in running:
            vm.cpu_time_ns += passed_ns * wanted[vm.spec.name] * share
            vm.vcpu_delay_ns += passed_ns * wanted[vm.spec.name] * (1 - share)
            received_bytes_s, sent_bytes_s = self._traffic.get(vm.spec.name, (0.0, 0.0))
            vm.received_bytes += passed_ns * 1e-9 * received_bytes_s
            vm.sent_bytes += passed_ns * 1e-9 * sent_bytes_s

    def breach(self, what: str) -> None:
        """Note a breach of an invariant, and raise InvariantBreachedError."""
        self.violations.append(what)
        raise InvariantBreachedError(what)
