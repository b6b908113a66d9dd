"""Remaining: the least cost of the rest of a plan, from a state between two pools on.

Each guest that is not at an end needs one more action, after the pools so far. It waits for at least one more pool if
no end has room for it: for a pool in which a guest leaves such an end. Of guests with the same only end, the
first fit into the free memory; the next wait until as much has left as all before them take. If the target is free, a
node may have to lose some guests that could stay, to be viable with all that must come.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Sequence

from rmsplugin.planning.order.switch import NEVER, UNIT, State, Switch

#: The memory that may leave a node, and the least cost of the pool in which it leaves.
Leaver = tuple[int, int]


class Remaining:
    """Bounds for the states of one switch."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch
        self._leave: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]] = {}

    def start(self) -> int:
        """The bound of all plans."""
        return self.of(self._switch.start, 0, is_start=True)

    def of(self, state: State, elapsed: int, *, is_start: bool = False) -> int:
        """The bound of a state after pools that cost ``elapsed`` together; NEVER if nothing leads on."""
        switch, kinds = self._switch, self._switch.kinds
        free = switch.free(state.positions)
        first = switch.departures_price if is_start else 0
        leavers = leavers_of(switch, state, first)
        if is_start:
            for node, memory in enumerate(switch.given_back_mib):
                free[node] -= memory
                if memory:
                    bisect.insort(leavers[node], (first, memory))
        staying: dict[int, list[int]] = defaultdict(list)
        coming: dict[int, list[int]] = defaultdict(list)  # kinds, by their only end
        pending = []
        for kind, position in zip(switch.kind_of, state.positions, strict=True):
            least = switch.least(kind, position)
            if least:
                pending.append((kind, position, least))
                ends = kinds[kind].ends
                if len(ends) == 1:
                    coming[next(iter(ends))].append(kind)
            elif switch.capacity is not None:
                staying[position].append(kind)
        total = switch.departures_cost if is_start else 0
        total += self._pending(pending, free, leavers, elapsed)
        for node, stay in staying.items():
            pairs = self._must_leave(node, tuple(stay), tuple(coming[node]))
            if pairs is not None:
                total += min((count * (elapsed + 1) + memory * UNIT for count, memory in pairs), default=NEVER)
        return min(total, NEVER)

    def _pending(
        self,
        pending: Sequence[tuple[int, int, int]],
        free: Sequence[int],
        leavers: Sequence[Sequence[Leaver]],
        elapsed: int,
    ) -> int:
        """The costs of guests that have to arrive: for each its kind, its position and its own cost."""
        switch, total = self._switch, 0
        gangs: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        only: dict[int, list[int]] = defaultdict(list)  # memory, by the only end
        for kind, position, least in pending:
            of = switch.kinds[kind]
            if position >= switch.asleep and position != switch.waiting:
                wait = min((wait_for(of.memory_mib - free[end], leavers[end]) for end in of.ends), default=NEVER)
                gangs[of.gang].append((least, wait, 2 * of.memory_mib * UNIT + 2))
                continue
            total += elapsed + least
            if len(of.ends) == 1:
                only[next(iter(of.ends))].append(of.memory_mib)
            else:
                total += min((wait_for(of.memory_mib - free[end], leavers[end]) for end in of.ends), default=NEVER)
        for end, memory in only.items():
            total += sum(wait_for(so_far - free[end], leavers[end]) for so_far in itertools.accumulate(sorted(memory)))
        return total + sum(_gang(members, elapsed) for members in gangs.values())

    def _must_leave(self, node: int, staying: tuple[int, ...], coming: tuple[int, ...]) -> list[tuple[int, int]] | None:
        """The least number of guests that may have to leave a node, and their least memory; None: none has to."""
        key = (node, staying, coming)
        if key not in self._leave:
            self._leave[key] = self._pairs(node, staying, coming)
        return self._leave[key] or None

    def _pairs(self, node: int, staying: tuple[int, ...], coming: tuple[int, ...]) -> list[tuple[int, int]]:
        too_many_c, too_many_m = self._switch.excess(node, staying + coming)
        if too_many_c <= 0 and too_many_m <= 0:
            return []
        sums = {(0, 0, 0)}  # of guests that leave together, and are not enough: their number, CPUs and memory
        least: dict[int, int] = {}
        for kind in staying:
            of = self._switch.kinds[kind]
            for count, cpus, memory in list(sums):
                more = (count + 1, cpus + of.centi_cpus, memory + of.memory_mib)
                if more[1] < too_many_c or more[2] < too_many_m:
                    sums.add(more)
                else:
                    least[more[0]] = min(more[2], least.get(more[0], more[2]))
        return list(least.items()) or [max((count + 1, memory) for count, _, memory in sums)]


def leavers_of(switch: Switch, state: State, first: int = 0) -> list[list[Leaver]]:
    """The guests that could leave each node, the cheapest pools first; ``first``: the least cost of the next pool."""
    leavers: list[list[Leaver]] = [[] for _ in switch.names]
    for kind, position in zip(switch.kind_of, state.positions, strict=True):
        if position < switch.asleep:
            memory = switch.kinds[kind].memory_mib
            leavers[position].append((max(first, memory * UNIT), memory))
    for each in leavers:
        each.sort()
    return leavers


def wait_for(lacking_mib: int, leavers: Sequence[Leaver]) -> int:
    """The wait of an arrival that lacks memory on a node: until the small guests have left, at best."""
    if lacking_mib <= 0:
        return 0
    for price, memory in leavers:
        lacking_mib -= memory
        if lacking_mib <= 0:
            return price
    return NEVER


def _gang(members: Sequence[tuple[int, int, int]], elapsed: int) -> int:
    """The cost of VMs that resume together: they wait for the last, or some resume elsewhere, and migrate later.

    Args:
        members: for each the cost of its resume, its wait, and the detour's own cost.
        elapsed: the cost of the pools so far.
    """
    return min(
        sum(
            elapsed + until + least if wait <= until else 2 * elapsed + until + wait + detour
            for least, wait, detour in members
        )
        for until in {0, *(wait for _, wait, _ in members)}
    )
