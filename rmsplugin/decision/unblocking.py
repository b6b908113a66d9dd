"""Unblocking: the cheapest way to end a shortage that load sharing alone cannot end; it goes beyond seed 004.

Before a node is reserved, two other ways are looked at: migrations alone may make the room now (compaction: the idle
memory of many nodes is gathered), and suspending the last in the queue may be cheaper than to wait. All three are
priced in VM-seconds lost, and so is to do nothing. The cheapest is taken, and its sentence names all prices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmsplugin.decision.load import Board, Move, VMLoad
from rmsplugin.decision.load_sharing import TIGHTEST
from rmsplugin.decision.reservation import Note, Reconfiguration, ReservationLimits, Reservations
from rmsplugin.model.elements import VM, Node
from rmsplugin.model.resources import Resources
from rmsplugin.packing.item import Item
from rmsplugin.packing.search import Search

if TYPE_CHECKING:
    from rmsplugin.packing.repair import Repair


@dataclass(frozen=True, slots=True)
class Prices:
    """The costs of moving memory.

    Args:
        migrate_s: of a migration, whatever its size.
        network_mib_per_s: of a migration.
        store_mib_per_s: of a suspend, and of a resume.
        search: limits of the search for a compaction, each time; None: none is looked for.
        searches: the most compactions that are looked for in a cycle.
        may_wait: a node may stay short until its own VMs have ended; else one of the three is taken if there is one.
        kept_out: by node, the number of waiting VMs that could run there if it were not reserved; each loses its time
        meanwhile.
    """

    migrate_s: float = 0.1
    network_mib_per_s: float = 100.0
    store_mib_per_s: float = 100.0
    search: Search | None = field(default_factory=lambda: Search(time_limit_s=math.inf, deterministic_limit=0.02))
    searches: int = 10
    may_wait: bool = True
    kept_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_values(cls, values: Mapping[str, float]) -> Prices:
        """Prices from the keys and values of section [durations] of the settings (which this layer does not know).

        Raises:
            KeyError: a key is missing.
        """
        network, store = _speed(values["migrate_s_per_mib"]), _speed(values["suspend_s_per_mib"])
        return cls(migrate_s=values["migrate_s"], network_mib_per_s=network, store_mib_per_s=store)

    def migration_s(self, memory_mib: int) -> float:
        """The VM-seconds that one migration loses."""
        return self.migrate_s + memory_mib / self.network_mib_per_s


def _speed(s_per_mib: float) -> float:
    """MiB a second."""
    return 1 / s_per_mib if s_per_mib > 0 else math.inf


@dataclass(frozen=True)
class Offer:
    """One way to end a shortage: its cost, in VM-seconds, and its steps."""

    cost_s: float = math.inf  # it cannot be done
    moves: Sequence[Move] = ()
    vjob: str = ""
    node: str = ""
    is_bound: bool = False  # the cost is a lower bound, and the way was not looked for

    def __str__(self) -> str:
        if math.isinf(self.cost_s):
            return "is impossible"
        return f"costs {'at least ' if self.is_bound else ''}{self.cost_s:.0f} VM-seconds"


class Unblocking(Reconfiguration):
    """One cycle of virtual reconfiguration in which reserving is but one way of three."""

    relieved_to = staticmethod(TIGHTEST)

    def __init__(
        self, board: Board, before: Reservations, now_s: float, limits: ReservationLimits, prices: Prices
    ) -> None:
        super().__init__(board, before, now_s, limits)
        self.prices = prices
        self._searches_left = prices.searches

    def help(self, vm: VMLoad) -> None:
        """Take the cheapest way if it is cheaper than to wait; of equals compaction before reservation."""
        waiting, reservation, suspension = self.waiting(vm), self.reservation(vm), self.suspension(vm)
        compaction = self.compaction(vm, min(waiting.cost_s, reservation.cost_s, suspension.cost_s))
        offers = {"compaction": compaction, "reservation": reservation, "suspension": suspension}
        possible = [way for way, offer in offers.items() if not offer.is_bound and offer.cost_s < waiting.cost_s]
        if not possible:
            return
        way = min(possible, key=lambda each: offers[each].cost_s)
        offer = offers[way]
        why = "; " + ", ".join(f"{name} {each}" for name, each in {**offers, "waiting": waiting}.items())
        costs = {f"{name}_cost_s": each.cost_s for name, each in offers.items() if math.isfinite(each.cost_s)}
        costs["missing_mib"] = -self.board.free_mib[self.board.place[vm.name]]
        if way == "reservation":
            self.reserve(vm, offer.node, why, costs)
        elif way == "compaction":
            self._compact(vm, offer, why, costs)
        else:
            self._suspend(vm, offer, why, costs)

    # -- what each way costs -------------------------------------------------------------------------------------------

    def waiting(self, vm: VMLoad) -> Offer:
        """The cost of paging on the node that is short until so many of its own VMs have ended that it is not."""
        if not self.prices.may_wait:
            return Offer()
        node = self.board.place[vm.name]
        return Offer(self._stalled(node) * self._until_room_s(node, 0))

    def _stalled(self, node: str) -> float:
        """The time that a node loses to missing pages, in VMs' worth of time."""
        return sum(vm.stalled for vm in self.board.vms[node])

    def compaction(self, vm: VMLoad, below_s: float = math.inf) -> Offer:
        """Migrations on all nodes that are neither reserved nor short themselves: the least memory that is found.

        The missing memory at least has to leave the node: if that costs ``below_s`` or more, nothing is looked for, nor
        when this cycle has looked often enough.
        """
        source = self.board.place[vm.name]
        missing_mib = -self.board.free_mib[source]
        if self.prices.search is None or self.board.idle_mib(self.closed) < missing_mib:
            return Offer()
        if self.prices.migration_s(missing_mib) >= below_s or self._searches_left <= 0:
            return Offer(self.prices.migration_s(missing_mib), is_bound=True)
        self._searches_left -= 1
        names = [name for name in self.board.nodes if name == source or self._is_open(name)]
        repaired = self._repair(names).by_program(self.prices.search)
        if repaired is None:
            return Offer()
        moves = [
            Move(each.name, name, repaired.assignment[each.name], each.memory_mib)
            for name in names
            for each in self.board.movable(name)
            if repaired.assignment[each.name] != name
        ]
        return Offer(sum(self.prices.migration_s(move.memory_mib) for move in moves), moves)

    def _is_open(self, name: str) -> bool:
        return name not in self.closed and not self.board.is_short(name)

    def _repair(self, names: Sequence[str]) -> Repair:
        """The packing problem of these nodes: each VM takes one slot (as a CPU), and its memory."""
        from rmsplugin.packing.repair import Repair  # it loads a solver, which checking a remedy does not need

        items: list[Item] = []
        nodes: list[Node] = []
        places: dict[str, str] = {}
        for name in names:
            movable = self.board.movable(name)
            slots = self.board.free_slots[name] + len(movable)
            memory_mib = self.board.free_mib[name] + sum(vm.memory_mib for vm in movable)
            nodes.append(Node(name, Resources(max(0, slots), max(0, memory_mib))))
            items += [Item(VM(vm.name, Resources(1, vm.memory_mib))) for vm in movable]
            places |= {vm.name: name for vm in movable}
        return Repair(items, nodes, places)

    def reservation(self, vm: VMLoad) -> Offer:
        """The cost of paging on the node that is short until a reserved node has room, and of the migration."""
        node = self.candidate(vm)
        if node is None:
            return Offer()
        lost = self._stalled(self.board.place[vm.name]) + self.prices.kept_out.get(node, 0)
        wait_s = self._until_room_s(node, vm.memory_mib)
        return Offer(lost * wait_s + self.prices.migration_s(vm.memory_mib), node=node)

    def _until_room_s(self, node: str, memory_mib: int) -> float:
        """The time until VMs of a node with the missing amount have ended: each is expected to last its age again."""
        free, wait_s = self.board.free_mib[node], 0.0
        for vm in sorted(self.board.vms[node], key=lambda vm: (vm.age_s, vm.name)):
            if free >= memory_mib:
                break
            free, wait_s = free + vm.memory_mib, vm.age_s
        return wait_s

    def suspension(self, vm: VMLoad) -> Offer:
        """The cost of suspending the last in the queue on the node, and resuming it when another VM there has ended."""
        node = self.board.place[vm.name]
        vjob = self._last(node)
        if vjob is None:
            return Offer()
        members = self.board.members(vjob)
        memory_mib = sum(each.memory_mib for each in members)
        others = [each for each in self.board.vms[node] if each.vjob != vjob]
        wait_s = min((each.age_s for each in others), default=0.0)
        # A stalled VM loses less by not running; and its CPU is not lost: its neighbours have it.
        share = sum(1 - each.stalled for each in members) / len(self.board.vms[node])
        return Offer(2 * memory_mib / self.prices.store_mib_per_s + wait_s * share, vjob=vjob)

    def _last(self, node: str) -> str | None:
        """The last vjob in the queue that may be suspended and is enough for a node by itself; else the last."""
        movable = self.board.movable(node)
        freed: dict[str, int] = {}
        for each in movable:
            freed[each.vjob] = freed.get(each.vjob, 0) + each.memory_mib
        ranks = {each.vjob: each.rank for each in movable}
        order = sorted(
            (vjob for vjob in freed if not any(each.fixed for each in self.board.members(vjob))),
            key=lambda vjob: (-ranks[vjob], vjob),
        )
        enough = [vjob for vjob in order if freed[vjob] >= -self.board.free_mib[node]]
        return next(iter([*enough, *order]), None)

    # -- what is done --------------------------------------------------------------------------------------------------

    def _compact(self, vm: VMLoad, offer: Offer, why: str, costs: Mapping[str, float]) -> None:
        node = self.board.place[vm.name]
        for move in offer.moves:
            moved = next(each for each in self.board.vms[move.source] if each.name == move.vm)
            self.board.move(moved, move.source, move.destination)
        moved_mib = sum(move.memory_mib for move in offer.moves)
        words = f"{moved_mib} MiB migrate to make room for {node}{why}"
        self.notes.append(Note("compacted", node, words, {"vm": vm.name, "moved_mib": moved_mib, **costs}, why))

    def _suspend(self, vm: VMLoad, offer: Offer, why: str, costs: Mapping[str, float]) -> None:
        node = self.board.place[vm.name]
        self.board.suspend(offer.vjob)
        words = f"{offer.vjob}, the last in the queue on {node}, is suspended to make room there{why}"
        self.notes.append(Note("suspended", node, words, {"vm": vm.name, "vjob": offer.vjob, **costs}, why))


def estimate_mib(peaks_mib: Sequence[int], unknown_mib: int, percentile: float = 0.9) -> int:
    """The expected need of a VM: a high percentile of the peaks of earlier ones like it.

    Args:
        peaks_mib: the most that each earlier VM of this user, job name and size demanded, MiB.
        unknown_mib: the result without any.
        percentile: 0 to 1.
    """
    if not peaks_mib:
        return unknown_mib
    ordered = sorted(peaks_mib)
    return ordered[min(len(ordered) - 1, math.ceil(percentile * len(ordered)) - 1)]
