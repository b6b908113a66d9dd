"""Telling apart: nodes of their own for VMs that need them, where a program said only how many equal VMs a node has.

Any of the VMs of a class may be where the program wants one of them. Of a group whose VMs need nodes of their own, a
node may have one. For one class a flow from groups to nodes finds the best places: it leaves a group for each of its
VMs, and enters a node for each VM that the program wants there. A group may have VMs of several classes. So one class
after the other is placed beside the others, in rounds, until no two VMs of a group are on one node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from rmsplugin.model.joint import Spread

#: The most rounds; the first one places nearly all VMs.
_ROUNDS = 4

#: The most groups times nodes of a class: a flow knows no limit, and takes a tenth of a second for so many.
_MOST_WAYS = 50_000

#: The number of VMs that need nodes of their own, by group and node.
_Spots = defaultdict[Spread, Counter[int]]


@dataclass(frozen=True, slots=True)
class Member:
    """A VM of a class.

    Attributes:
        name: of the VM.
        node: where it is; None if it has no place.
        apart: no two VMs with the same one are on one node; None: it may be beside any.
    """

    name: str
    node: int | None
    apart: Spread | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A class: equal VMs, and the number of them that is wanted on each node, as many as there are VMs."""

    members: Sequence[Member]
    hosted: Mapping[int, int]

    @property
    def most_stay(self) -> int:
        """The number of VMs that stay where they are, if any of the equal ones may."""
        here = Counter(member.node for member in self.members)
        return sum(min(here[node], count) for node, count in self.hosted.items())


def tell_apart(classes: Sequence[Wanted]) -> dict[str, int] | None:
    """Give VMs nodes, so that those that need nodes of their own have them; as many as possible of a class stay.

    Args:
        classes: all VMs. Of those with the same ``apart``, no two are on one node now.

    Returns:
        Node by VM name; None if no such places were found. There may be some if a group has VMs of several classes.
    """
    placed = {each.name: each.node for k in classes for each in k.members if each.node is not None}
    on: _Spots = defaultdict(Counter)
    for k in classes:
        _count(on, k.members, placed, 1)
    for _ in range(_ROUNDS):
        for k in classes:
            _count(on, k.members, placed, -1)
            found = _placed(k, on)
            if found is None:
                return None
            placed |= found
            _count(on, k.members, placed, 1)
        if all(max(counts.values()) <= 1 for counts in on.values()):
            return placed
    return None


def staying(classes: Sequence[Wanted], placed: Mapping[str, int]) -> int:
    """The number of VMs that are placed where they are."""
    return sum(placed[each.name] == each.node for k in classes for each in k.members)


def _count(on: _Spots, members: Sequence[Member], placed: Mapping[str, int], step: int) -> None:
    """Add VMs that need nodes of their own to the count, or take them from it (-1), as far as they have a node."""
    for each in members:
        if each.apart is not None and each.name in placed:
            on[each.apart][placed[each.name]] += step


def _placed(k: Wanted, others: _Spots) -> dict[str, int] | None:
    """Places for one class, as few as possible beside others of their group; None if it has too many of a group."""
    groups: defaultdict[Spread | None, list[Member]] = defaultdict(list)
    for member in k.members:
        groups[member.apart].append(member)
    counts = [k.hosted] if groups.keys() == {None} else _counts(groups, k.hosted, others)
    if counts is None:
        return None
    placed: dict[str, int] = {}
    for group, hosted in zip(groups.values(), counts, strict=True):
        here = [(each.name, each.node) for each in group if each.node is not None]
        placed |= named(here, sorted(each.name for each in group if each.node is None), hosted)
    return placed


def _counts(
    groups: Mapping[Spread | None, Sequence[Member]], hosted: Mapping[int, int], others: _Spots
) -> list[dict[int, int]] | None:
    """The number of VMs of each group on each node, as a flow at the least cost; None if there is none."""
    nodes = [node for node, count in hosted.items() if count]
    sizes = [len(group) for group in groups.values()]
    if len(sizes) * len(nodes) > _MOST_WAYS:
        return None
    ways = np.array(_ways(groups, nodes, hosted, others), dtype=np.int64).reshape(-1, 4)
    flow = SimpleMinCostFlow()
    arcs = flow.add_arcs_with_capacity_and_unit_cost(ways[:, 0], len(sizes) + ways[:, 1], ways[:, 2], ways[:, 3])
    supplies = np.array([*sizes, *(-hosted[node] for node in nodes)], dtype=np.int64)
    flow.set_nodes_supplies(np.arange(len(supplies)), supplies)
    if flow.solve() != flow.OPTIMAL:
        return None
    found: list[dict[int, int]] = [{} for _ in sizes]
    for (group, at, _, _), amount in zip(ways.tolist(), flow.flows(arcs).tolist(), strict=True):
        if amount:
            found[group][nodes[at]] = found[group].get(nodes[at], 0) + amount
    return found


def _ways(
    groups: Mapping[Spread | None, Sequence[Member]],
    nodes: Sequence[int],
    hosted: Mapping[int, int],
    others: _Spots,
) -> list[tuple[int, int, int, int]]:
    """The ways from groups to nodes, by their positions: for so many VMs, and the cost of each.

    To stay costs nothing, to come 1; to be beside another VM of the group costs more than all that together.
    """
    dear = 1 + sum(map(len, groups.values()))
    found = []
    for at, (apart, group) in enumerate(groups.items()):
        here = Counter(each.node for each in group)
        beside = Counter[int]() if apart is None else others[apart]
        for position, node in enumerate(nodes):
            if apart is None:
                stay = min(here[node], hosted[node])
                found += [(at, position, stay, 0), (at, position, hosted[node], 1)]
            else:
                found.append((at, position, 1, (1 - here[node]) + dear * beside[node]))
    return found


def named(here: Sequence[tuple[str, int]], coming: Sequence[str], hosted: Mapping[int, int]) -> dict[str, int]:
    """Give equal VMs their nodes: first to VMs that can stay there, then to the others that are there, then to all.

    Args:
        here: VMs, with the node of each.
        coming: VMs that are nowhere yet.
        hosted: the number of VMs of each node.

    Returns:
        Node by VM name.
    """
    placed: dict[str, int] = {}
    left = dict(hosted)
    going = []
    for name, node in sorted(here):
        if left.get(node, 0):
            left[node] -= 1
            placed[name] = node
        else:
            going.append(name)
    free = (node for node, count in left.items() for _ in range(count))
    return placed | dict(zip((*going, *coming), free, strict=True))
