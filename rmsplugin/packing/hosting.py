"""Hosting: assigns VMs to nodes, when the number of each class on one node of each kind is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from rmsplugin.packing.classes import Classes, Load, Loads

#: The elements of the array of loads by class up to which VMs are kept in place.
_MOST_ELEMENTS = 2_000_000


def host(classes: Classes, loads: Loads, current: Mapping[str, str]) -> dict[str, str]:
    """Give every VM a node.

    Args:
        classes: the problem.
        loads: the loads of the nodes; at least as many VMs of each class as there are.
        current: node by VM name; loads go to nodes so that many of these VMs stay (greedily, by memory).

    Returns:
        Node by VM name.
    """
    class_of = {vm: c for c, names in enumerate(classes.vms) for vm in names}
    now: defaultdict[str, list[str]] = defaultdict(list)
    for vm, node in sorted(current.items()):
        if vm in class_of:
            now[node].append(vm)
    counts = {node: Counter(class_of[vm] for vm in vms) for node, vms in now.items()}
    of_kind: defaultdict[int, Counter[Load]] = defaultdict(Counter)
    for (kind, load), number in loads.items():
        of_kind[kind][load] += number
    room = {
        node: dict(load)
        for kind, left in sorted(of_kind.items())
        for node, load in _matched(classes, kind, left, counts).items()
    }
    return _named(classes, room, now, class_of)


def _matched(classes: Classes, kind: int, left: Counter[Load], now: Mapping[str, Counter[int]]) -> dict[str, Load]:
    """Give each load of a kind a node of that kind; nodes in their order."""
    nodes = classes.hosts[kind]
    loads = sorted(left)
    few = len(loads) * len(classes.vms) <= _MOST_ELEMENTS
    matched = _keeping(classes, nodes, loads, left, now) if few else {}
    others = Counter(left)
    others.subtract(matched.values())
    free = (node for node in nodes if node not in matched)
    matched.update(zip(free, sorted(others.elements()), strict=False))
    return {node: matched[node] for node in nodes if node in matched}


def _keeping(
    classes: Classes, nodes: Sequence[str], loads: list[Load], left: Counter[Load], now: Mapping[str, Counter[int]]
) -> dict[str, Load]:
    """The nodes that host most memory now choose first, each the load with which it keeps most of its memory."""
    memory = classes.demand[:, -1]
    table = np.zeros((len(loads), len(memory)), dtype=np.int64)
    for j, load in enumerate(loads):
        for c, number in load:
            table[j, c] = number
    rest = np.array([left[load] for load in loads])
    hosted = {node: sum(int(memory[c]) * n for c, n in now[node].items()) for node in nodes if node in now}
    matched: dict[str, Load] = {}
    for node in sorted(hosted, key=lambda node: -hosted[node]):
        here = sorted(now[node])
        stay = np.minimum(table[:, here], [now[node][c] for c in here]) @ (memory[here] + 1)
        j = int(np.where(rest > 0, stay, 0).argmax())
        if rest[j] and stay[j]:
            matched[node] = loads[j]
            rest[j] -= 1
    return matched


def _named(
    classes: Classes, room: dict[str, dict[int, int]], now: Mapping[str, list[str]], class_of: Mapping[str, int]
) -> dict[str, str]:
    """Name the VMs of each load: first those that stay, then the others where there is room."""
    assignment: dict[str, str] = {}
    for node in room:
        for vm in now.get(node, ()):
            c = class_of[vm]
            if room[node].get(c, 0):
                room[node][c] -= 1
                assignment[vm] = node
    waiting = [[vm for vm in reversed(names) if vm not in assignment] for names in classes.vms]
    for node, load in room.items():
        for c, number in load.items():
            for _ in range(min(number, len(waiting[c]))):
                assignment[waiting[c].pop()] = node
    return assignment
