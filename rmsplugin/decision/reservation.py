"""Reservations: a node is kept free of arrivals for a VM for which no node has room (V-Reconfiguration of seed 004).

The blocking problem: a node is short, its VMs wait for their pages, and no node has room for any VM that could go. If
the idle memory of the cluster is more than a node's memory, one node is reserved. It takes no arrivals until it has
room, and then it takes the VM with the largest demand. It is released when the blocking is gone, or when the VMs that
moved there have ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from rmsplugin.decision.load import Board, NodeLoad, VMLoad, mean_memory_mib
from rmsplugin.decision.load_sharing import LIGHTEST, Destination, relieve


@dataclass(frozen=True, slots=True)
class ReservationLimits:
    """The conditions under which a node is reserved, and for how long.

    Args:
        serious_faults_per_s: a VM that waits for so many pages a second suffers from the shortage.
        most_share: the part of the nodes that may be reserved at a time (rounded down, but one always may be).
        reserving_s: a node that has no room by then is given up: the cluster is truly full.
        until: the end of a reserving period: as soon as there is room, or when all VMs of the node have ended (the
            seed's first form).
    """

    serious_faults_per_s: float = 5.0
    most_share: float = 0.25
    reserving_s: float = 600.0
    until: Literal["room", "empty"] = "room"

    def most_nodes(self, nodes: int) -> int:
        """The number of nodes that may be reserved at a time."""
        return max(1, math.floor(nodes * self.most_share))


@dataclass(frozen=True, slots=True)
class Reservation:
    """A node that takes no arrivals.

    Args:
        node: its name.
        vm: the VM for which it was reserved; the VM that moves there is chosen when there is room.
        since_s: the time of the reservation, on the caller's clock.
        guests: the VMs that were moved there; none during the reserving period.
    """

    node: str
    vm: str
    since_s: float
    guests: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reservations:
    """The reservations remembered from one cycle to the next."""

    held: tuple[Reservation, ...] = ()
    full_until_s: float = -math.inf  # the cluster was found truly full: no node is reserved before that

    @property
    def nodes(self) -> frozenset[str]:
        """The names of the reserved nodes."""
        return frozenset(each.node for each in self.held)


@dataclass(frozen=True, slots=True)
class Note:
    """The outcome of a reservation: a word for programs, and a sentence with numbers for people.

    ``prices`` of all ways out of a shortage are the end of the sentence.
    """

    what: Literal["reserved", "served", "released", "full", "compacted", "suspended", "short"]
    node: str
    sentence: str
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    prices: str = ""


def blocked(board: Board, limits: ReservationLimits) -> list[VMLoad]:
    """For each node that stays short, the VM with the largest demand of those that wait for many pages, largest first.

    A VM that is alone on its node blocks no other, however short the node is: no node would do more for it.
    """
    found = []
    for name in board.nodes:
        if board.free_mib[name] < 0 and len(board.vms[name]) > 1:
            suffering = [vm for vm in board.movable(name) if vm.faults_per_s >= limits.serious_faults_per_s]
            if suffering:
                found.append(max(suffering, key=_by_size))
    return sorted(found, key=_by_size, reverse=True)


def _by_size(vm: VMLoad) -> tuple[int, str]:
    return vm.memory_mib, vm.name


class Reconfiguration:
    """One cycle of virtual reconfiguration, after load sharing has found no more relief."""

    #: Where VMs go that leave a node which is short.
    relieved_to: Destination = staticmethod(LIGHTEST)

    def __init__(self, board: Board, before: Reservations, now_s: float, limits: ReservationLimits) -> None:
        self.board, self.limits, self.now_s = board, limits, now_s
        self.notes: list[Note] = []
        self._held = {each.node: each for each in before.held}
        self._full_until_s = before.full_until_s

    @property
    def reservations(self) -> Reservations:
        """The reservations to be remembered."""
        return Reservations(tuple(self._held.values()), self._full_until_s)

    @property
    def closed(self) -> frozenset[str]:
        """The nodes that take no arrivals."""
        return frozenset(self._held)

    def reconfigure(self) -> None:
        """Release nodes that have served, serve blocked VMs, help the remaining ones, until nothing is left to do."""
        self._release_served()
        self.settle()
        self._give_up_late()
        before = None
        while before != self._progress:
            before = self._progress
            self._give_up_surplus()
            self.settle()
            self._help_all()
            self.settle()

    @property
    def _progress(self) -> tuple[int, int, frozenset[str]]:
        """A value that changes with each step."""
        return len(self.board.moves), len(self.board.suspended), self.closed

    def _help_all(self) -> None:
        """Help unserved VMs, largest first; a step for one may help others, too, which are then left alone."""
        left = self.unserved()
        for vm in list(left):
            if vm in left:
                before = self._progress
                self.help(vm)
                if before != self._progress:
                    left = self.unserved()

    def help(self, vm: VMLoad) -> None:
        """Help one blocked VM: reserve a node for it, if one may be reserved."""
        node = self.candidate(vm)
        if node is not None:
            self.reserve(vm, node)

    def settle(self) -> None:
        """Relieve nodes, and move blocked VMs to reserved nodes that have room, until nothing changes."""
        relieve(self.board, self.closed, self.relieved_to)
        served = [self._serve(vm) for vm in blocked(self.board, self.limits)]
        while any(served):
            relieve(self.board, self.closed, self.relieved_to)
            served = [self._serve(vm) for vm in blocked(self.board, self.limits)]

    def unserved(self) -> list[VMLoad]:
        """The blocked VMs without a node that is reserving for them, largest first."""
        return blocked(self.board, self.limits)[len(self._reserving) :]

    @property
    def _reserving(self) -> list[Reservation]:
        return [each for each in self._held.values() if not each.guests]

    def _release(self, node: str, what: Literal["released", "full"], why: str, **numbers: float | str) -> None:
        del self._held[node]
        self.notes.append(Note(what, node, f"{node} is released: {why}", numbers))

    def _release_served(self) -> None:
        """Release the nodes whose guests have ended or gone, and nodes that no longer exist."""
        for each in list(self._held.values()):
            if each.node not in self.board.nodes:
                self._release(each.node, "released", "it takes no VMs any more")
            elif each.guests:
                left = each.guests & {vm.name for vm in self.board.vms[each.node]}
                if left:
                    self._held[each.node] = replace(each, guests=left)
                else:
                    self._release(each.node, "released", "the VMs that were moved there have ended")

    def _give_up_surplus(self) -> None:
        """Release, newest first, the nodes that are reserving for no VM any more."""
        surplus = len(self._reserving) - len(blocked(self.board, self.limits))
        newest = sorted(self._reserving, key=lambda each: (-each.since_s, each.node))
        for each in newest[: max(0, surplus)]:
            self._release(each.node, "released", "nobody is blocked any more", vm=each.vm)

    def _give_up_late(self) -> None:
        """Release the nodes that have not had room in time: the cluster is truly full."""
        for each in self._reserving:
            waited_s = self.now_s - each.since_s
            if waited_s >= self.limits.reserving_s:
                self._full_until_s = self.now_s + self.limits.reserving_s
                words = f"it has no room after {waited_s:.0f} s; the cluster is truly full"
                self._release(each.node, "full", words, waited_s=waited_s, vm=each.vm)

    def _serve(self, vm: VMLoad) -> bool:
        """Move a blocked VM to a reserved node with room, nodes with guests first; returns whether it moved."""
        ready = [each for each in self._held.values() if self._has_room(each, vm)]
        if not ready:
            return False
        chosen = min(ready, key=lambda each: (not each.guests, each.since_s, each.node))
        source = self.board.place[vm.name]
        self.board.move(vm, source, chosen.node)
        self._held[chosen.node] = replace(chosen, guests=chosen.guests | {vm.name})
        waited_s = self.now_s - chosen.since_s
        words = f"{vm.name} ({vm.memory_mib} MiB) moves from {source} to {chosen.node}, reserved for {waited_s:.0f} s"
        self.notes.append(Note("served", chosen.node, words, {"vm": vm.name, "waited_s": waited_s}))
        return True

    def _has_room(self, held: Reservation, vm: VMLoad) -> bool:
        here = self.board.vms[held.node]
        if not here:
            return True  # it has all that a node can have, even if it demands more
        if self.board.free_mib[held.node] < vm.memory_mib or self.board.free_slots[held.node] <= 0:
            return False
        return self.limits.until == "room" or bool(held.guests)

    def reserve(self, vm: VMLoad, node: str, why: str = "", costs: Mapping[str, float] = MappingProxyType({})) -> None:
        """Reserve a node for a blocked VM; the note has ``why`` and ``costs``."""
        idle_mib = self.board.idle_mib(self.closed)
        self._held[node] = Reservation(node, vm.name, self.now_s)
        words = (
            f"{node} is reserved for {vm.name}, which demands {vm.memory_mib} MiB: no node has room, "
            f"and {idle_mib} MiB are idle in pieces{why}"
        )
        self.notes.append(Note("reserved", node, words, {"vm": vm.name, "idle_mib": idle_mib, **costs}, why))

    def candidate(self, vm: VMLoad) -> str | None:
        """The node to reserve for a blocked VM: the most lightly loaded, then with most idle memory; None: none.

        It can hold the VM by itself; where no node can, it is one of the largest.
        """
        board, closed = self.board, self.closed
        nodes = list(board.nodes.values())
        if self.now_s < self._full_until_s or len(closed) >= self.limits.most_nodes(len(nodes)):
            return None
        if board.idle_mib(closed) <= mean_memory_mib(nodes):
            return None
        large = _large_enough(nodes, vm.memory_mib)
        open_ones = [each.name for each in large if each.name not in closed and not board.is_short(each.name)]
        return min(open_ones, key=lambda name: (len(board.vms[name]), -board.free_mib[name], name), default=None)


def _large_enough(nodes: Sequence[NodeLoad], memory_mib: int) -> list[NodeLoad]:
    """The nodes that can hold a demand, or the largest nodes if none can."""
    least = min(memory_mib, max((node.memory_mib for node in nodes), default=0))
    return [node for node in nodes if node.memory_mib >= least]


def reconfigure(board: Board, before: Reservations, now_s: float, limits: ReservationLimits) -> Reconfiguration:
    """One cycle of load sharing with virtual reconfiguration.

    Args:
        board: the VMs' places; it has the moves afterwards.
        before: the reservations remembered from the cycle before.
        now_s: the time on the clock of ``before``.
        limits: the conditions of reserving.

    Returns:
        The cycle: its reservations, its notes, and its closed nodes, which take no arrivals.
    """
    cycle = Reconfiguration(board, before, now_s, limits)
    cycle.reconfigure()
    return cycle
