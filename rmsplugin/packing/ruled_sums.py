"""Ruled sums: whether sums alone show that VMs have no place together by rules about VMs beside each other.

They prove that there is none; they never prove that there is one. So what is refused needs no search.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Capacity, Concerning, Joint, Lonely, Online, Split, Spread, Within
from rmsplugin.packing.ruled_fit import obeys

#: VMs by name, each with its demand as in ``Amount``.
Demands = Mapping[str, tuple[int, int]]


class Amount(NamedTuple):
    """Hundredths of a CPU, and MiB."""

    centi_cpus: int
    memory_mib: int

    @classmethod
    def of(cls, amounts: Iterable[tuple[int, int]]) -> Amount:
        """The sum."""
        pairs = list(amounts)
        return cls(sum(cpus for cpus, _ in pairs), sum(memory_mib for _, memory_mib in pairs))


class _Group(NamedTuple):
    """VMs, with what each of them takes, and all together."""

    vms: Sequence[VM]
    demands: Demands
    amount: Amount

    @classmethod
    def of(cls, vms: Sequence[VM]) -> _Group:
        """Sum up these VMs."""
        demands = {vm.name: (vm.demand.centi_cpus, vm.demand.memory_mib) for vm in vms}
        return cls(vms, demands, Amount.of(demands.values()))


def _sum_of(vms: Collection[str], demands: Demands) -> Amount:
    """What those of some VMs take that are there."""
    return Amount.of([demands[vm] for vm in vms if vm in demands])


class RuledSums:
    """The sums of one cluster, and of its rules."""

    def __init__(self, nodes: Iterable[Node], rules: Sequence[Joint], homes: Mapping[str, str]) -> None:
        """``homes``: the node of each VM that has memory at present."""
        self._up = [node for node in nodes if node.state is NodeState.UP]
        self._names = frozenset(node.name for node in self._up)
        self._rules, self._homes = [rule for rule in rules if self._matters(rule)], homes
        self._capacity_beside: dict[int, Amount] = {}
        self._groups: dict[int, _Group] = {}
        self._obeyed: dict[int, bool] = {}  # by rule, whether all that have memory now obey it

    def _matters(self, rule: Joint) -> bool:
        """Whether there are VMs that need more than a rule leaves them: of a few VMs the number alone says no."""
        match rule:
            case Spread():
                return len(rule.vms) > len(self._up)
            case Capacity():
                return self._names <= rule.nodes and len(rule.vms) > rule.most
            case Online() | Within() | Lonely() | Split():
                return True
            case _:
                return False

    def refuse(self, groups: Iterable[Sequence[VM]]) -> bool:
        """Whether these VMs have no place together.

        VMs that are where they are may break rules, and nodes: they stay. So a rule that their places break proves
        nothing, nor does any where one of them is on a node that takes no VMs, or that is overloaded.

        Args:
            groups: the VMs, in groups that come up again, such as those of one vjob: each is summed up once.
        """
        if not self._rules:
            return False
        demands, parts = dict[str, tuple[int, int]](), list[Amount]()
        for vms in groups:
            group = self._groups.get(id(vms))
            if group is None:
                group = self._groups[id(vms)] = _Group.of(vms)
            demands.update(group.demands)
            parts.append(group.amount)
        needed = Amount.of(parts)
        exceeded = [rule for rule in self._rules if self._exceed(rule, demands, needed)]
        if not exceeded:
            return False
        present = {name: demand for name, demand in demands.items() if name in self._homes}
        return self._is_sound(present) and any(self._is_obeyed(rule, present) for rule in exceeded)

    def _is_obeyed(self, rule: Joint, present: Demands) -> bool:
        """Whether those that are there obey a rule. They do if all do that have memory now: fewer break no more."""
        if id(rule) not in self._obeyed:
            self._obeyed[id(rule)] = obeys(Concerning([rule]), self._homes, self._homes)
        if self._obeyed[id(rule)]:
            return True
        return obeys(Concerning([rule]), self._homes, {name: self._homes[name] for name in present})

    def _is_sound(self, present: Demands) -> bool:
        """Whether those that are there are on nodes that take VMs, and that have room for them."""
        left = {node.name: [node.capacity.centi_cpus, node.capacity.memory_mib] for node in self._up}
        for name, (centi_cpus, memory_mib) in present.items():
            here = left.get(self._homes[name])
            if here is None:
                return False
            here[0] -= centi_cpus
            here[1] -= memory_mib
        return all(cpus >= 0 and memory_mib >= 0 for cpus, memory_mib in left.values())

    def _exceed(self, rule: Joint, demands: Demands, needed: Amount) -> bool:
        """Whether VMs need more than a rule leaves them; ``needed``: all of them together."""
        match rule:
            case Spread():
                return len(rule.vms & demands.keys()) > len(self._up)
            case Capacity():
                return len(rule.vms & demands.keys()) > rule.most
            case Online():
                most = self._most_beside(rule)
                return needed.centi_cpus > most.centi_cpus or needed.memory_mib > most.memory_mib
            case Within():
                most, needed = self._most_within(rule), Amount.of(demands[vm] for vm in rule.vms & demands.keys())
                return needed.centi_cpus > most.centi_cpus or needed.memory_mib > most.memory_mib
            case Lonely():
                own = _sum_of(rule.vms, demands)
                beside = own if rule.friends <= rule.vms else _sum_of(rule.vms | rule.friends, demands)
                strangers = Amount(needed[0] - beside[0], needed[1] - beside[1])
                return self._least_nodes((own, strangers)) > len(self._up)
            case Split():
                return self._least_nodes(_sum_of(group, demands) for group in rule.groups) > len(self._up)
            case _:
                return False

    def _most_beside(self, rule: Online) -> Amount:
        """All that VMs can have on the largest nodes that may host them."""
        if id(rule) not in self._capacity_beside:
            here = [node.capacity for node in self._up if node.name in rule.nodes]
            beside = [node.capacity for node in self._up if node.name not in rule.nodes]
            cpus = sorted((size.centi_cpus for size in here), reverse=True)[: rule.most]
            memory_mib = sorted((size.memory_mib for size in here), reverse=True)[: rule.most]
            others = Amount.of((size.centi_cpus, size.memory_mib) for size in beside)
            self._capacity_beside[id(rule)] = Amount(others[0] + sum(cpus), others[1] + sum(memory_mib))
        return self._capacity_beside[id(rule)]

    def _most_within(self, rule: Within) -> Amount:
        """All that VMs can have on the largest sets of nodes."""
        if id(rule) not in self._capacity_beside:
            sizes: dict[int | str, Amount] = {}
            for node in self._up:
                size = (node.capacity.centi_cpus, node.capacity.memory_mib)
                here = rule.set_of(node.name)
                sizes[here] = Amount.of([sizes.get(here, Amount(0, 0)), size])
            cpus = sorted((size.centi_cpus for size in sizes.values()), reverse=True)[: rule.most]
            memory_mib = sorted((size.memory_mib for size in sizes.values()), reverse=True)[: rule.most]
            self._capacity_beside[id(rule)] = Amount(sum(cpus), sum(memory_mib))
        return self._capacity_beside[id(rule)]

    def _least_nodes(self, groups: Iterable[Amount]) -> int:
        """The fewest nodes for groups of VMs of which no two share one."""
        found = 0
        for needed in groups:
            parts = zip(needed, self._largest, strict=True)
            found += max(math.ceil(amount / size) if size else int(amount > 0) for amount, size in parts)
        return found

    @cached_property
    def _largest(self) -> Amount:
        """The most CPUs, and the most memory, of a node."""
        sizes = [node.capacity for node in self._up]
        return Amount(
            max((size.centi_cpus for size in sizes), default=0), max((size.memory_mib for size in sizes), default=0)
        )
