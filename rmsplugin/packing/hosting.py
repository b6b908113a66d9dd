"""Hosting: which VM goes to which node, once it is known how many of each class one node of each kind hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import numpy as np

from rmsplugin.packing.classes import Classes, Load, Loads

#: Elements of the array of loads by class up to which it is looked at who could stay.
_MOST_ELEMENTS = 2_000_000


def host(classes: Classes, loads: Loads, current: Mapping[str, str]) -> dict[str, str]:
    """Give every VM a node.

    Args:
        classes: the problem.
        loads: what its nodes host; at least as many of each class as there are.
        current: node by VM name; loads go to nodes such that many of these VMs stay (greedily, by memory).

    Returns:
        Node by VM name.
    """
    class_of = {vm: c for c, names in enumerate(classes.vms) for vm in names}
    now: defaultdict[str, list[str]] = defaultdict(list)
    for vm, node in current.items():
        if vm in class_of:
            now[node].append(vm)
    of_kind: defaultdict[int, Counter[Load]] = defaultdict(Counter)
    for (kind, load), number in loads.items():
        of_kind[kind][load] += number
    assignment: dict[str, str] = {}
    slots: list[tuple[str, Load]] = []
    for kind, left in sorted(of_kind.items()):
        slots += _match(classes, kind, left, {node: Counter(class_of[vm] for vm in now[node]) for node in now})
    room = {node: dict(load) for node, load in slots}
    for node in room:  # first those who stay, then the others where there is room
        for vm in sorted(now[node]):
            c = class_of[vm]
            if room[node].get(c, 0):
                room[node][c] -= 1
                assignment[vm] = node
    waiting = [[vm for vm in reversed(names) if vm not in assignment] for names in classes.vms]
    for node, _ in slots:
        for c, number in room[node].items():
            for _ in range(min(number, len(waiting[c]))):
                assignment[waiting[c].pop()] = node
    return assignment


def _match(classes: Classes, kind: int, left: Counter[Load], now: Mapping[str, Counter[int]]) -> list[tuple[str, Load]]:
    """Give each load of a kind a node of that kind: those that host most now choose first what they keep most of."""
    nodes = classes.hosts[kind]
    loads = sorted(left)
    matched: dict[str, Load] = {}
    memory = classes.demand[:, -1]
    if len(loads) * len(memory) <= _MOST_ELEMENTS:
        table = np.zeros((len(loads), len(memory)), dtype=np.int64)
        for j, load in enumerate(loads):
            for c, number in load:
                table[j, c] = number
        rest = np.array([left[load] for load in loads])
        worth = {node: sum(int(memory[c]) * n for c, n in now[node].items()) for node in nodes if node in now}
        for node in sorted(worth, key=lambda node: -worth[node]):
            here = sorted(now[node])
            stay = np.minimum(table[:, here], [now[node][c] for c in here]) @ (memory[here] + 1)
            j = int(np.where(rest > 0, stay, 0).argmax())
            if rest[j] and stay[j]:
                matched[node] = loads[j]
                rest[j] -= 1
                left[loads[j]] -= 1
    others = (load for load in loads for _ in range(left[load]))
    free = (node for node in nodes if node not in matched)
    matched.update(zip(free, others, strict=False))
    return [(node, matched[node]) for node in nodes if node in matched]
