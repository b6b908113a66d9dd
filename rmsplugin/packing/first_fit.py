"""First fit, one vjob after the other: each VM on the first node with room, for queues of tens of thousands of VMs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import islice

import numpy as np
import numpy.typing as npt

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.packing.ffd import decreasing

#: The number of nodes that are looked at before all others: mostly the first fit is near the last one.
_NEAR = 64

_Demand = tuple[int, int]  # hundredths of a CPU, MiB


class FirstFit:
    """The free resources of the nodes while vjobs are placed on them in the order of the queue (RR-6929 section 3.2).

    The result is exactly that of looking through all nodes for each VM. It is fast for this reason: while VMs come and
    none goes, the first node with room for a demand never moves back. So each search begins where the last one for an
    equal demand ended.
    """

    def __init__(self, names: Iterable[str], cpus: Iterable[int], memory: Iterable[int], others: Iterable[str]) -> None:
        """Start with ``cpus`` (hundredths) and ``memory`` (MiB) free on the nodes ``names``; no VM goes to others."""
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

    def place(
        self,
        vms: Iterable[VM],
        allows: Callable[[str], bool] | None = None,
        apart_from: Collection[str] | None = None,
    ) -> dict[str, str] | None:
        """Place all the VMs or none: by memory, CPU (descending) and name, each on the first node with room.

        Args:
            vms: the VMs, in any order.
            allows: whether these VMs may be on a node, by its name; None: on any. Faster without.
            apart_from: None: several of these VMs may be on one node. Else each is on a node of its own, and none is
                on these nodes.

        Returns:
            Node by VM name, or None if some VM finds no node; then everything is as before.
        """
        placed: dict[str, str] = {}
        taken: list[tuple[int, int, _Demand]] = []  # node, number of VMs, the demand of each
        before: dict[_Demand, int | None] = {}
        used = None if apart_from is None else set(apart_from)
        if used is not None:
            allows = _outside(used, allows)
        for demand, names in _equal(vms):
            if taken:
                before[demand] = self._first.get(demand)  # knowledge gained while nothing is taken yet stays true
            start = self._first[demand] = self._find(demand, self._first.get(demand, 0))
            if not taken:
                before[demand] = start
            found, left = self._rooms(demand, start, len(names), allows, len(names) if used is None else 1)
            if left:
                self._undo(taken, before)
                return None
            following = iter(names)
            for node, count in found:
                self._take(node, count, demand)
                taken.append((node, count, demand))
                placed.update(dict.fromkeys(islice(following, count), self._names[node]))
            if used is not None:
                used.update(self._names[node] for node, _ in found)
            if allows is None:
                self._first[demand] = found[-1][0]
        return placed

    def place_around(
        self, vms: Iterable[VM], allows: Callable[[str], bool] | None = None, *, apart: bool = False
    ) -> dict[str, str] | None:
        """Place all the VMs or none, as ``place`` does: first those that can only be on one node, each there.

        ``apart``: each of the others is on a node of its own.
        """
        loose: list[VM] = []
        placed: dict[str, str] = {}
        taken: list[VM] = []
        for vm in vms:
            if vm.only is None:
                loose.append(vm)
            elif (allows is None or allows(vm.only)) and vm.only in self._index and self.free(vm.only).holds(vm.demand):
                self.take(vm, vm.only)
                taken.append(vm)
                placed[vm.name] = vm.only
            else:
                break
        else:
            rest = self.place(loose, allows, placed.values() if apart else None)
            if rest is not None:
                return placed | rest
        for vm in taken:
            self.give_back(vm, placed[vm.name])
        return None

    def place_alike(
        self, groups: Sequence[Sequence[VM]], allows: Callable[[str], bool] | None = None
    ) -> tuple[dict[str, str], int]:
        """Place groups of VMs one after the other, each as ``place`` does, until one finds no room.

        Args:
            groups: groups of equally many VMs, which all have the same demand.
            allows: as in ``place``.

        Returns:
            Node by VM name, and the number of placed groups.
        """
        first, width = groups[0][0].demand, len(groups[0])
        demand = (first.centi_cpus, first.memory_mib)
        start = self._find(demand, self._first.get(demand, 0))
        found, left = self._rooms(demand, start, len(groups) * width, allows, len(groups) * width)
        count = len(groups) - -(-left // width)
        spare = count * width
        names = iter([name for group in groups[:count] for name in sorted([vm.name for vm in group])])
        placed: dict[str, str] = {}
        self._first[demand] = start
        for node, most in found:
            taken = min(most, spare)
            if not taken:
                break
            self._take(node, taken, demand)
            placed.update(dict.fromkeys(islice(names, taken), self._names[node]))
            spare -= taken
            if allows is None:
                self._first[demand] = node
        return placed, count

    def take(self, vm: VM, node: str) -> None:
        """Reserve the demand of a VM that stays where it is, even if there is less than that.

        Nothing is placed on a node that is not up, so nothing needs to be reserved there.

        Raises:
            KeyError: there is no such node.
        """
        if node not in self._others:
            i = self._index[node]
            self._cpus[i] -= vm.demand.centi_cpus
            self._memory[i] -= vm.demand.memory_mib

    def take_all(self, vms: Sequence[VM], placement: Mapping[str, str]) -> None:
        """Reserve, as ``take`` does, the demands of VMs that stay where they are: node by VM name.

        Raises:
            KeyError: there is no such node.
        """
        first = vms[0].demand
        if not all(vm.demand is first for vm in vms):
            for vm in vms:
                self.take(vm, placement[vm.name])
            return
        demand = (first.centi_cpus, first.memory_mib)
        for node, count in Counter([placement[vm.name] for vm in vms]).items():
            if node not in self._others:
                self._take(self._index[node], count, demand)

    def give_back(self, vm: VM, node: str) -> None:
        """Give back the demand of a VM that was taken or placed.

        Raises:
            KeyError: there is no such node.
        """
        if node not in self._others:
            i = self._index[node]
            self._cpus[i] += vm.demand.centi_cpus
            self._memory[i] += vm.demand.memory_mib
            for demand in [demand for demand, first in self._first.items() if first > i]:
                self._first[demand] = i

    def give_back_all(self, vms: Iterable[VM], placement: Mapping[str, str]) -> None:
        """Give back, as ``give_back`` does, the demands of VMs that were taken or placed: node by VM name.

        Raises:
            KeyError: there is no such node.
        """
        least = len(self._names)
        for vm in vms:
            node = placement[vm.name]
            if node not in self._others:
                i = self._index[node]
                self._cpus[i] += vm.demand.centi_cpus
                self._memory[i] += vm.demand.memory_mib
                least = min(least, i)
        self._first = {demand: min(first, least) for demand, first in self._first.items()}

    def copy(self) -> FirstFit:
        """An independent copy, with the same free resources of all nodes."""
        other = copy(self)  # names do not change
        other._cpus, other._memory, other._first = self._cpus.copy(), self._memory.copy(), dict(self._first)
        return other

    def free(self, node: str) -> Resources:
        """The free resources of a node for VMs to come: below 0 if it is overloaded, 0 if it is not up.

        Raises:
            KeyError: there is no such node.
        """
        if node in self._others:
            return NOTHING
        i = self._index[node]
        return _resources(self._cpus[i], self._memory[i])

    @property
    def total_free(self) -> Resources:
        """The free resources of all nodes together; the excess on one is not missing on another."""
        return _resources(self._cpus.clip(0).sum(), self._memory.clip(0).sum())

    def total_free_on(self, nodes: Iterable[str]) -> Resources:
        """The free resources of some nodes together; an overloaded one has 0, and is not the others' debt.

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

    def _find(self, demand: _Demand, start: int) -> int:
        """The first node with room from ``start`` on; the number of nodes if there is none."""
        near, end = min(start + _NEAR, len(self._names)), len(self._names)
        for begin, stop in ((start, near), (near, end)):
            if begin < stop:
                room = (self._cpus[begin:stop] >= demand[0]) & (self._memory[begin:stop] >= demand[1])
                at = int(room.argmax())
                if room[at]:
                    return begin + at
        return end

    def _rooms(
        self, demand: _Demand, start: int, left: int, allows: Callable[[str], bool] | None, most: int
    ) -> tuple[list[tuple[int, int]], int]:
        """The first nodes, from ``start`` on, with room for so many VMs of a demand, and the number for each.

        Also the number of VMs without room. ``most``: the most VMs on one node.
        """
        found = []
        begin, stop = start, start + _NEAR
        while left and begin < len(self._names):
            cpus, memory = self._cpus[begin:stop], self._memory[begin:stop]
            for at in np.flatnonzero((cpus >= demand[0]) & (memory >= demand[1])).tolist():
                if allows is not None and not allows(self._names[begin + at]):
                    continue
                by_cpus = int(cpus[at]) // demand[0] if demand[0] else left
                by_memory = int(memory[at]) // demand[1] if demand[1] else left
                found.append((begin + at, min(left, by_cpus, by_memory, most)))
                left -= found[-1][1]
                if not left:
                    break
            begin, stop = stop, len(self._names)
        return found, left

    def _take(self, node: int, count: int, demand: _Demand) -> None:
        self._cpus[node] -= count * demand[0]
        self._memory[node] -= count * demand[1]

    def _undo(self, taken: list[tuple[int, int, _Demand]], before: dict[_Demand, int | None]) -> None:
        for node, count, demand in taken:
            self._take(node, -count, demand)
        for demand, first in before.items():
            if first is None:
                del self._first[demand]
            else:
                self._first[demand] = first


def _outside(nodes: Collection[str], allows: Callable[[str], bool] | None) -> Callable[[str], bool]:
    """Whether a node is none of these, which may become more, and is allowed."""
    return lambda name: name not in nodes and (allows is None or allows(name))


def _equal(vms: Iterable[VM]) -> list[tuple[_Demand, list[str]]]:
    """VMs as first fit decreasing takes them: demands, each with the names of the VMs that have it."""
    all_vms = list(vms)
    first = all_vms[0].demand if all_vms else NOTHING
    if all_vms and all(vm.demand is first for vm in all_vms):  # as in most vjobs
        return [((first.centi_cpus, first.memory_mib), sorted([vm.name for vm in all_vms]))]
    runs: list[tuple[_Demand, list[str]]] = []
    known: Resources | None = None
    for vm in sorted(all_vms, key=decreasing):
        if vm.demand is not known:
            known = vm.demand
            demand = (known.centi_cpus, known.memory_mib)
            if not runs or runs[-1][0] != demand:
                runs.append((demand, []))
        runs[-1][1].append(vm.name)
    return runs


def _resources(centi_cpus: int | np.int64, memory_mib: int | np.int64) -> Resources:
    return Resources(int(centi_cpus) / 100, int(memory_mib))
