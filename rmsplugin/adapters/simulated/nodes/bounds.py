"""Simulated bounds: the memory that VMs of observed memory may take on each node of a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping

from rmsplugin.adapters.nodes.base import MemoryReport
from rmsplugin.adapters.simulated.hypervisor.machines import SimulatedMachines
from rmsplugin.errors import OperationFailedError


class SimulatedBounds:
    """The bounds of all nodes. Guests do not get memory beyond a bound, and wait for it."""

    def __init__(self, machines: SimulatedMachines | None) -> None:
        """Look at the VMs of ``machines``; without, no VM takes anything."""
        self._machines = machines
        self._bounds: dict[str, int] = {}  # MiB
        self.lacking: dict[str, str] = {}  # the node's missing requirement for a bound
        self.pressure: dict[str, float] = {}

    @property
    def set(self) -> Mapping[str, int]:
        """The present bounds, in MiB, by node."""
        return self._bounds

    def lose(self, node: str) -> None:
        """Lose the bound, as at the node's restart."""
        self._bounds.pop(node, None)

    def bound(self, node: str, mib: int) -> MemoryReport:
        """See ``Nodes.bound_memory``."""
        pressure = self.pressure.get(node, 0.0)
        if node in self.lacking:
            return MemoryReport(False, self.lacking[node], None, None, False, pressure)
        wanted_mib = self._wanted_mib(node)
        used_mib = min(wanted_mib, self._bounds.get(node, wanted_mib))
        if mib and used_mib > mib:
            raise OperationFailedError(f"{node}: {used_mib} MiB are used, which cannot be made {mib}")
        if mib:
            self._bounds[node] = mib
        bound = self._bounds.get(node)
        if bound is None:
            return MemoryReport(False, "", None, None, False, pressure)
        waiting = self._waiting(node, bound)
        return MemoryReport(True, "", bound, min(wanted_mib, bound), wanted_mib > bound, pressure, waiting)

    def _waiting(self, node: str, bound_mib: int) -> tuple[str, ...]:
        """The waiting VMs where more is needed than the bound, whatever is cached: those that need most."""
        if self._machines is None:
            return ()
        with self._machines.lock:
            needs = {
                name: self._machines.memory.used_mib(vm.spec)
                for name, vm in self._machines.vms[node].items()
                if vm.spec.bounded
            }
        return (max(needs, key=lambda name: (needs[name], name)),) if sum(needs.values()) > bound_mib else ()

    def _wanted_mib(self, node: str) -> int:
        if self._machines is None:
            return 0
        with self._machines.lock:
            vms = self._machines.vms[node].values()
            return sum(self._machines.memory.held_mib(vm.spec) for vm in vms if vm.spec.bounded)
