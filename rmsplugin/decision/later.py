"""Later: room at a later time, for reservations, where rules about VMs beside each other hold, too.

A rule that bars a vjob now may bar it no more when others have ended. So a vjob that a rule keeps out has ``NOT_NOW``
among its rules: it finds no place now, and is asked about later times as any other. A start is promised at a time at
which places are found by capacity and by rules, with all that run on where they are; or, if they are few, with all of
them placed anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, NodeState, VJob
from rmsplugin.model.joint import Gather, Joint, Spread, Within
from rmsplugin.model.rules import Fence
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item, items_of, items_of_one
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit
from rmsplugin.packing.ruled_program import Wish, part_in, solve
from rmsplugin.packing.ruled_sums import RuledSums

#: Up to so many pairs of a VM and a node all are placed anew, if they cannot stay where they are.
_MOST_PAIRS = 20_000
#: Up to so many an integer program is asked, where placing one after the other finds nothing.
_FEW_PAIRS = 500


@dataclass(frozen=True, slots=True)
class NotNow(Fence):
    """No node now: a rule about VMs beside each other keeps the vjob out. At a later time it says nothing."""

    nodes: frozenset[str] = frozenset()


NOT_NOW = NotNow()


def is_barred_now(vjob: VJob) -> bool:
    """Whether a rule keeps a vjob out now."""
    return NOT_NOW in vjob.rules


class Ruling:
    """All that is the same at each time: nodes, rules, the order of the queue, and the limits of searches."""

    def __init__(self, configuration: Configuration, budget: Budget | None = None) -> None:
        """``budget``: of all integer programs together; None: none is asked.

        ``packs``: whether the policy starts only what fits packed from scratch. Then a start is promised only at a time
        at which it fits so, too.
        """
        self.configuration, self.budget = configuration, budget
        self.packs = False
        self._position = {vjob.name: number for number, vjob in enumerate(configuration.vjobs)}
        self._without: dict[str, VJob] = {}
        self._kinds: dict[str, Hashable] = {}
        self.sums = RuledSums(configuration.nodes, configuration.joint, configuration.homes)
        self._passing = Places(self)
        self._known_homes: dict[int, tuple[VJob, dict[str, str] | None]] = {}  # by vjob, which is kept
        self._at_home: RuledFit | None = None  # the nodes with those that were asked about last where they are
        self._who_is_at_home: dict[str, VJob] = {}

    def empty(self, expected: Iterable[VJob] = ()) -> RuledFit:
        """The nodes with nobody on them; ``expected``: see ``RuledFit``."""
        whole = self.configuration
        return RuledFit(whole.nodes, whole.concerning, whole.homes, (vm for vjob in expected for vm in vjob.vms))

    @property
    def passing(self) -> Places:
        """The places of those who were asked about last, at whatever time: those of the time before are near them."""
        return self._passing

    def places_of(self, members: Iterable[VJob]) -> Places:
        """Places for these alone: those that were found last, if these are the vjobs; else none are known yet."""
        if not self._passing.have(members):
            return Places(self)
        found, self._passing = self._passing, Places(self)
        return found

    def without_bar(self, vjob: VJob) -> VJob:
        """The vjob as it is at a later time; the same object each time."""
        if not is_barred_now(vjob):
            return vjob
        if vjob.name not in self._without:
            rules = tuple(rule for rule in vjob.rules if rule is not NOT_NOW)
            self._without[vjob.name] = replace(vjob, rules=rules)
        return self._without[vjob.name]

    def in_order(self, vjobs: Iterable[VJob]) -> list[VJob]:
        """These vjobs in the order of the queue."""
        return sorted(vjobs, key=lambda vjob: self._position[vjob.name])

    def homes(self, vjob: VJob) -> dict[str, str] | None:
        """The nodes where all its VMs have memory; None if one of them has none, or may not be there."""
        known = self._known_homes.get(id(vjob))
        if known is None:
            homes = self.configuration.homes
            found = {vm.name: homes[vm.name] for vm in vjob.vms if vm.name in homes}
            stays = len(found) == len(vjob.vms) and (not vjob.own_rules or all(map(vjob.allows, found.values())))
            known = self._known_homes[id(vjob)] = vjob, found if stays else None
        return known[1]

    def at_home(self, vjobs: Mapping[str, VJob]) -> RuledFit:
        """The nodes with these alone, by name, where they are: all of them have ``homes``.

        It is a copy of what was made for the last question, which mostly was about the same ones but for a few.
        """
        before = self._who_is_at_home
        gone, come = before.keys() - vjobs.keys(), vjobs.keys() - before.keys()
        if self._at_home is None or len(gone) > len(vjobs) - len(come):
            self._at_home, gone, come = self.empty(), set(), set(vjobs)
        for name in gone:
            for vm in before[name].vms:
                self._at_home.give_back(vm, self.configuration.homes[vm.name])
        places: dict[str, str] = {}
        for name in come:
            places |= self.homes(vjobs[name]) or {}
        self._at_home.take_all([vm for name in come for vm in vjobs[name].vms], places)
        self._who_is_at_home = dict(vjobs)
        return self._at_home.copy()

    @cached_property
    def is_sound(self) -> bool:
        """Whether all VMs that have memory are on nodes that are up, and that have enough for them."""
        whole = self.configuration
        up = {node.name for node in whole.nodes if node.state is NodeState.UP}
        there = {vjob.name: vjob for vjob in whole.vjobs if self.homes(vjob)}
        if not up.issuperset(whole.homes.values()) or sum(len(v.vms) for v in there.values()) < len(whole.homes):
            return False
        return not self.at_home(there).short()

    def is_ahead(self, vjob: VJob, other: VJob) -> bool:
        """Whether a vjob is ahead of another one in the queue."""
        return self._position[vjob.name] < self._position[other.name]

    def kind(self, vjob: VJob) -> Hashable:
        """A key by which vjobs are alike that have equal VMs with equal parts in all rules."""
        if vjob.name not in self._kinds:
            own = frozenset(vm.name for vm in vjob.vms)
            self._kinds[vjob.name] = (vjob.own_rules, tuple(self._kind(vm, own) for vm in vjob.vms))
        return self._kinds[vjob.name]

    def _kind(self, vm: VM, own: frozenset[str]) -> Hashable:
        """``own``: the VMs of its vjob. A rule about no others is of the same kind as another vjob's."""
        homes = self.configuration.homes
        parts = []
        for rule in self.configuration.concerning.of(vm.name):
            part = _among(rule, own)
            parts.append(part_in(rule, vm.name, homes) if part is None else part)
        return vm.demand.centi_cpus, vm.demand.memory_mib, vm.only, homes.get(vm.name), tuple(parts)


def _among(rule: Joint, own: frozenset[str]) -> Hashable | None:
    """The kind of a rule that is about the VMs of one vjob alone; None if it is about others, too."""
    match rule:
        case Spread() | Gather() if rule.vms <= own:
            return type(rule)
        case Within() if rule.vms <= own:
            return Within, rule.sets, rule.most
    return None


class Places:
    """The places of vjobs that run together by the rules. They are kept for the next question."""

    def __init__(self, ruling: Ruling) -> None:
        self._ruling = ruling
        self._fit = ruling.empty()  # who will be there besides differs from one question to the next
        self._placed: dict[str, Mapping[str, str]] = {}  # by vjob, the nodes of its VMs
        self._known: dict[str, VJob] = {}  # the vjobs that are placed
        self._staying: set[str] = set()  # those of them that are where they are now
        self._others: list[VJob] = []  # the others, as they came
        self._has_gaps = False  # whether the others may have other places if they come anew in the order of the queue
        self.placed_vms = 0  # in all: what it has cost

    def allow(self, members: Iterable[VJob]) -> bool:
        """Whether a place is found for all of them together; those that have memory now stay there if they can."""
        wanted = {vjob.name: vjob for vjob in members}
        if self._around_those_there(wanted):
            return True
        if not self._has_gaps and not self._are_few(wanted.values()):
            return False  # there is no other way
        if self._ruling.sums.refuse(vjob.vms for vjob in wanted.values()):
            return False
        kept = len(self._others)
        self._have_others_go()  # they came one by one, each where there was room then
        return (bool(kept) and self._around_those_there(wanted)) or self._anew(self._ruling.in_order(wanted.values()))

    def have(self, members: Iterable[VJob]) -> bool:
        """Whether these, and no others, have a place."""
        return self._placed.keys() == {vjob.name for vjob in members}

    def _around_those_there(self, wanted: Mapping[str, VJob]) -> bool:
        gone = self._placed.keys() - wanted.keys()
        for vjob in [each for each in reversed(self._others) if each.name in gone]:
            self._give_back(vjob.name)
        for name in gone & self._staying:
            self._give_back(name)
        stay = {vjob.name: vjob for vjob in self._missing(wanted) if self._ruling.homes(vjob)}
        if stay:  # VMs may have been placed where these are
            self._have_others_go()
            self._have_stay(stay)
        for vjob in self._ruling.in_order(self._missing(wanted)):
            self._has_gaps |= bool(self._others) and self._ruling.is_ahead(vjob, self._others[-1])
            found = self._fit.place(items_of_one(vjob), {}) if self._fit.holds(vjob.vms) else None
            if not isinstance(found, dict):
                return False
            self._others.append(vjob)
            self._put(vjob, found)
        return True

    def _have_stay(self, vjobs: Mapping[str, VJob]) -> None:
        """Place vjobs where they are, by their names; all that have a place so far are where they are, too."""
        if self._placed:
            for vjob in vjobs.values():
                self._fit.take_all(vjob.vms, self._ruling.homes(vjob) or {})
        else:
            self._fit = self._ruling.at_home(vjobs)
        for vjob in vjobs.values():
            self._put(vjob, self._ruling.homes(vjob) or {})
        self._staying |= vjobs.keys()

    def _missing(self, wanted: Mapping[str, VJob]) -> list[VJob]:
        return [wanted[name] for name in wanted.keys() - self._placed.keys()]

    def _put(self, vjob: VJob, places: Mapping[str, str]) -> None:
        self._placed[vjob.name], self._known[vjob.name] = places, vjob
        self.placed_vms += len(vjob.vms)

    def _give_back(self, name: str) -> None:
        places, vjob = self._placed.pop(name), self._known.pop(name)
        if name in self._staying:
            self._staying.remove(name)
            self._has_gaps |= bool(self._others)
        elif self._others[-1].name == name:
            self._others.pop()
        else:
            self._others = [each for each in self._others if each.name != name]
            self._has_gaps = True
        self._has_gaps &= bool(self._others)
        for vm in vjob.vms:
            self._fit.give_back(vm, places[vm.name])

    def _have_others_go(self) -> None:
        for vjob in reversed(self._others):
            self._give_back(vjob.name)

    def _are_few(self, vjobs: Iterable[VJob]) -> bool:
        """Whether vjobs are so few that all of them may be placed anew."""
        return sum(len(vjob.vms) for vjob in vjobs) * len(self._ruling.configuration.nodes) <= _MOST_PAIRS

    def _anew(self, vjobs: list[VJob]) -> bool:
        """Whether all find a place one after the other, near where they are: if they are few."""
        if not self._are_few(vjobs):
            return False
        fit, homes = self._ruling.empty(vjobs), self._ruling.configuration.homes
        ordered = sorted(vjobs, key=lambda vjob: not self._ruling.homes(vjob))
        self.placed_vms += sum(len(vjob.vms) for vjob in vjobs)
        hosts: dict[str, str] = {}
        for vjob in ordered:
            found = fit.place(items_of_one(vjob), homes)
            if isinstance(found, Obstacle):
                return self._adopted(vjobs, self._by_program(items_of(vjobs)))
            hosts |= found
        return self._adopted(vjobs, hosts)

    def _adopted(self, vjobs: list[VJob], hosts: Mapping[str, str] | None) -> bool:
        """Whether there is a place for all of them; it is kept: the next question may have one vjob more."""
        if hosts is None:
            return False
        self._fit, homes = self._ruling.empty(), self._ruling.configuration.homes
        self._placed, self._known, self._staying, self._others = {}, {}, set(), []
        for vjob in vjobs:
            places = {vm.name: hosts[vm.name] for vm in vjob.vms}
            for vm in vjob.vms:
                self._fit.take(vm, places[vm.name])
            self._placed[vjob.name], self._known[vjob.name] = places, vjob
            if all(homes.get(vm) == node for vm, node in places.items()):
                self._staying.add(vjob.name)
            else:
                self._others.append(vjob)
        self._has_gaps = bool(self._others)
        return True

    def _by_program(self, items: list[Item]) -> Mapping[str, str] | None:
        """A place for all of these that a solver finds: if they are very few."""
        whole, budget = self._ruling.configuration, self._ruling.budget
        if budget is None or budget.exhausted or len(items) * len(whole.nodes) > _FEW_PAIRS:
            return None
        found = solve(items, whole.nodes, whole.joint, whole.homes, {}, Wish(hint=whole.homes), budget)
        return None if found is None else found.hosts


class Packed(Protocol):
    """Vjobs that fit together by capacity: the room of nodes."""

    @property
    def members(self) -> list[VJob]:
        """The vjobs that run in it."""
        ...

    @property
    def is_spent(self) -> bool:
        """Whether the decision has tried as many packings as it may."""
        ...

    def add(self, item: VJob) -> bool:
        """See ``Room``."""
        ...

    def discard(self, item: VJob) -> None:
        """See ``Room``."""
        ...

    def anew(self, items: Iterable[VJob]) -> Packed | None:
        """See ``Room``."""
        ...

    def spend(self, vms: int) -> None:
        """So many VMs were placed on trial."""
        ...


class LaterRoom:
    """Implements ``Room`` by rules, and by the room of nodes. Each has its own places, once a vjob is added to it.

    Places by rules are places by capacity, too, where all that run are on nodes that are up, and that have enough for
    them. Elsewhere the room of nodes is asked besides, and so it is for a policy that packs from scratch.
    """

    by_halves = True

    def __init__(self, room: Packed, ruling: Ruling, members: Iterable[VJob] | None = None) -> None:
        """``members``: those in it, where the room of nodes is not asked."""
        self._room, self._ruling = room, ruling
        self._members = None if members is None else list(members)
        self._places: Places | None = None
        self._refused: set[Hashable] = set()  # the kinds of vjobs that rules refuse beside the present members
        self._refused_before: set[Hashable] = set()  # the same, before the last ``add``

    @property
    def members(self) -> list[VJob]:
        """The vjobs that run in it."""
        return self._room.members if self._members is None else self._members

    def _allowed(self, places: Places) -> bool:
        """Whether rules allow those in it; the trial counts as one of the decision's."""
        before = places.placed_vms
        found = places.allow(self.members)
        self._room.spend(places.placed_vms - before)
        return found

    def add(self, item: VJob) -> bool:
        """See ``Room``."""
        vjob = self._ruling.without_bar(item)
        if self._room.is_spent or self._ruling.kind(vjob) in self._refused:
            return False
        if self._places is None:
            self._places = self._ruling.places_of(self.members)
        if not self._come(vjob):
            return False
        if self._allowed(self._places):
            self._refused_before, self._refused = self._refused, set()
            return True
        self._go(vjob)
        self._refused.add(self._ruling.kind(vjob))
        return False

    def _come(self, vjob: VJob) -> bool:
        """One more is in it, if the room of nodes allows that, or is not asked."""
        if self._members is None:
            return self._room.add(vjob)
        self._members.append(vjob)
        return True

    def _go(self, vjob: VJob) -> None:
        """The last one that has come is not in it any more."""
        if self._members is None:
            self._room.discard(vjob)
        else:
            self._members.pop()

    def discard(self, item: VJob) -> None:
        """See ``Room``."""
        self._go(self._ruling.without_bar(item))
        self._refused = self._refused_before

    def anew(self, items: Iterable[VJob]) -> LaterRoom | None:
        """See ``Room``."""
        members = list(map(self._ruling.without_bar, items))
        if self._ruling.is_sound and not self._ruling.packs:
            return LaterRoom(self._room, self._ruling, members)
        room = self._room.anew(members)
        return None if room is None else LaterRoom(room, self._ruling)

    def later(self, items: Iterable[VJob], newest: VJob | None = None) -> LaterRoom | None:
        """See ``Room``. With ``newest``, one time after the other is tried: all of them share places."""
        found = self.anew([*items, *([newest] if newest is not None else [])])
        return found if newest is None or found is None or found._allowed(self._ruling.passing) else None
