"""Choosing: the group of each vjob of a queue, by the summaries of the groups; nothing is known of single nodes.

Who knows the places of all VMs asks by ``assignment``; the leader of several engines, who does not, by ``giving``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import NamedTuple, Protocol

from rmsplugin.groups.forming import Group
from rmsplugin.groups.summary import Hole, NodeClass, Summary, vms_that_fit
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Rules, admit

_NONE: frozenset[str] = frozenset()


class Assigned(NamedTuple):
    """The group of a vjob.

    Attributes:
        group: its name.
        reason: why, in words for people.
        chosen: whether other groups could host it, too.
        by_room: whether the group's summary tells of room for it beside all that run.
        note: what its user has to know of groups; empty if nothing.
    """

    group: str
    reason: str
    chosen: bool = False
    by_room: bool = False
    note: str = ""


@dataclass(frozen=True)
class Shape:
    """All of a vjob that a summary is asked about: the demands of its VMs, large ones first, and its rules."""

    vms: tuple[tuple[Resources, int], ...]
    rules: Rules
    demand: Resources

    @classmethod
    def of(cls, demands: Iterable[Resources], rules: Rules) -> Shape:
        """The shape of a vjob with VMs of these demands; the same object for most of those that are alike."""
        known = list(demands)
        if known and known.count(known[0]) == len(known):
            return _shape_of_alike(known[0], len(known), rules)
        counts = Counter(known)
        vms = sorted(counts.items(), key=lambda each: (-each[0].memory_mib, -each[0].cpus))
        whole = (Resources(demand.cpus * count, demand.memory_mib * count) for demand, count in vms)
        return cls(tuple(vms), rules, sum(whole, NOTHING))

    def __hash__(self) -> int:
        """Equal shapes have equal hashes; computed once, for each vjob of a queue is looked up by its shape."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.vms, self.rules))


#: So many shapes of vjobs whose VMs are alike are remembered.
_SHAPES = 4096


@lru_cache(maxsize=_SHAPES)
def _shape_of_alike(demand: Resources, count: int, rules: Rules) -> Shape:
    whole = Resources(demand.cpus * count, demand.memory_mib * count)
    return Shape(((demand, count),), rules, whole)


class Queued(NamedTuple):
    """A vjob of the queue.

    Attributes:
        name: its name.
        shape: what it demands.
        home: the group of its VMs or saved states, or where it waits already; None: it has none.
        held: by group, the demand of its VMs that are there.
        has_memory: whether any of its VMs has memory on a node: then it is where its home is.
        firm: whether it has memory, and makes way for nobody.
        bound: whether it goes nowhere but home.
    """

    name: str
    shape: Shape
    home: str | None = None
    held: Mapping[str, Resources] = MappingProxyType({})
    has_memory: bool = False
    firm: bool = False
    bound: bool = False


def choose(
    queue: Iterable[Queued],
    groups: Sequence[Group],
    told: Sequence[Summary],
    before: Mapping[str, str] | None = None,
    refused: Mapping[str, Collection[str]] | None = None,
    *,
    all_up: bool = True,
) -> dict[str, Assigned]:
    """Choose the group of each vjob.

    Args:
        queue: the vjobs in the order of the queue, head first.
        groups: all groups, at least one.
        told: the summary of each of them, in their order.
        before: the groups of vjobs in the cycle before: one that waits for room anyway stays.
        refused: by vjob, the groups that had no room for it though their summaries told of some.
        all_up: whether no node is missing: a vjob that no group can host is told so then.

    Returns:
        The group of each vjob, by its name, in the order of the queue.
    """
    return choose_and_leave(queue, groups, told, before, refused, all_up=all_up)[0]


def choose_and_leave(
    queue: Iterable[Queued],
    groups: Sequence[Group],
    told: Sequence[Summary],
    before: Mapping[str, str] | None = None,
    refused: Mapping[str, Collection[str]] | None = None,
    *,
    all_up: bool = True,
) -> tuple[dict[str, Assigned], RoomLeft]:
    """Choose the group of each vjob as ``choose`` does; and tell the room that all of them leave."""
    vjobs = list(queue)
    walk = _Walk(groups, told, before or {}, refused or {}, all_up=all_up)
    for vjob in vjobs:
        if vjob.firm:
            walk.take_from_those_behind(vjob)
    return {vjob.name: walk.choose(vjob) for vjob in vjobs}, walk


class RoomLeft(Protocol):
    """The room that a queue has left beside all that run."""

    def take(self, shape: Shape, among: Collection[str]) -> str | None:
        """Take the room for a vjob of this shape in one of these groups; None: none of them has some."""
        ...


@dataclass
class _Room:
    """The room of one group, as the vjobs that were assigned so far leave it."""

    summary: Summary
    holes: dict[int, Counter[Hole]] = field(default_factory=dict)  # by the index of the class
    free: list[Resources] = field(default_factory=list)  # by the index of the class
    behind: Resources = NOTHING  # what is left if those behind in the queue make way
    demand: Resources = NOTHING  # of those that wait there for room
    refusals: set[Shape] = field(default_factory=set)  # shapes for which there is no room any more

    def __post_init__(self) -> None:
        """Begin with what the summary tells."""
        self.holes = {index: Counter(each.holes) for index, each in enumerate(self.summary.classes)}
        self.free = [each.free for each in self.summary.classes]
        self.behind = self.summary.size

    def open_to(self, rules: Rules) -> list[tuple[int, NodeClass]]:
        return [(i, each) for i, each in enumerate(self.summary.classes) if rules not in each.closed_to]

    def can_host(self, shape: Shape) -> bool:
        """Whether a vjob would fit if nothing else were there."""
        classes = [each for _, each in self.open_to(shape.rules)]
        if not all(any(each.size.holds(demand) for each in classes) for demand, _ in shape.vms):
            return False
        cpus = sum(each.size.cpus * each.nodes for each in classes)
        return Resources(cpus, sum(each.size.memory_mib * each.nodes for each in classes)).holds(shape.demand)

    def take(self, shape: Shape) -> bool:
        """Take the room for a vjob beside all that run, if there is some."""
        if shape in self.refusals:
            return False
        found = self._packed(shape) if self._may_fit(shape) else None
        if found is None:
            self.refusals.add(shape)
            return False
        self.holes |= found
        return True

    def _may_fit(self, shape: Shape) -> bool:
        return sum((self.free[index] for index, _ in self.open_to(shape.rules)), NOTHING).holds(shape.demand)

    def _packed(self, shape: Shape) -> dict[int, Counter[Hole]] | None:
        """The holes after a vjob has come; None if it finds no room. Large VMs first, each in the smallest hole."""
        left = {index: Counter(self.holes[index]) for index, _ in self.open_to(shape.rules)}
        taken = dict.fromkeys(left, NOTHING)
        for demand, count in shape.vms:
            missing = count
            while missing:
                fitting = ((hole, index) for index in left for hole in left[index] if vms_that_fit(hole, demand))
                best = min(fitting, default=None)
                if best is None:
                    return None
                (hole, index), fits = best, vms_that_fit(best[0], demand)
                nodes = min(left[index][hole], max(1, missing // fits))
                placed = min(fits, missing)
                left[index][hole] -= nodes
                if not left[index][hole]:
                    del left[index][hole]
                rest = (hole[0] - placed * demand.centi_cpus, hole[1] - placed * demand.memory_mib)
                left[index][rest] += nodes
                taken[index] += Resources(demand.cpus * placed * nodes, demand.memory_mib * placed * nodes)
                missing -= placed * nodes
        for index, amount in taken.items():
            self.free[index] -= amount
        return left

    def wait_share(self) -> float:
        """The demand of those that wait, as a part of the group."""
        size = self.summary.size
        return max(self.demand.cpus / max(0.01, size.cpus), self.demand.memory_mib / max(1, size.memory_mib))


class _Walk:
    """One walk along the queue."""

    def __init__(
        self,
        groups: Sequence[Group],
        told: Sequence[Summary],
        before: Mapping[str, str],
        refused: Mapping[str, Collection[str]],
        *,
        all_up: bool,
    ) -> None:
        self._groups = groups
        self._rooms = {summary.name: _Room(summary) for summary in told}
        self._before, self._refused = before, refused
        self._all_up = all_up  # what is missing may come
        self._hosts: dict[Shape, list[str]] = {}  # by shape, the groups that can host it
        # Of many that wait most are alike, and the room only gets less along the queue.
        self._no_room: set[Shape] = set()
        self._nobody_behind: set[Shape] = set()
        self._widest: dict[Rules, str] = {}  # by rules, the group with the most hosts that they allow
        self._there = {summary.name: Assigned(summary.name, "its VMs are there") for summary in told}
        self._waits: dict[tuple[str, bool], Assigned] = {}  # by group, and whether it is one of several

    def choose(self, vjob: Queued) -> Assigned:
        home = vjob.home
        if home is not None and vjob.has_memory:
            if not vjob.firm:
                self.take_from_those_behind(vjob)
            return self._there[home]
        able = self._able(vjob.shape)
        if home is not None and (not able or vjob.bound):
            return Assigned(home, "its saved state is there")
        if not able:
            return self._unable(vjob.shape)
        return self._chosen(vjob, able)

    def take(self, shape: Shape, among: Collection[str]) -> str | None:
        """See ``RoomLeft``."""
        able = [name for name in self._able(shape) if name in among]
        return next((name for name in self._by_room(shape, able, None) if self._rooms[name].take(shape)), None)

    def take_from_those_behind(self, vjob: Queued) -> None:
        """Take the demand of a vjob where its VMs are: none behind it in the queue has that, whoever makes way."""
        for group, demand in vjob.held.items():
            self._rooms[group].behind -= demand

    def _chosen(self, vjob: Queued, able: Sequence[str]) -> Assigned:
        shape, refused, several = vjob.shape, self._refused.get(vjob.name, _NONE), len(able) > 1
        if shape not in self._no_room:
            for name in self._by_room(shape, able, vjob.home):
                if name not in refused and self._rooms[name].take(shape):
                    self._rooms[name].behind -= shape.demand
                    return Assigned(name, "there is room for it", several, by_room=True)
            if not refused:
                self._no_room.add(shape)
        if shape not in self._nobody_behind:
            for name in self._by_preference(vjob, able):
                if self._rooms[name].behind.holds(shape.demand):
                    self._rooms[name].behind -= shape.demand
                    return Assigned(name, "there would be room for it if others behind it made way", several)
            self._nobody_behind.add(shape)
        before = self._before.get(vjob.name)
        waits_there = vjob.home is None and before is not None and before in able  # of thousands that wait, most do
        name = before if waits_there and before is not None else next(self._by_preference(vjob, able))
        self._rooms[name].demand += shape.demand
        found = self._waits.get((name, several))
        if found is None:
            found = self._waits[name, several] = Assigned(name, "no group has room for it", several)
        return found

    def _by_room(self, shape: Shape, able: Iterable[str], home: str | None) -> Iterator[str]:
        """The groups in which room is looked for: its own first, then those with the least that is free."""
        rooms = self._rooms

        def left(name: str) -> tuple[bool, float]:
            open_to = rooms[name].open_to(shape.rules)
            return name != home, sum(rooms[name].free[index].cpus for index, _ in open_to)

        yield from sorted(able, key=left)

    def _by_preference(self, vjob: Queued, able: Sequence[str]) -> Iterator[str]:
        """The groups in which it may wait: its own, that of the cycle before, then those where the least wait."""
        first = [name for name in dict.fromkeys((vjob.home, self._before.get(vjob.name))) if name in able]
        yield from (name for name in first if name is not None)
        yield from sorted((name for name in able if name not in first), key=lambda name: self._rooms[name].wait_share())

    def _able(self, shape: Shape) -> list[str]:
        """The groups that could host a vjob if nothing else were there; else those with nodes that it may use."""
        found = self._hosts.get(shape)
        if found is None:
            found = [name for name, room in self._rooms.items() if room.can_host(shape)]
            self._hosts[shape] = found
        return found

    def _unable(self, shape: Shape) -> Assigned:
        """The group where a vjob waits that no group can host: that with the most hosts for it, those up first."""
        name = self._widest.get(shape.rules)
        if name is None:
            hosts = {each.name: sum(admit(shape.rules, host) for host in each.hosts) for each in self._groups}
            up = {name: sum(each.nodes for _, each in self._rooms[name].open_to(shape.rules)) for name in hosts}
            name = self._widest[shape.rules] = max(hosts, key=lambda name: (up[name], hosts[name]))
        words = "no group can host it, and a vjob is never split"
        return Assigned(name, words, note=words if self._all_up else "")
