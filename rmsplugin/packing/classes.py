"""Classes of VMs that are equal for a packing, and kinds of nodes; they make 30,000 VMs a problem of a few rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt

from rmsplugin.model.elements import Node, NodeState
from rmsplugin.model.rules import Rules
from rmsplugin.packing.ffd import decreasing
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled import Bools, mask

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: The VMs that one node hosts: pairs of class and number (above 0), by class.
Load = tuple[tuple[int, int], ...]

#: A packing up to equality: the number of nodes of each kind that host each load.
Loads = Mapping[tuple[int, Load], int]


@dataclass(frozen=True)
class Classes:
    """A packing problem in classes of equal VMs (demand, allowed nodes) and kinds of equal nodes (capacity, allowed).

    Demands and capacities are rows of hundredths of a CPU and MiB; indices of classes, kinds and nodes (those that
    are up, in the given order) are positions in these arrays.
    """

    demand: Ints  # by class
    vms: tuple[tuple[str, ...], ...]  # names by class, sorted
    capacity: Ints  # by kind
    hosts: tuple[tuple[str, ...], ...]  # node names by kind, in the given order
    allowed: Bools  # by class and kind
    runs: tuple[tuple[int, int], ...]  # class and number, of VMs in the order of first fit decreasing
    kind_of: Ints  # by node

    @cached_property
    def count(self) -> Ints:
        """The number of VMs of each class."""
        return np.array([len(names) for names in self.vms], dtype=np.int64)

    @cached_property
    def available(self) -> Ints:
        """The number of nodes of each kind."""
        return np.array([len(names) for names in self.hosts], dtype=np.int64)

    @cached_property
    def most(self) -> Ints:
        """By class and kind: the most VMs of the class that one such node can host, if it hosts no others."""
        most = np.where(self.allowed, self.count[:, None], 0)
        for dimension in range(self.demand.shape[1]):
            demand = self.demand[:, dimension][:, None]
            room = self.capacity[:, dimension][None, :] // np.maximum(demand, 1)
            most = np.minimum(most, np.where(demand > 0, room, most))
        return most

    @cached_property
    def total(self) -> Ints:
        """The summed demand of all VMs."""
        total: Ints = (self.demand * self.count[:, None]).sum(axis=0)
        return total

    def usable(self, nodes: int) -> Ints:
        """The most nodes of each kind that a packing on at most ``nodes`` nodes can use."""
        return np.minimum(self.available, nodes)


def classify(items: Sequence[Item], nodes: Sequence[Node]) -> Classes:
    """Find the classes of a packing problem; only nodes that are up and not overloaded count.

    Raises:
        ValueError: two VMs have one name.
    """
    names = Counter(item.vm.name for item in items)
    if len(names) < len(items):
        raise ValueError(f"two VMs are named {names.most_common(1)[0][0]!r}")
    up = [node for node in nodes if node.state is NodeState.UP and _sound(node)]
    group_of, allowed = _groups(items, [node.name for node in up])
    kind_of, hosts, capacity = _kinds(up, allowed)
    runs, members, demand, group = _runs(items, group_of)
    first = [int(np.argmax(kind_of == kind)) for kind in range(len(hosts))]
    return Classes(
        demand=np.array(demand, dtype=np.int64).reshape(-1, 2),
        vms=tuple(tuple(sorted(each)) for each in members),
        capacity=np.array(capacity, dtype=np.int64).reshape(-1, 2),
        hosts=tuple(tuple(each) for each in hosts),
        allowed=allowed[group][:, first] if group else np.zeros((0, len(hosts)), dtype=np.bool_),
        runs=tuple(runs),
        kind_of=kind_of,
    )


def _kinds(up: Sequence[Node], allowed: Bools) -> tuple[Ints, list[list[str]], list[tuple[int, int]]]:
    """The kind of each node; by kind the names of its nodes, and the capacity of each of them."""
    kinds: dict[tuple[int, int, bytes], int] = {}
    hosts: list[list[str]] = []
    kind_of = np.zeros(len(up), dtype=np.int64)
    groups_on = np.ascontiguousarray(allowed.T)
    for i, node in enumerate(up):
        key = (node.capacity.centi_cpus, node.capacity.memory_mib, groups_on[i].tobytes())
        kind_of[i] = kind = kinds.setdefault(key, len(kinds))
        if kind == len(hosts):
            hosts.append([])
        hosts[kind].append(node.name)
    return kind_of, hosts, [key[:2] for key in kinds]


def _runs(
    items: Sequence[Item], group_of: Mapping[Rules, int]
) -> tuple[list[tuple[int, int]], list[list[str]], list[tuple[int, int]], list[int]]:
    """The order of first fit decreasing in runs of equal VMs; by class the names of its VMs, their demand and group."""
    index: dict[tuple[int, int, int], int] = {}
    members: list[list[str]] = []
    order = []
    for item in sorted(items, key=lambda item: decreasing(item.vm)):
        demand = item.vm.demand
        c = index.setdefault((demand.centi_cpus, demand.memory_mib, group_of[item.rules]), len(index))
        if c == len(members):
            members.append([])
        members[c].append(item.vm.name)
        order.append(c)
    runs = [(c, sum(1 for _ in equal)) for c, equal in groupby(order)]
    return runs, members, [key[:2] for key in index], [key[2] for key in index]


def _sound(node: Node) -> bool:
    """Whether a node has any capacity left; it may have less than it really has because VMs stay there."""
    return node.capacity.memory_mib >= 0 and node.capacity.centi_cpus >= 0


def _groups(items: Sequence[Item], names: Sequence[str]) -> tuple[dict[Rules, int], Bools]:
    """Number the different sets of nodes on which VMs are allowed; by that number and node, whether it is allowed.

    Rules with the same effect on the nodes that are up are one group.
    """
    position = {name: i for i, name in enumerate(names)}
    rows: dict[bytes, int] = {}
    allowed: list[Bools] = []
    group_of: dict[Rules, int] = {}
    for rules in {item.rules: None for item in items}:
        row = mask(rules, position)
        group = group_of[rules] = rows.setdefault(row.tobytes(), len(rows))
        if group == len(allowed):
            allowed.append(row)
    return group_of, np.array(allowed, dtype=np.bool_).reshape(len(allowed), len(names))
