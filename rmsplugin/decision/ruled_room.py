"""Ruled room: whether one vjob more finds a place by capacity and by rules about VMs beside each other, at this moment.

It is for policies that suspend nobody. First Fit knows no such rule. So each vjob that it would start is placed by the
rules at once: beside all where they are, or else beside all where First Fit has them, or near that. Whoever finds no
place is refused in its turn, as one is for which no CPUs are left, and the policy needs not decide again.

That is asked where those that run obey all rules where they are. Elsewhere, and where the vjobs are so few that a
solver may look for places, rules are asked after the decision (``rmsplugin.decision.ruled_trial``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rmsplugin.decision.near import RoomBesideAll
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import no_room, refused_by_rules
from rmsplugin.decision.resident import is_resident
from rmsplugin.decision.result import Reason
from rmsplugin.decision.room import NodeRoom, Room
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, VM, VJob
from rmsplugin.model.joint import Joint, Lonely, Online, Root
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.item import items_of_one
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit
from rmsplugin.packing.ruled_program import MOST_PAIRS


@dataclass(slots=True)
class _Way:
    """Nodes with all that run, by one way to place them; each vjob that comes is placed beside them.

    Attributes:
        fit: the nodes with them.
        placement: their places.
        prefer: by VM, a node that is tried first.
    """

    fit: RuledFit
    placement: dict[str, str]
    prefer: Mapping[str, str]

    def takes(self, vjob: VJob) -> Obstacle | None:
        """Place a vjob; if there is no place for it, tell why."""
        found = self.fit.place(items_of_one(vjob), self.prefer)
        if isinstance(found, Obstacle):
            return found
        self.placement.update(found)
        return None

    def take_all(self, vjobs: Iterable[VJob]) -> bool:
        """Place vjobs one after the other; whether there is a place for each of them."""
        return all(self.takes(vjob) is None for vjob in vjobs)

    def give_back(self, vjob: VJob) -> None:
        """A vjob that was placed is gone."""
        for vm in vjob.vms:
            self.fit.give_back(vm, self.placement.pop(vm.name))

    def copy(self) -> _Way:
        """An independent copy."""
        return _Way(self.fit.copy(), dict(self.placement), self.prefer)


class RoomNow(Room[VJob], Protocol):
    """The room of this moment, for policies that suspend nobody."""

    @property
    def room(self) -> NodeRoom:
        """Those that run, and those that have come, on nodes."""
        ...

    @property
    def placement(self) -> Mapping[str, str]:
        """The places of their VMs."""
        ...

    def lack(self, vjob: VJob, where: str) -> Reason:
        """The reason why there is no room for a vjob; ``where``: see ``no_room``."""
        ...


def room_by_rules(admitted: NodeRoom, parameters: Parameters) -> RoomNow:
    """The room of a policy that suspends nobody; ``admitted``: those that run; it is changed."""
    here = None if _waits_for_a_trial(admitted, parameters) else _where_all_are(admitted)
    if here is not None:
        return RuledRoom(admitted, here)
    if admitted.site.ruling is not None:
        admitted.site.ruling.packs = True
    return RoomBesideAll(admitted)


def _waits_for_a_trial(room: NodeRoom, parameters: Parameters) -> bool:
    """Whether there is no such rule, or a solver may look for places after the decision."""
    configuration = room.site.configuration
    if not configuration.joint or room.site.in_place:
        return True
    pairs = sum(len(vjob.vms) for vjob in room.members) * len(room.site.up)
    return bool(parameters.exact_checks) and pairs <= MOST_PAIRS


def _where_all_are(room: NodeRoom) -> _Way | None:
    """All that run where they are; those on nodes that they have to leave are placed beside them.

    None: these do not obey all rules, overload nodes, or find no places.
    """
    site, configuration, ruling = room.site, room.site.configuration, room.site.ruling
    if ruling is None or not all(map(ruling.homes, filter(partial(_is_fixed, configuration), room.members))):
        return None
    stay = {v.name: v for v in room.members if _is_fixed(configuration, v) or _stays(room, v)}
    here: dict[str, str] = {}
    for vjob in stay.values():
        here |= ruling.homes(vjob) or {}
    fit = ruling.at_home(stay).expecting(_waiting(configuration))
    if fit.short() or not all(rule.is_kept(fit.standing) for rule in configuration.joint):
        return None
    way = _Way(fit, here, _present(configuration))
    return way if way.take_all(site.in_order(v for v in room.members if v.name not in stay)) else None


def _waiting(configuration: Configuration) -> Iterable[VM]:
    """The VMs of vjobs that may come: those that have to be together begin where there is room for them."""
    ready = (VJobState.WAITING, VJobState.SLEEPING)
    return (vm for vjob in configuration.vjobs if configuration.state(vjob) in ready for vm in vjob.vms)


def _is_fixed(configuration: Configuration, vjob: VJob) -> bool:
    """Whether a vjob has to be where it is."""
    return vjob.in_transit or is_resident(configuration, vjob)


def _stays(room: NodeRoom, vjob: VJob) -> bool:
    """Whether a vjob can stay where it is: each VM on a node that is up, and that the vjob may use."""
    homes = None if room.site.ruling is None else room.site.ruling.homes(vjob)
    return homes is not None and room.site.up.keys() >= set(homes.values())


def _is_rooted(vjob: VJob) -> bool:
    """Whether a rule keeps VMs of a vjob where they are."""
    return any(isinstance(rule, Root) and any(vm.name in rule.vms for vm in vjob.vms) for rule in vjob.rules)


def _to_move(rule: Joint, way: _Way, fixed: Collection[str]) -> Collection[str]:
    """The VMs that may have to move so that a rule is obeyed, of those that are not fixed."""
    match rule:
        case Online():
            on = way.fit.standing.vms_on
            hosting = [node for node in way.fit.standing.nodes() if node in rule.nodes]
            hosting.sort(key=lambda node: (not on(node).isdisjoint(fixed), len(on(node)), node))
            return frozenset[str]().union(*map(on, hosting[: len(hosting) - rule.most]))
        case Lonely():  # they leave strangers; from the nodes of those that are fixed strangers go
            shut = frozenset[str]().union(*map(way.fit.standing.nodes_of, rule.vms.intersection(fixed)))
            return rule.vms.union(*(way.fit.standing.vms_on(node) - rule.friends for node in shut))
    assert rule.names is not None, "only these two are about all VMs"
    return rule.names


def _present(configuration: Configuration) -> dict[str, str]:
    """The nodes where VMs are, or their saved states."""
    return {name: at.node for name, at in configuration.locations.items() if at.node is not None and at.node != SHARED}


@dataclass(frozen=True, slots=True)
class _Added:
    """What there was before a vjob was added, and what has taken it."""

    packed: NodeRoom | None
    ways: Sequence[_Way]
    pinned: NodeRoom | None
    is_packed: bool
    by: Sequence[_Way]


class RuledRoom:
    """Implements ``Room`` by the room of nodes, and by rules; see above."""

    def __init__(self, admitted: NodeRoom, here: _Way) -> None:
        """``here``: those of ``admitted`` near where they are, by all rules."""
        self._first, self._running, self._here = admitted, admitted.members, here
        self._sample = dict(admitted.placement)
        self._came: list[VJob] = []
        self._packed: NodeRoom | None = admitted  # None: First Fit has no room for one that has come
        self._ways: Sequence[_Way] = (here,)  # those with a place for all that have come
        self._knows_other_way = False
        self._pinned: NodeRoom | None = None
        self._last: _Added | None = None
        self._obstacles: dict[str, Obstacle] = {}

    @property
    def room(self) -> NodeRoom:
        """The room of those that run, and of those that have come."""
        if self._packed is not None:
            return self._packed
        if self._pinned is None:
            members, places = [*self._running, *self._came], self.placement
            pinned = {vjob.name: {vm.name: places[vm.name] for vm in vjob.vms} for vjob in members}
            self._pinned = self._first.site.with_pinned(pinned).pack(members)
            assert self._pinned is not None, "what is pinned is not packed"
        return self._pinned

    @property
    def placement(self) -> Mapping[str, str]:
        """Their places, by all rules."""
        return self._ways[0].placement

    @property
    def by_halves(self) -> bool:
        """See ``Room``."""
        return self._first.by_halves

    def lack(self, vjob: VJob, where: str) -> Reason:
        """The reason why there is no room for a vjob; ``where``: see ``no_room``."""
        obstacle = self._obstacles.get(vjob.name)
        return no_room(vjob, self.room, where) if obstacle is None else refused_by_rules(vjob, obstacle)

    def add(self, item: VJob) -> bool:
        """See ``Room``."""
        self._obstacles.pop(item.name, None)
        if not self.room.free.holds(self._first.site.demands[item.name]):
            return False
        packed = self._packed is not None and self._packed.add(item)
        by, obstacle = self._taken(item, self._ways if packed else [way for way in self._ways if way is self._here])
        if packed and not by and not self._knows_other_way and not self._first.is_spent:
            self._know_other_way()
            by, _ = self._taken(item, self._ways[-1:])
        if not by:
            if packed and self._packed is not None and obstacle is not None:
                self._packed.discard(item)
                self._obstacles[item.name] = obstacle
            return False
        self._last = _Added(self._packed, self._ways, self._pinned, packed, by)
        self._packed, self._ways, self._pinned = self._packed if packed else None, by, None
        self._came.append(item)
        return True

    def _taken(self, vjob: VJob, ways: Sequence[_Way]) -> tuple[Sequence[_Way], Obstacle | None]:
        """Those of some ways by which a vjob has a place now; and why it has none by the first one."""
        self._first.spend(len(vjob.vms) * len(ways))
        obstacles = [way.takes(vjob) for way in ways]
        taking = [way for way, obstacle in zip(ways, obstacles, strict=True) if obstacle is None]
        return taking, next(iter(obstacles), None)

    def _know_other_way(self) -> None:
        """Place all beside those that run where First Fit has these, or near that, if there is a place for all."""
        self._knows_other_way = True
        other = self._where_first_fit_has_them()
        if other is not None and other.take_all(self._came):
            self._ways = [*self._ways, other]

    def _where_first_fit_has_them(self) -> _Way | None:
        """Those that run where First Fit has them, or near that; None: one of them has no place there.

        Those that rules keep where they are have their places first.
        """
        site, configuration, ruling = self._first.site, self._first.site.configuration, self._first.site.ruling
        assert ruling is not None, "there are rules"
        self._first.spend(sum(len(vjob.vms) for vjob in self._running))
        fit, placement, free = ruling.empty().expecting(_waiting(configuration)), dict[str, str](), list[VJob]()
        for vjob in site.in_order(self._running):
            homes = ruling.homes(vjob)
            if homes is not None and (_is_fixed(configuration, vjob) or _is_rooted(vjob)):
                placement |= homes
            else:
                free.append(vjob)
        fit.take_all([configuration.vm_by_name[vm] for vm in placement], placement)
        if fit.short():
            return None
        other = _Way(fit, placement, self._sample)
        return other if other.take_all(self._without_those_there(other, free)) else None

    def _without_those_there(self, way: _Way, vjobs: Sequence[VJob]) -> list[VJob]:
        """Have vjobs be where First Fit has them, but those for which rules or others leave no place there: these."""
        fixed, vms = frozenset(way.placement), [vm for vjob in vjobs for vm in vjob.vms]
        places = {vm.name: self._sample[vm.name] for vm in vms}
        way.fit.take_all(vms, places)
        way.placement |= places
        broken = [rule for rule in self._first.site.configuration.joint if not rule.is_kept(way.fit.standing)]
        barred = set[str]().union(*(_to_move(rule, way, fixed) for rule in broken))
        left = {vjob.name for vjob in vjobs if any(vm.name in barred for vm in vjob.vms)}
        for vjob in vjobs:
            if vjob.name in left:
                way.give_back(vjob)
        short = way.fit.short()
        for vjob in reversed(vjobs):
            if short and vjob.name not in left and any(way.placement[vm.name] in short for vm in vjob.vms):
                way.give_back(vjob)
                left.add(vjob.name)
                short = way.fit.short()
        return [vjob for vjob in vjobs if vjob.name in left]

    def discard(self, item: VJob) -> None:
        """See ``Room``."""
        last = self._last
        assert last is not None and self._came[-1] is item, f"{item.name} is not the last one that was added"
        self._came.pop()
        for way in last.by:
            way.give_back(item)
        self._packed, self._ways, self._pinned, self._last = last.packed, last.ways, last.pinned, None
        if last.is_packed and self._packed is not None:
            self._packed.discard(item)

    def anew(self, items: Iterable[VJob]) -> NodeRoom | None:
        """See ``Room``; from scratch, wherever they have been found a place now."""
        return self._first.anew(items)

    def later(self, items: Iterable[VJob], newest: VJob | None = None) -> Room[VJob] | None:
        """See ``Room``; from scratch, wherever they have been found a place now."""
        return self._first.later(items, newest)
