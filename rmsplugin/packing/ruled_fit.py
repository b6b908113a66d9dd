"""Ruled fit: VMs placed one after the other, each on its preferred node or the first with room that its rules allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Concerning, Gather, Joint, Within
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Fence, Rules
from rmsplugin.model.standing import Standing
from rmsplugin.packing.ffd import decreasing
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled import Bools, mask
from rmsplugin.packing.sets_of_nodes import choices_within

Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a VM finds no node.

    Attributes:
        vm: its name.
        rooms: the number of nodes with room for it that its vjob may use.
        barred: by the title of each rule that bars it from some of these, their number.
    """

    vm: str
    rooms: int
    barred: Mapping[str, int]


class RuledFit:
    """The free resources of nodes, and where VMs stand, while vjobs are placed by rules about VMs beside each other."""

    def __init__(
        self, nodes: Iterable[Node], concerning: Concerning, homes: Mapping[str, str], expected: Iterable[VM] = ()
    ) -> None:
        """Begin with empty nodes; only those that are up take VMs.

        Args:
            nodes: the nodes, in the order in which they are tried.
            concerning: all rules about VMs beside each other.
            homes: the node of each VM that has memory at present.
            expected: all VMs that will be placed: VMs that have to be together begin where there is room for all. If
                there is no such node, they begin where there is room for those of their vjob: the others stay out.
        """
        up = [node for node in nodes if node.state is NodeState.UP]
        self._names = [node.name for node in up]
        self._index = {name: i for i, name in enumerate(self._names)}
        self._cpus = np.array([node.capacity.centi_cpus for node in up], dtype=np.int64)
        self._memory = np.array([node.capacity.memory_mib for node in up], dtype=np.int64)
        self._see_plain_numbers()
        self._concerning, self._masks = concerning, dict[Rules, Bools]()
        self.standing = Standing(homes)
        self._gathered = _gathered(concerning.rules, expected)
        self._some_are_within = any(isinstance(rule, Within) for rule in concerning.rules)

    def _see_plain_numbers(self) -> None:
        self._cpus_of, self._memory_of = self._cpus.data, self._memory.data  # the same, as plain numbers

    def copy(self) -> RuledFit:
        """An independent copy, with the same VMs on the same nodes."""
        other = copy(self)  # nodes and rules do not change
        other._cpus, other._memory, other.standing = self._cpus.copy(), self._memory.copy(), self.standing.copy()
        other._see_plain_numbers()
        return other

    def take(self, vm: VM, node: str) -> None:
        """A VM is on a node, whether or not there is room for it, and its rules allow that."""
        self._count(vm, node, 1)
        self.standing.put(vm.name, node)

    def take_all(self, vms: Iterable[VM], nodes: Mapping[str, str]) -> None:
        """VMs are on nodes, by name, as ``take`` says."""
        index, cpus, memory = self._index, self._cpus_of, self._memory_of
        demand, centi_cpus, memory_mib = NOTHING, 0, 0
        for vm in vms:
            if vm.demand is not demand:  # most VMs of a vjob share theirs
                demand = vm.demand
                centi_cpus, memory_mib = demand.centi_cpus, demand.memory_mib
            i = index.get(nodes[vm.name])
            if i is not None:
                cpus[i] -= centi_cpus
                memory[i] -= memory_mib
        self.standing.put_all(nodes)

    def holds(self, vms: Iterable[VM]) -> bool:
        """Whether all nodes together have what VMs demand; nothing is free on one that is overloaded."""
        demands = [(vm.demand.centi_cpus, vm.demand.memory_mib) for vm in vms]
        cpus, memory_mib = (sum(amounts) for amounts in zip(*demands, strict=True))
        return bool(self._cpus.clip(0).sum() >= cpus and self._memory.clip(0).sum() >= memory_mib)

    def expecting(self, vms: Iterable[VM]) -> RuledFit:
        """An independent copy, for which VMs are expected; see above."""
        other = self.copy()
        other._gathered = _gathered(self._concerning.rules, vms)
        return other

    def short(self) -> frozenset[str]:
        """The nodes that are up, and whose VMs take more than they have."""
        return frozenset(self._names[i] for i in np.flatnonzero((self._cpus < 0) | (self._memory < 0)))

    def give_back(self, vm: VM, node: str) -> None:
        """A VM that was placed or taken is gone."""
        self._count(vm, node, -1)
        self.standing.remove(vm.name, node)

    def _count(self, vm: VM, node: str, times: int) -> None:
        i = self._index.get(node)
        if i is not None:
            self._cpus_of[i] -= times * vm.demand.centi_cpus
            self._memory_of[i] -= times * vm.demand.memory_mib

    def place(self, items: Iterable[Item], prefer: Mapping[str, str]) -> dict[str, str] | Obstacle:
        """Place all of these VMs or none: by memory, CPUs (descending) and name.

        VMs that have to be on a few of several sets of nodes, and find no place one after the other, are confined to
        the sets with the most room, and then to others.

        Args:
            items: VMs with the rules of their vjobs.
            prefer: by VM, a node that is tried first.
        """
        order = list(items)
        found = self._placed(order, prefer, None)
        if isinstance(found, Obstacle):
            for nodes in self._choices(order):
                confined = self._placed(order, prefer, nodes)
                if not isinstance(confined, Obstacle):
                    return confined
        return found

    def _choices(self, order: Iterable[Item]) -> Iterator[frozenset[str]]:
        """The nodes of sets to which rules may confine VMs."""
        if not self._some_are_within:
            return iter(())
        free = dict(zip(self._names, self._cpus_of.tolist(), strict=True))
        return choices_within(self._concerning, (item.vm.name for item in order), self.standing, free)

    def _placed(
        self, order: list[Item], prefer: Mapping[str, str], only: frozenset[str] | None
    ) -> dict[str, str] | Obstacle:
        """Place all of these VMs or none; ``only``: the nodes that are tried, None for all."""
        placed: dict[str, str] = {}
        fence: Rules = () if only is None else (Fence(only),)
        if len(order) > 1:
            order.sort(key=lambda item: decreasing(item.vm))
        for item in order:
            confined = replace(item, rules=(*item.rules, *fence)) if fence else item
            node = self._node_for(confined, prefer.get(item.vm.name), order)
            if isinstance(node, Obstacle):
                for each in order[: len(placed)]:
                    self.give_back(each.vm, placed[each.vm.name])
                return node
            self.take(item.vm, node)
            placed[item.vm.name] = node
        return placed

    def come(self, item: Item, node: str) -> bool:
        """Place one VM on a node, if there is room for it, and its rules allow that."""
        found = self._takes(item, node, self._wanted(item.vm)[0], self._concerning.of(item.vm.name))
        if found:
            self.take(item.vm, node)
        return found

    def _takes(self, item: Item, node: str, demand: Resources, rules: Iterable[Joint]) -> bool:
        i = self._index.get(node)
        if i is None or self._cpus_of[i] < demand.centi_cpus or self._memory_of[i] < demand.memory_mib:
            return False
        return (not item.rules or bool(self._mask(item.rules)[i])) and self._is_open(rules, item.vm.name, node)

    def _node_for(self, item: Item, preferred: str | None, order: Sequence[Item]) -> str | Obstacle:
        """A node for a VM, which is placed with these others of its vjob."""
        vm, rules = item.vm.name, self._concerning.of(item.vm.name)
        for demand in self._wanted(item.vm, order):
            if preferred is not None and self._takes(item, preferred, demand, rules):
                return preferred
            room = (self._cpus >= demand.centi_cpus) & (self._memory >= demand.memory_mib)
            if item.rules:
                room &= self._mask(item.rules)
            rooms = np.flatnonzero(room)
            for i in map(int, self._open(rooms, rules, vm)):
                if self._is_open(rules, vm, self._names[i]):
                    return self._names[i]
        there = [self._names[i] for i in map(int, rooms)]
        barred = {rule.title: sum(not rule.lets(vm, node, self.standing) for node in there) for rule in rules}
        return Obstacle(vm, len(there), {title: number for title, number in barred.items() if number})

    def _open(self, rooms: Ints, rules: Iterable[Joint], vm: str) -> Ints:
        """Those of some nodes to which rules confine a VM."""
        for rule in rules:
            confines = rule.confines(vm, self.standing)
            if confines is not None:
                rooms = rooms[mask((confines,), self._index)[rooms]]
        return rooms

    def _is_open(self, rules: Iterable[Joint], vm: str, node: str) -> bool:
        """Whether no rule bars a VM from a node."""
        for rule in rules:  # noqa: SIM110 - a generator takes twice as long, and this is asked for each VM and node
            if not rule.lets(vm, node, self.standing):
                return False
        return True

    def _wanted(self, vm: VM, order: Iterable[Item] = ()) -> list[Resources]:
        """The rooms that will do for a VM, the most wanted first, and its own last.

        The first one of those that have to be together wants room for all of them, or else for those of its vjob. That
        all of them have room on no node is no reason for any of them to stay out: some of them have.
        """
        for rule, demand in self._gathered.get(vm.name, ()):
            if not any(self.standing.nodes_of(other) for other in rule.vms):
                own = sum((item.vm.demand for item in order if item.vm.name in rule.vms), NOTHING)
                return [*(each for each in (demand, own) if each.holds(vm.demand)), vm.demand]
        return [vm.demand]

    def _mask(self, rules: Rules) -> Bools:
        if rules not in self._masks:
            self._masks[rules] = mask(rules, self._index)
        return self._masks[rules]


def _gathered(rules: Iterable[Joint], expected: Iterable[VM]) -> dict[str, list[tuple[Gather, Resources]]]:
    """By VM, the gathers that it belongs to, with the demand of all of their VMs that are expected."""
    gathers = [rule for rule in rules if isinstance(rule, Gather)]
    theirs = frozenset[str]().union(*(rule.vms for rule in gathers))
    demands = {vm.name: vm.demand for vm in expected if vm.name in theirs} if gathers else {}
    found: dict[str, list[tuple[Gather, Resources]]] = {}
    for rule in gathers:
        total = sum((demands[vm] for vm in rule.vms if vm in demands), NOTHING)
        for vm in rule.vms:
            found.setdefault(vm, []).append((rule, total))
    return found


def obeys(concerning: Concerning, homes: Mapping[str, str], hosts: Mapping[str, str]) -> bool:
    """Whether VMs on these nodes obey all rules."""
    standing = Standing(homes)
    standing.put_all(hosts)
    return all(rule.is_kept(standing) for rule in concerning.rules)
