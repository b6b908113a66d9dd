"""Room: a set of vjobs that are known to run together, with a test whether one more does.

EASY is written over this protocol, so that the very same pass can be checked job by job against published schedules
that count processors, and be used on nodes with CPUs and memory.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, takewhile
from typing import Any, Protocol, TypeVar

from rmsplugin.decision.later import LaterRoom, Ruling, is_barred_now
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Reason
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState, VJob
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Rules, unadmitted
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.first_fit import FirstFit
from rmsplugin.packing.search import Search

Item = TypeVar("Item")

#: Where no more vjobs run, each of their ends is tried as the time of a reservation, whatever rules there are.
_FEW = 64

#: Rooms with so many VMs in all are kept for further decisions about the same VMs: some tens of MiB.
_KEPT_VMS = 300_000


class Room(Protocol[Item]):
    """Vjobs that run together; ``add`` and ``anew`` judge whole sets, so that running VMs may migrate to make room."""

    @property
    def by_halves(self) -> bool:
        """Whether a later time is searched by halves, because to ask for one after the other would take too long."""
        ...

    def add(self, item: Item) -> bool:
        """Add one vjob if all fit together; otherwise change nothing."""
        ...

    def discard(self, item: Item) -> None:
        """Take back the last ``add``."""
        ...

    def anew(self, items: Iterable[Item]) -> Room[Item] | None:
        """The same nodes with only these on them; None if they do not fit together."""
        ...

    def later(self, items: Iterable[Item], newest: Item | None = None) -> Room[Item] | None:
        """The same nodes later with only these on them, and with ``newest``; None if they do not fit together.

        Without ``newest`` only capacity is asked: those that run together may run together later.
        """
        ...


@dataclass
class Effort:
    """The trials that a decision may still make: packing again and again takes long for large queues."""

    left: float = math.inf  # the number of VMs that may be placed on trial
    checks: int = 0  # the number of times that a solver may be started, where First Fit and best fit fail
    search: Search = field(default_factory=Search)  # the rest of the limits of all such checks
    reserving: Budget | None = None  # of the programs that are asked about rules; None: none is asked
    around: int = 32  # the number of vjobs for which room is sought in vain around VMs on nodes of their own

    @classmethod
    def within(cls, parameters: Parameters, *, checks: bool = True) -> Effort:
        """The trials of one decision; ``checks``: whether its policy checks exactly, where that is allowed."""
        count = parameters.exact_checks if checks else 0
        return cls(parameters.packed_vms, count, parameters.search, cls.unbounded(parameters).reserving)

    @classmethod
    def unbounded(cls, parameters: Parameters) -> Effort:
        """As many trials as a decision makes, with a limit of programs about rules."""
        return cls(reserving=Budget(parameters.search_of_one_check) if parameters.exact_checks else None)

    @property
    def is_spent(self) -> bool:
        """Whether only necessary trials should still be made."""
        return self.left <= 0

    def next_check(self) -> Search | None:
        """The limits of one more check, half of the remaining ones; None if there are no more checks."""
        if self.checks <= 0 or self.is_spent:
            return None
        self.checks -= 1
        self.search = self.search.part(0.5)
        return self.search


@dataclass(frozen=True)
class Site:
    """The constant part of a decision: nodes, the order of the queue, and VMs that have their node already.

    ``pinned`` maps the name of a vjob to the nodes of its VMs: of vjobs that run although First Fit Decreasing finds
    no place for them (see ``rmsplugin.decision.admission``). ``in_place`` names those of them for which no packing
    finds a place, or may look for one.
    """

    configuration: Configuration
    pinned: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    in_place: frozenset[str] = frozenset()
    effort: Effort = field(default_factory=Effort)

    def with_pinned(self, pinned: Mapping[str, Mapping[str, str]]) -> Site:
        """The same with only these pinned; values that follow from nodes and queue are not computed again."""
        site = copy(self)
        site.__dict__["pinned"] = pinned
        return site

    @cached_property
    def up(self) -> dict[str, Node]:
        """The nodes on which VMs can be placed, by name, in file order."""
        return {node.name: node for node in self.configuration.nodes if node.state is NodeState.UP}

    @cached_property
    def capacity(self) -> Resources:
        """The resources of all nodes that are up together."""
        return sum((node.capacity for node in self.up.values()), NOTHING)

    @cached_property
    def ruling(self) -> Ruling | None:
        """Tells which vjobs can run together by rules about VMs beside each other; None: there are none."""
        return Ruling(self.configuration, self.effort.reserving) if self.configuration.joint else None

    @cached_property
    def position(self) -> dict[str, int]:
        """Each vjob's place in the queue, head first, by name."""
        return {vjob.name: number for number, vjob in enumerate(self.configuration.vjobs)}

    @cached_property
    def demands(self) -> dict[str, Resources]:
        """The summed demand of each vjob's VMs, by name; CPUs in whole hundredths, as packing counts them."""
        return {vjob.name: _demand(vjob) for vjob in self.configuration.vjobs}

    @cached_property
    def _excludes(self) -> dict[Rules, bool]:
        """The results of ``restricts``: mostly all vjobs share one set, which may be of a thousand nodes."""
        return {}

    def restricts(self, vjob: VJob) -> bool:
        """Whether there is a node that is up, and that a vjob may not use."""
        rules = vjob.own_rules
        if rules not in self._excludes:
            self._excludes[rules] = unadmitted(rules, self.up)
        return self._excludes[rules]

    @cached_property
    def _shapes(self) -> dict[str, Hashable]:
        return {}

    def shape(self, vjob: VJob) -> Hashable:
        """A key by which vjobs of equal VMs are alike: their number, the demand of each, and their allowed nodes.

        One whose VMs need nodes of their own, or cannot move, is like no other.
        """
        if vjob.name not in self._shapes:
            first = vjob.vms[0].demand
            alike = len(vjob.vms) == 1 or all(vm.demand is first or vm.demand == first for vm in vjob.vms)
            which = (len(vjob.vms), first.centi_cpus, first.memory_mib, vjob.own_rules)
            own = vjob.anchored or vjob.name in self.configuration.apart
            self._shapes[vjob.name] = which if alike and not own else vjob.name
        return self._shapes[vjob.name]

    def in_order(self, vjobs: Iterable[VJob]) -> list[VJob]:
        """These vjobs in the order of the queue."""
        return sorted(vjobs, key=lambda vjob: self.position[vjob.name])

    def pack(self, vjobs: Iterable[VJob]) -> NodeRoom | None:
        """Pack vjobs from scratch in queue order, each by FFD: a function of the set. None if one finds no room."""
        room, failed = self.pack_until(vjobs)
        return room if failed is None else None

    def pack_as_before(self, vjobs: Sequence[VJob]) -> NodeRoom | None:
        """The same as ``pack``, from what former decisions about the same VMs have packed; it counts as trials, too."""
        known: Packings = self.configuration.kept.setdefault("packings", Packings())
        question = self._question(vjobs)
        if question not in known.rooms:
            before = self.effort.left
            room, failed = self.pack_until(vjobs)
            found = room if failed is None else None
            more = 0 if found is None else len(found.placement)
            if not room._repeats or self.effort.is_spent or known.vms + more > _KEPT_VMS:
                return found
            known.rooms[question] = found, 0 if math.isinf(before) else before - self.effort.left
            known.vms += more
        else:
            self.effort.left -= known.rooms[question][1]
        kept = known.rooms[question][0]
        return None if kept is None else kept.copied_to(self)

    def _question(self, vjobs: Sequence[VJob]) -> Hashable:
        """All on which the result of ``pack`` depends, for one order of the queue and these VMs."""
        names = frozenset(vjob.name for vjob in vjobs)
        barred = frozenset(vjob.name for vjob in vjobs if is_barred_now(vjob))
        pinned = [(name, tuple(sorted(places.items()))) for name, places in self.pinned.items() if name in names]
        return names, barred, frozenset(pinned)

    def pack_until(self, vjobs: Iterable[VJob]) -> tuple[NodeRoom, VJob | None]:
        """Pack vjobs as ``pack`` does, until one finds no room: the room with those ahead of it, and that one."""
        room = NodeRoom(self)
        members = self.in_order(vjobs)
        for vjob in members:
            if vjob.name in self.pinned:
                room.reserve(vjob, self.pinned[vjob.name])
        for _, some in groupby((vjob for vjob in members if vjob.name not in self.pinned), self.shape):
            alike = list(some)
            count = room.append_alike(alike)
            if count < len(alike):
                return room, alike[count]
        return room, None


def _demand(vjob: VJob) -> Resources:
    first = vjob.vms[0].demand
    if len(vjob.vms) == 1 or all(vm.demand is first for vm in vjob.vms):  # equal VMs are counted
        return Resources(first.centi_cpus * len(vjob.vms) / 100, first.memory_mib * len(vjob.vms))
    return Resources(sum(vm.demand.centi_cpus for vm in vjob.vms) / 100, sum(vm.demand.memory_mib for vm in vjob.vms))


@dataclass
class Packings:
    """The rooms that were packed from scratch, by question, each with the number of VMs that were placed for it."""

    rooms: dict[Hashable, tuple[NodeRoom | None, float]] = field(default_factory=dict)
    vms: int = 0  # in all rooms


class NodeRoom:
    """Room on nodes with CPUs and memory: ``pinned`` members and packed ones, both in queue order."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.pinned: list[VJob] = []
        self.packed: list[VJob] = []
        self.placement: dict[str, str] = {}
        self._packing = FirstFit.on(site.configuration.nodes)
        self._free: Resources | None = None  # on all nodes together; None: not summed up yet
        self._free_on: dict[Rules, Resources] = {}  # the answers since a member came
        self.refusals: dict[Hashable, Reason] = {}  # the reasons given since then to vjobs that find no room
        self.nowhere_near: set[Hashable] = set()  # shapes for which no few migrations make room
        self.barred: set[Hashable] = set()  # shapes of VMs that need nodes of their own, and find none by rules
        self.present: NodeRoom | None = None  # with these members near where they are; this room: no other one is
        self._bare: NodeRoom | None = None  # with the pinned members only
        self._ahead: NodeRoom | None = None
        self._ahead_count = 0  # the number of packed members in it
        self._before: dict[str, Any] | None = None  # what this was before the last ``add``, if that packed all anew
        self._repeats = True  # whether its members would have the same places again, packed one after the other

    @property
    def members(self) -> list[VJob]:
        """The vjobs that run in it: first the pinned ones, then the packed ones."""
        return [*self.pinned, *self.packed]

    @property
    def is_spent(self) -> bool:
        """Whether the decision has tried as many packings as it may."""
        return self.site.effort.is_spent

    def spend(self, vms: int) -> None:
        """So many VMs were placed on trial."""
        self.site.effort.left -= vms

    @property
    def names(self) -> set[str]:
        """The names of the members."""
        return {vjob.name for vjob in self.members}

    def behind(self, vjob: VJob) -> list[VJob]:
        """The members behind a vjob in the queue."""
        return [*self._after(self.pinned, vjob), *self._after(self.packed, vjob)]

    def _after(self, members: list[VJob], vjob: VJob) -> list[VJob]:
        return members[bisect_right(members, self.site.position[vjob.name], key=self._position) :]

    def _position(self, vjob: VJob) -> int:
        return self.site.position[vjob.name]

    def reserve(self, vjob: VJob, placement: Mapping[str, str]) -> None:
        """Take the demand of a vjob's VMs where they are, whether or not there is room."""
        self._packing.take_all(vjob.vms, placement)
        self._repeats = self._repeats and not self.packed
        self._bare = self._free = None
        self._changed()
        self.placement.update(placement)
        self.pinned.append(vjob)

    def _changed(self) -> None:
        """Note that a vjob has come or gone. Results so far are left to copies of this room as it was."""
        self._free_on, self.refusals, self._before = {}, {}, None
        self.nowhere_near, self.barred, self.present = set(), set(), None

    def append(self, vjob: VJob) -> bool:
        """Place a vjob's VMs by FFD beside all present VMs, which stay where they are; all or none."""
        demand = self.site.demands[vjob.name]
        free = self.free
        if not free.holds(demand):
            return False
        self.site.effort.left -= len(vjob.vms)
        placed = self._placed(vjob) if vjob.name not in self.site.configuration.apart else self._placed_apart(vjob)
        if placed is None:
            return False
        self._free = free - demand
        self._changed()
        self.placement.update(placed)
        self.packed.append(vjob)
        return True

    def _placed(self, vjob: VJob, *, apart: bool = False) -> dict[str, str] | None:
        """Place a vjob's VMs by FFD, all or none; ``apart``: on nodes of their own, where they are if they can be."""
        there = self._in_place(vjob) if apart else None
        if there is not None:
            self._packing.take_all(vjob.vms, there)
            return there
        allows = vjob.allows if self.site.restricts(vjob) else None
        if vjob.anchored:
            return self._packing.place_around(vjob.vms, allows, apart=apart)
        return self._packing.place(vjob.vms, allows, () if apart else None)

    def _in_place(self, vjob: VJob) -> dict[str, str] | None:
        """The nodes where all VMs of a vjob are now, each on one of its own that still has room for it."""
        homes = self.site.configuration.homes
        there = {vm.name: homes[vm.name] for vm in vjob.vms if vm.name in homes}
        if len(set(there.values())) < len(vjob.vms):
            return None
        fits = (
            there[vm.name] in self.site.up
            and vjob.allows(there[vm.name])
            and self._packing.free(there[vm.name]).holds(vm.demand)
            for vm in vjob.vms
        )
        return there if all(fits) else None

    def _placed_apart(self, vjob: VJob) -> dict[str, str] | None:
        """Place VMs that need nodes of their own by FFD; beside each other, if rules find a place for all members.

        Those who are ahead may be where FFD has them, and in the way; but they may be elsewhere, too.
        """
        placed = self._placed(vjob, apart=True)
        alike = self._alike_apart(vjob)
        if placed is not None or alike in self.barred or self.is_spent:
            return placed
        placed = self._placed(vjob)
        if placed is not None and not self._ruled(vjob):
            self._give_back(vjob, placed)
            self.barred.add(alike)
            return None
        return placed

    def _give_back(self, vjob: VJob, placed: Mapping[str, str]) -> None:
        for vm in vjob.vms:
            self._packing.give_back(vm, placed[vm.name])

    def _ruled(self, vjob: VJob) -> bool:
        """Whether rules find a place for all members and one more; the trial counts as one of the decision's."""
        ruling = self.site.ruling
        assert ruling is not None, "a rule has its VMs on nodes of their own"
        places = ruling.passing
        before, self._repeats = places.placed_vms, False  # the answer depends on the question before
        found = places.allow([*self.members, vjob])
        self.spend(places.placed_vms - before)
        return found

    def _alike_apart(self, vjob: VJob) -> Hashable:
        """A key by which vjobs that have begun nowhere are alike, if all that rules say is that their VMs are apart."""
        configuration = self.site.configuration
        only = len(configuration.apart[vjob.name].vms) == len(vjob.vms) and len(vjob.rules) == len(vjob.own_rules) + 1
        if not only or any(vm.only is not None or vm.name in configuration.homes for vm in vjob.vms):
            return vjob.name
        return tuple(sorted((vm.demand.memory_mib, vm.demand.centi_cpus) for vm in vjob.vms)), vjob.own_rules

    def append_alike(self, vjobs: Sequence[VJob]) -> int:
        """Do the same with vjobs of one shape, one after the other, until one finds no room; returns how many fit."""
        one = vjobs[0]
        if len(vjobs) == 1:
            return int(self.append(one))
        groups, width = [vjob.vms for vjob in vjobs], len(one.vms)
        placed, count = self._packing.place_alike(groups, one.allows if self.site.restricts(one) else None)
        if count:
            self.site.effort.left -= width * count
            self._free = None
            self._changed()
            self.placement.update(placed)
            self.packed += vjobs[:count]
        self._in_vain(one, int(count < len(vjobs)))
        return count

    def _in_vain(self, vjob: VJob, times: int) -> None:
        """Count ``times`` vain calls of ``append`` for one of this shape: where sums say so they try nothing."""
        if times and self.free.holds(self.site.demands[vjob.name]):
            self.site.effort.left -= len(vjob.vms) * times

    def add(self, item: VJob) -> bool:
        """Add one vjob if all fit together, packed from scratch in queue order; otherwise change nothing."""
        if item.name not in self.site.pinned and not self._after(self.packed, item):
            return self.append(item)
        found = None if self.site.effort.is_spent else self.insert(item)
        if found is None:
            return False
        before = {**self.__dict__, "_before": None}
        self.__dict__.update(found[0].__dict__)
        self._before = before
        return True

    def insert(self, item: VJob, optional: Collection[str] = ()) -> tuple[NodeRoom, list[VJob]] | None:
        """Pack all from scratch in queue order with one more, at the expense of ``optional`` ones behind it only.

        Returns:
            The room, and those of ``optional`` (vjob names) that find no place any more; None if another one does not.
        """
        unpinned = {name: nodes for name, nodes in self.site.pinned.items() if name not in optional}
        if item.name in self.site.pinned or len(unpinned) < len(self.site.pinned):
            room = self._only_pinned(unpinned)
            left = self.site.in_order([item, *(member for member in self.members if member.name not in unpinned)])
        else:
            if not optional and not self.free.holds(self.site.demands[item.name]):
                return None  # sums alone refuse most candidates of a full cluster
            ahead, count = self.ahead_of(item), self._ahead_count
            if not ahead.append(item):
                return None
            self._ahead = None  # with the item in it, it fits the new room, and not this one any more
            left = self.packed[count:]
            room = ahead.copied()
            room._ahead, room._ahead_count = ahead, count + 1
        dropped: list[VJob] = []
        for _, members in groupby(left, self.site.shape):
            alike = list(members)
            gone = alike[room.append_alike(alike) :]
            if not gone:
                continue
            spared = len(list(takewhile(lambda member: member.name in optional, gone)))
            room._in_vain(gone[0], min(len(gone), spared + 1) - 1)
            if spared < len(gone):
                return None
            dropped += gone
        return room, dropped

    def _only_pinned(self, pinned: Mapping[str, Mapping[str, str]]) -> NodeRoom:
        """The same nodes with only those members on them that are ``pinned``, where they are pinned."""
        room = self._with_pinned_only()
        room.site, room._free = self.site.with_pinned(pinned), None
        room._changed()
        room.pinned = [member for member in self.pinned if member.name in pinned]
        for member in self.pinned:
            if member.name not in pinned:
                for vm in member.vms:
                    room._packing.give_back(vm, room.placement.pop(vm.name))
        room._bare = room.copied()  # for the next caller
        return room

    def _with_pinned_only(self) -> NodeRoom:
        """The same nodes with only the pinned members on them: a room of its own, without a look at all members."""
        if self._bare is None:
            self._bare = self.site.pack(self.pinned)
            assert self._bare is not None, "what is pinned is not packed"
        return self._bare.copied()

    def copied(self) -> NodeRoom:
        """An independent copy: what is added to it is not in this one."""
        other = copy(self)
        other.pinned, other.packed, other.placement = list(self.pinned), list(self.packed), dict(self.placement)
        other._packing = self._packing.copy()
        return other

    def copied_to(self, site: Site) -> NodeRoom:
        """An independent copy for another decision about the same VMs."""
        other = self.copied()
        other.site, other._free = site, None
        other._bare = other._ahead = None
        other._ahead_count = 0
        other._changed()
        return other

    def ahead_of(self, vjob: VJob) -> NodeRoom:
        """The same nodes with only the members that are packed before a vjob would be: a room that must not be changed.

        It is kept for the next call, so that a walk along the queue packs nothing twice.
        """
        until = bisect_left(self.packed, self.site.position[vjob.name], key=self._position)
        known = self._ahead_count if self._ahead is not None and self._ahead_count <= until else 0
        if self._repeats and len(self.packed) - until < until - known:
            self._ahead = self._without_those_from(until)
            self.spend(sum(len(member.vms) for member in self.packed[known:until]))  # as if they had been packed again
        else:
            if self._ahead is None or self._ahead_count > until:
                self._ahead, self._ahead_count = self._with_pinned_only(), 0
            for member in self.packed[self._ahead_count : until]:
                self._ahead.append(member)
        self._ahead_count = until
        return self._ahead

    def _without_those_from(self, until: int) -> NodeRoom:
        """A copy of this room without the packed members from this one on: all others have the same places."""
        room = self.copied()
        room._ahead, room._ahead_count, room._free = None, 0, None
        room._changed()
        room.packed = self.packed[:until]
        for member in self.packed[until:]:
            room._packing.give_back_all(member.vms, room.placement)
            for vm in member.vms:
                del room.placement[vm.name]
        return room

    def fits_behind(self, vjob: VJob) -> bool:
        """Whether a vjob fits beside those ahead of it alone: if not, no change behind it helps."""
        fits = self.ahead_of(vjob).append(vjob)
        if fits:
            self._ahead = None
        return fits

    def discard(self, item: VJob) -> None:
        """Take back the last ``add``: all are where they were before it."""
        if self._before is not None:
            self.__dict__.update(self._before)
            return
        assert self.packed[-1] is item, f"{item.name} is not the last one that was added"
        self.packed.pop()
        if self._ahead_count > len(self.packed):
            self._ahead = None
        for vm in item.vms:
            self._packing.give_back(vm, self.placement.pop(vm.name))
        self._free = None
        self._changed()

    def anew(self, items: Iterable[VJob]) -> NodeRoom | None:
        """The same nodes with only these on them; None if they do not fit together, packed in queue order."""
        vjobs = list(items)
        loose = sum((self.site.demands[vjob.name] for vjob in vjobs if vjob.name not in self.site.pinned), NOTHING)
        if not self.site.capacity.holds(loose):
            return None
        return self.site.pack(vjobs) if self.site.ruling is None else self.site.pack_as_before(vjobs)

    @property
    def by_halves(self) -> bool:
        """See ``Room``: so is a time by rules, which are asked about each VM."""
        return self.site.ruling is not None and len(self.members) > _FEW

    def later(self, items: Iterable[VJob], newest: VJob | None = None) -> Room[VJob] | None:
        """See ``Room``: rules about VMs beside each other hold then, too."""
        if self.site.ruling is not None:
            return LaterRoom(self, self.site.ruling).later(items, newest)
        return self.anew([*items, *([newest] if newest is not None else [])])

    def free_at(self, node: str) -> Resources:
        """The free resources of a node that is there; below 0 if it is overloaded."""
        return self._packing.free(node)

    @property
    def free(self) -> Resources:
        """The free resources of all nodes that are up together."""
        if self._free is None:
            self._free = self._packing.total_free
        return self._free

    def free_for(self, vjob: VJob) -> Resources:
        """The free resources of all the nodes together that a vjob may use."""
        if not self.site.restricts(vjob):
            return self.free
        rules = vjob.own_rules
        if rules not in self._free_on:
            allowed = (name for name in self.site.up if vjob.allows(name))
            self._free_on[rules] = self._packing.total_free_on(allowed)
        return self._free_on[rules]

    def only_apart(self, vjob: VJob) -> bool:
        """Whether a vjob that finds no place would have one if its VMs did not need nodes of their own."""
        if vjob.name not in self.site.configuration.apart:
            return False
        self.spend(len(vjob.vms))
        placed = self._placed(vjob)
        if placed is None:
            return False
        self._give_back(vjob, placed)
        return True

    def nodes_for_one_of(self, vjob: VJob) -> int:
        """The number of nodes, of those that a vjob may use, with room for the smallest of its VMs."""
        least = min((vm.demand for vm in vjob.vms), key=lambda demand: (demand.memory_mib, demand.cpus))
        return sum(vjob.allows(name) and self._packing.free(name).holds(least) for name in self.site.up)

    def largest_free_for(self, vjob: VJob) -> Resources:
        """The most CPUs and the most memory free on any node that a vjob may use, not necessarily on the same one."""
        if not self.site.restricts(vjob):
            return self._packing.largest_free
        free = [self._packing.free(name) for name in self.site.up if vjob.allows(name)]
        return Resources(max(0.0, *(each.cpus for each in free)), max(0, *(each.memory_mib for each in free)))
