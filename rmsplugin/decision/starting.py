"""Which vjobs start (or are resumed) where they fit now, while none that runs is moved: FCFS with EASY backfill.

The order is that of the queue. The first vjob that does not fit is the head of ``rmsplugin.decision.easy``: whoever is
behind it may pass only if that does not delay it. VMs are placed by First Fit Decreasing and stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.decision import easy
from rmsplugin.decision.easy import Outcome
from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A vjob that may start, or one that runs.

    Args:
        name: of the vjob.
        vms: its VMs.
        nodes: the nodes that it may use.
        end_s: when it ends at the latest if it starts now, or from now if it runs; seconds, ``math.inf`` for never.
        prefer: by VM name, the node to try first (where its saved state is).
        hosts: by VM name, where its VMs are; empty if it does not run.
    """

    name: str
    vms: tuple[VM, ...]
    nodes: frozenset[str] = frozenset()
    end_s: float = math.inf
    prefer: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was decided for one vjob: where its VMs start, or (``placement`` None) why they do not."""

    placement: dict[str, str] | None
    reason: str


class FixedRoom:
    """Vjobs whose VMs stay where they are once they have been placed (a ``decision.room.Room``)."""

    def __init__(self, capacity: Mapping[str, Resources], placements: dict[str, dict[str, str]]) -> None:
        """Make an empty one.

        Args:
            capacity: of each node, in the order in which nodes are tried.
            placements: where the VMs of each vjob are that runs or starts now; shared by all rooms of a decision.
        """
        self._capacity = capacity
        self._placements = placements
        self.free = dict(capacity)
        self.refused: dict[str, str] = {}  # why there was no room for a vjob when its turn came

    def add(self, item: Candidate) -> bool:
        """See ``Room.add``. One that was placed now keeps its hosts at any later time."""
        placement = self._placements.get(item.name)
        if placement is None:
            placement = self.find(item)
            if placement is None:
                self.refused[item.name] = _no_room(item, self.free)
                return False
            self._placements[item.name] = placement
        elif not self._holds(item, placement):
            return False
        self._take(item, placement)
        return True

    def discard(self, item: Candidate) -> None:
        """See ``Room.discard``."""
        placement = self._placements.pop(item.name)
        for vm in item.vms:
            self.free[placement[vm.name]] += vm.demand

    def anew(self, items: Iterable[Candidate]) -> FixedRoom | None:
        """See ``Room.anew``. Those that run or start now are there, fit or not; others are placed freely."""
        room = FixedRoom(self._capacity, self._placements)
        unplaced = []
        for item in items:
            placement = item.hosts or self._placements.get(item.name)
            if placement:
                room._take(item, placement)
            else:
                unplaced.append(item)
        for item in unplaced:
            placement = room.find(item)
            if placement is None:
                return None
            room._take(item, placement)
        return room

    def find(self, item: Candidate) -> dict[str, str] | None:
        """Hosts for all its VMs by FFD, or None."""
        free = {name: left for name, left in self.free.items() if name in item.nodes}
        return first_fit_decreasing(item.vms, free, item.prefer)

    def _holds(self, item: Candidate, placement: Mapping[str, str]) -> bool:
        left = dict(self.free)
        for vm in item.vms:
            if not left[placement[vm.name]].holds(vm.demand):
                return False
            left[placement[vm.name]] -= vm.demand
        return True

    def _take(self, item: Candidate, placement: Mapping[str, str]) -> None:
        for vm in item.vms:
            # VMs on nodes that take none now have no part of what the others have.
            if placement[vm.name] in self.free:
                self.free[placement[vm.name]] -= vm.demand


def decide_starts(
    queue: Sequence[Candidate], running: Sequence[Candidate], capacity: Mapping[str, Resources]
) -> dict[str, Verdict]:
    """Walk the whole queue, head first.

    Args:
        queue: the vjobs that may start, or be resumed.
        running: those that have VMs, with their ``hosts``.
        capacity: of each node that takes VMs, in the order in which nodes are tried.

    Returns:
        A verdict by vjob name, in queue order.
    """
    placements: dict[str, dict[str, str]] = {}
    room = FixedRoom(capacity, placements).anew(running)
    assert room is not None  # all of them have hosts
    made = easy.schedule(queue, running, room, lambda item: item.end_s)
    head = made.reservation.head if made.reservation else None
    return {
        item.name: _verdict(item, outcome, placements.get(item.name), head, room) for item, outcome in made.outcomes
    }


def nodes_wanted(
    queue: Sequence[Candidate], free: Mapping[str, Resources], others: Mapping[str, Resources]
) -> frozenset[str]:
    """Which of the ``others`` (nodes without a room) vjobs would start on that find no place in what is ``free``.

    Args:
        queue: the vjobs that do not start now, in queue order.
        free: what is left of each node that takes VMs, or will soon.
        others: capacity of nodes that could be held.
    """
    left = {**free, **others}
    wanted: set[str] = set()
    for item in queue:
        allowed = {name: amount for name, amount in left.items() if name in item.nodes}
        placement = first_fit_decreasing(item.vms, allowed, item.prefer)
        for vm in item.vms if placement else ():
            node = (placement or {})[vm.name]
            left[node] -= vm.demand
            wanted |= {node} & others.keys()
    return frozenset(wanted)


def _verdict(
    item: Candidate, outcome: Outcome, placement: dict[str, str] | None, head: Candidate | None, room: FixedRoom
) -> Verdict:
    if outcome in easy.STARTING and placement is not None:
        return Verdict(placement, "starts on " + ", ".join(sorted(set(placement.values()))))
    if outcome is Outcome.WOULD_DELAY and head is not None:
        return Verdict(None, f"would delay vjob {head.name}, which is ahead of it in the queue")
    return Verdict(None, room.refused[item.name])


def _no_room(item: Candidate, left: Mapping[str, Resources]) -> str:
    free = {name: amount for name, amount in left.items() if name in item.nodes}
    if not free:
        return "no node that it may use takes VMs now"
    largest = max(item.vms, key=lambda vm: (vm.demand.memory_mib, vm.demand.cpus))
    roomiest = max(free, key=lambda name: (free[name].memory_mib, free[name].cpus))
    needs = f"{len(item.vms)} VMs of {largest.demand} each" if len(item.vms) > 1 else f"a VM of {largest.demand}"
    return f"needs {needs}; the node with most memory free, {roomiest}, has {free[roomiest]}"
