"""First fit, one vjob after the other: each VM on the first node with room, for queues of tens of thousands of VMs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.packing.ffd import decreasing

#: How many nodes are looked at before all the others are: mostly the first fit is near where the last one was.
_NEAR = 64

_Demand = tuple[int, int]  # hundredths of a CPU, MiB


class FirstFit:
    """What is left of the nodes while vjobs are placed on them in the order of the queue (RR-6929 section 3.2).

    The result is exactly that of looking through all nodes for each VM. What makes it fast: while VMs come and none
    goes, the first node with room for a demand never moves back, so each search begins where the last one for an
    equal demand ended.
    """

    def __init__(self, names: Iterable[str], cpus: Iterable[int], memory: Iterable[int], others: Iterable[str]) -> None:
        """Start with ``cpus`` (hundredths) and ``memory`` (MiB) free on the nodes ``names``; nothing goes to others."""
        self._names = list(names)
        self._index = {name: i for i, name in enumerate(self._names)}
        self._others = frozenset(others)
        self._cpus: npt.NDArray[np.int64] = np.array(list(cpus), dtype=np.int64)
        self._memory: npt.NDArray[np.int64] = np.array(list(memory), dtype=np.int64)
        self._first: dict[_Demand, int] = {}  # no node before this one has room for the demand

    @classmethod
    def on(cls, nodes: Iterable[Node]) -> FirstFit:
        """Begin with empty nodes, in the given order; only those that are up take VMs."""
        known = list(nodes)
        up = [node for node in known if node.state is NodeState.UP]
        return cls(
            (node.name for node in up),
            (node.capacity.centi_cpus for node in up),
            (node.capacity.memory_mib for node in up),
            (node.name for node in known if node.state is not NodeState.UP),
        )

    def place(self, vms: Iterable[VM], allows: Callable[[str], bool] | None = None) -> dict[str, str] | None:
        """Place all the VMs or none: by memory, CPU (descending) and name, each on the first node with room.

        Args:
            vms: the VMs, in any order.
            allows: whether these VMs may be on a node, by its name; None: on any. Faster without.

        Returns:
            Node by VM name, or None if some VM finds no node; then everything is as before.
        """
        placed: dict[str, str] = {}
        taken: list[tuple[int, _Demand]] = []
        before: dict[_Demand, int | None] = {}
        allowed_from: dict[_Demand, int] = {}
        for vm in sorted(vms, key=decreasing):
            demand = (vm.demand.centi_cpus, vm.demand.memory_mib)
            if taken and demand not in before:
                before[demand] = self._first.get(demand)  # what is learnt while nothing is taken yet stays true
            node = self._first[demand] = self._find(demand, self._first.get(demand, 0))
            if allows is not None:
                node = self._find(demand, max(node, allowed_from.get(demand, 0)), allows)
                allowed_from[demand] = node
            if node == len(self._names):
                self._undo(taken, before)
                return None
            self._cpus[node] -= demand[0]
            self._memory[node] -= demand[1]
            taken.append((node, demand))
            placed[vm.name] = self._names[node]
        return placed

    def take(self, vm: VM, node: str) -> None:
        """Reserve what a VM demands that stays where it is, even if there is less than that.

        Nothing is placed on a node that is not up, so nothing needs to be reserved there.

        Raises:
            KeyError: there is no such node.
        """
        if node not in self._others:
            i = self._index[node]
            self._cpus[i] -= vm.demand.centi_cpus
            self._memory[i] -= vm.demand.memory_mib

    def free(self, node: str) -> Resources:
        """What is left of a node for VMs to come: negative if overloaded, nothing if it is not up.

        Raises:
            KeyError: there is no such node.
        """
        if node in self._others:
            return NOTHING
        i = self._index[node]
        return _resources(self._cpus[i], self._memory[i])

    @property
    def total_free(self) -> Resources:
        """What is left of all nodes together; what is overdrawn on one is not missing on another."""
        return _resources(self._cpus.clip(0).sum(), self._memory.clip(0).sum())

    def total_free_on(self, nodes: Iterable[str]) -> Resources:
        """What is left of some nodes together; an overloaded one has nothing left, and is not the others' debt.

        Raises:
            KeyError: there is no such node, or it is not up.
        """
        some = [self._index[node] for node in nodes]
        return _resources(self._cpus[some].clip(0).sum(), self._memory[some].clip(0).sum())

    @property
    def largest_free(self) -> Resources:
        """The most CPUs and the most memory left on any node, not necessarily the same one."""
        if not self._names:
            return NOTHING
        return _resources(max(int(self._cpus.max()), 0), max(int(self._memory.max()), 0))

    def _find(self, demand: _Demand, start: int, allows: Callable[[str], bool] | None = None) -> int:
        """The first node with room from ``start`` on, of those allowed; the number of nodes if there is none."""
        near, end = min(start + _NEAR, len(self._names)), len(self._names)
        for begin, stop in ((start, near), (near, end)):
            if begin < stop:
                room = (self._cpus[begin:stop] >= demand[0]) & (self._memory[begin:stop] >= demand[1])
                if allows is None:
                    at = int(room.argmax())
                    if room[at]:
                        return begin + at
                    continue
                for at in np.flatnonzero(room).tolist():
                    if allows(self._names[begin + at]):
                        return int(begin + at)
        return end

    def _undo(self, taken: list[tuple[int, _Demand]], before: dict[_Demand, int | None]) -> None:
        for node, (cpus, memory) in taken:
            self._cpus[node] += cpus
            self._memory[node] += memory
        for demand, first in before.items():
            if first is None:
                del self._first[demand]
            else:
                self._first[demand] = first


def _resources(centi_cpus: int | np.int64, memory_mib: int | np.int64) -> Resources:
    return Resources(int(centi_cpus) / 100, int(memory_mib))
