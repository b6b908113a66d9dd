"""Bypass: the extra action that breaks a cycle: a migration over a pivot, or suspend + resume (RR-6929 section 4.1).

When nothing is feasible, one pool of bypasses is chosen that breaks every cycle at once if there is room for it. Each
bypass is followed by an outlook on the actions that it makes possible. If that leaves arrivals blocked, one more is
chosen.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from rmsplugin.model.elements import VJob
from rmsplugin.planning.order.moves import NOWHERE, Moves
from rmsplugin.planning.order.pools import ASLEEP, Schedule, Step


class DeadlockedError(Exception):
    """No node has room for a pivot, and the platform of the VMs that wait for each other cannot save them."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(
            "VMs wait for each other's memory, no node has room meanwhile, and their platform cannot save them: "
            + ", ".join(sorted(names))
        )


def _can_sleep(vjob: VJob) -> bool:
    """Whether a VM of a vjob can be saved here, and restored there."""
    return vjob.can.suspend and vjob.can.elsewhere


def break_cycles(schedule: Schedule) -> list[Step]:
    """Choose bypasses for a schedule in which no arrival is feasible.

    In this order: the smallest VM that must migrate and whose leaving lets another arrive, over a pivot; suspend a VM
    that must migrate, of preemptible vjobs first.

    There is always one. If every VM that must migrate sleeps, the nodes hold only the memory that they hold in the end,
    so that all arrivals fit (``moves_between`` has checked that) and nothing is blocked. Hence something blocked means
    that some VM that must migrate still runs, and that one can be suspended. Each VM takes a pivot at most once and is
    suspended at most once.

    Raises:
        DeadlockedError: no platform but one with VMs that cannot be saved here and restored elsewhere comes to this.
    """
    outlook = _Outlook(schedule)
    steps: list[Step] = []
    over_pivot = False
    while outlook.blocked:
        found = outlook.pivots()
        over_pivot = over_pivot or bool(found)
        if not found:
            found = outlook.suspends(forced=not over_pivot)
        if not found:
            break  # blocked arrivals wait for a pivot that others use now: better than to suspend a VM that must not be
        steps += found
    if not steps:
        if all(_can_sleep(vjob) for vjob in schedule.moves.vjobs):
            raise AssertionError("a viable target has always a bypass: see break_cycles")
        raise DeadlockedError(schedule.moves.actions[unit].vm.name for unit in schedule.pending)
    return steps


class _Outlook:
    """The consequences of the bypasses chosen so far: arrivals whose turn would come are blocked no more."""

    def __init__(self, schedule: Schedule) -> None:
        self.moves: Moves = schedule.moves
        self.blocked = set(schedule.pending)
        self._schedule = schedule
        self._chosen: set[int] = set()  # VMs that make a detour in this pool: one action on a VM at a time
        self._free = list(schedule.free)
        self._room = _Rooms((free, node) for node, free in enumerate(schedule.free) if self.moves.up[node])

    def pivots(self) -> list[Step]:
        """Choose bypass migrations, the smallest VM first, each of which makes an arrival possible."""
        found = []
        for unit in sorted(self.blocked, key=lambda unit: (self.moves.memory[unit], self.moves.actions[unit].vm.name)):
            # A bypass that was chosen before may make it possible.
            if unit in self.blocked and self._schedule.may_pivot(unit):
                lacking = self._lacking(self._schedule.place(unit))
                pivot = self._pivot(unit) if lacking is not None and lacking <= self.moves.memory[unit] else None
                if pivot is not None:
                    found.append(self.take(unit, pivot))
        return found

    def _suspendable(self) -> list[int]:
        """The VMs that can be suspended: preemptible first, then those whose leaving suffices alone, then small."""
        choices = []
        for unit in self.blocked:
            place = self._schedule.place(unit)
            if not _can_sleep(self.moves.vjobs[unit]):
                continue
            if unit not in self._chosen and place != NOWHERE and (lacking := self._lacking(place)) is not None:
                memory = self.moves.memory[unit]
                name = self.moves.actions[unit].vm.name
                choices.append((not self.moves.vjobs[unit].preemptible, max(0, lacking - memory), memory, name, unit))
        return [unit for *_, unit in sorted(choices)]

    def suspends(self, forced: bool) -> list[Step]:
        """Suspend the first choice, and each other VM whose suspend makes an arrival possible.

        VMs of vjobs that are not preemptible are suspended only if ``forced``, one at a time.
        """
        found: list[Step] = []
        for unit in self._suspendable():
            preemptible = self.moves.vjobs[unit].preemptible
            if found and not preemptible:
                break
            if unit in self.blocked and (preemptible or forced):
                lacking = self._lacking(self._schedule.place(unit))
                if not found or (lacking is not None and lacking <= self.moves.memory[unit]):
                    found.append(self.take(unit, ASLEEP))
        return found

    def _lacking(self, node: int) -> int | None:
        """The least memory that must come back on a node before a blocked arrival fits; None if no node is short."""
        free = self._free[node]
        return min(
            (
                demand - free
                for unit in self.moves.waiting[node]
                if unit in self.blocked and (demand := self.moves.demand_on(unit, node)) > free
            ),
            default=None,
        )

    def _pivot(self, unit: int) -> int | None:
        """The node with the least room that is enough."""
        memory, vjob = self.moves.memory[unit], self.moves.vjobs[unit]
        apart = (self._schedule.place(unit), self.moves.destination[unit])
        return self._room.best_fit(memory, vjob, self.moves.names, apart)

    def take(self, unit: int, pivot: int) -> Step:
        """Choose a bypass, and find the actions that it makes possible."""
        memory = self.moves.memory[unit]
        if pivot != ASLEEP:
            self._free[pivot] -= memory
            self._room.shrink(pivot, memory)
        self._chosen.add(unit)
        step = self._schedule.bypass(unit, pivot)
        self._follow(step.here, memory)
        return step

    def _follow(self, node: int, memory: int) -> None:
        """Follow the arrivals that fit when memory comes back on a node, those that fit after these left, and so on."""
        self._free[node] += memory
        nodes = [node]
        while nodes:
            for unit in self.moves.waiting[nodes.pop()]:
                if unit not in self.blocked:
                    continue
                needs = self.moves.needed(unit)
                if any(self._free[each] < demand for each, demand in needs):
                    continue
                self.blocked.remove(unit)
                for each, demand in needs:
                    self._free[each] -= demand
                left = self._schedule.place(unit)
                if left != NOWHERE:
                    self._free[left] += self.moves.memory[unit]
                    nodes.append(left)


class _Rooms:
    """Nodes by the memory that a pivot may use, smallest first."""

    def __init__(self, rooms: Iterable[tuple[int, int]]) -> None:
        self._sorted = sorted(rooms)
        self._of = {node: room for room, node in self._sorted}

    def best_fit(self, memory: int, vjob: VJob, names: list[str], apart: tuple[int, int]) -> int | None:
        """The node with the least room that is enough, of those that the vjob allows."""
        for place in range(bisect.bisect_left(self._sorted, (memory, NOWHERE)), len(self._sorted)):
            node = self._sorted[place][1]
            if node not in apart and vjob.allows(names[node]):
                return node
        return None

    def shrink(self, node: int, memory: int) -> None:
        """Take memory away on a node."""
        room = self._of[node]
        del self._sorted[bisect.bisect_left(self._sorted, (room, node))]
        self._of[node] = room - memory
        bisect.insort(self._sorted, (room - memory, node))
