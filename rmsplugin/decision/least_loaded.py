"""Least loaded: places arriving vjobs beside running ones: on the node with the fewest VMs, then with most free memory.

The order is that of load sharing (``Board.least_loaded``), on nodes that have CPUs and memory, and for vjobs that may
not use all nodes. VMs come; and those that have to migrate go there, too.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from rmsplugin.decision.room import NodeRoom
from rmsplugin.model.elements import VM, VJob
from rmsplugin.packing.ffd import decreasing

#: More than a node's MiB: one VM less counts more than any memory.
_MORE_THAN_MEMORY = 1 << 40

#: Later than any node that has room.
_NOWHERE = np.iinfo(np.int64).max

_Counts = npt.NDArray[np.int64]


class LeastLoaded:
    """The free resources of a room's nodes that take VMs, and the number of VMs on each, while vjobs arrive."""

    def __init__(self, room: NodeRoom) -> None:
        self._site = room.site
        self._names = list(room.site.up)
        free = [room.free_at(name) for name in self._names]
        vms = Counter(room.placement.values())
        self._vms: _Counts = np.array([vms[name] for name in self._names], dtype=np.int64)
        self._cpus: _Counts = np.array([each.centi_cpus for each in free], dtype=np.int64)
        self._memory: _Counts = np.array([each.memory_mib for each in free], dtype=np.int64)
        self._refused: set[object] = set()  # shapes that found no place: nothing is given back, so they find none later

    def place(self, vjob: VJob) -> dict[str, str] | None:
        """Place all VMs of a vjob, the largest first, each on the least loaded node with room; or none.

        Returns:
            Node by VM name; None if one of the VMs finds no node, and then nothing is taken.
        """
        apart = vjob.name in self._site.configuration.apart
        alike = (tuple(sorted(_demands(vjob))), vjob.own_rules, apart, vjob.name if vjob.anchored else "")
        if alike in self._refused:
            return None
        before = self._vms.copy(), self._cpus.copy(), self._memory.copy()
        allowed = np.array([vjob.allows(name) for name in self._names]) if self._site.restricts(vjob) else True
        placed: dict[str, str] = {}
        for vm in sorted(vjob.vms, key=decreasing):
            here = allowed if vm.only is None else np.array([name == vm.only for name in self._names])
            at = self._where(vm.demand.centi_cpus, vm.demand.memory_mib, here & allowed)
            if at is None:
                self._vms, self._cpus, self._memory = before
                self._refused.add(alike)
                return None
            placed[vm.name] = self._names[at]
            if apart:
                allowed = allowed & (np.arange(len(self._names)) != at)
        return placed

    def replace(self, vjob: VJob, vm: VM, here: str, origin: str) -> str:
        """Take a VM that migrates from the node that was found for it to the least loaded one with room.

        Args:
            vjob: the vjob of the VM.
            vm: the VM.
            here: the node where it is counted; it has room at least there.
            origin: the node that it leaves, to which it does not go.

        Returns:
            The node where it is counted then.
        """
        at = self._names.index(here)
        self._vms[at] -= 1
        self._cpus[at] += vm.demand.centi_cpus
        self._memory[at] += vm.demand.memory_mib
        allowed = np.array([name != origin and vjob.allows(name) for name in self._names])
        found = self._where(vm.demand.centi_cpus, vm.demand.memory_mib, allowed)
        return self._names[at if found is None else found]

    def _where(self, centi_cpus: int, memory_mib: int, allowed: npt.NDArray[np.bool_] | bool) -> int | None:
        """Take a VM's demand from the least loaded of the allowed nodes with room; None if there is none."""
        room = (self._cpus >= centi_cpus) & (self._memory >= memory_mib) & allowed
        load = np.where(room, self._vms * _MORE_THAN_MEMORY - self._memory, _NOWHERE)
        at = int(load.argmin()) if len(load) else 0
        if not room[at : at + 1].any():
            return None
        self._vms[at] += 1
        self._cpus[at] -= centi_cpus
        self._memory[at] -= memory_mib
        return at


def _demands(vjob: VJob) -> list[tuple[int, int]]:
    return [(vm.demand.centi_cpus, vm.demand.memory_mib) for vm in vjob.vms]
