"""Assignment: gives whole vjobs to groups, in the order of the queue, by the groups' summaries (seed 003, section 4.1).

- A vjob whose VMs have memory in a group stays there.
- A vjob that sleeps stays with the group of its saved states, unless that has no room for it and another one has.
- A vjob that waits goes where there is room beside all that run; of several groups to the one with the least left, so
  that large holes are left for wide vjobs. Else it goes where there would be room if those behind it in the queue made
  way; else it waits where the demand is the least, and stays there while nothing changes.

The group decides then which of its vjobs run. If it had no room after all, for fragments that a summary does not tell,
the vjob goes to another one in the next cycle (``refused``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmsplugin.groups.forming import Group
from rmsplugin.groups.summary import Hole, NodeClass, Summary, summaries, vms_that_fit
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, Node, NodeState, VJob
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import Rules, admit
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True, slots=True)
class Assigned:
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


#: By the name of a vjob, its group.
Assignment = Mapping[str, Assigned]

_NONE: frozenset[str] = frozenset()


def assign(
    configuration: Configuration,
    groups: Sequence[Group],
    before: Mapping[str, str] | None = None,
    refused: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Assigned]:
    """Give each vjob to one group.

    Args:
        configuration: nodes, vjobs in the order of the queue (head first), and the location of each VM.
        groups: all groups, at least one.
        before: the groups of vjobs in the cycle before: one that waits for room anyway stays.
        refused: by vjob, the groups that had no room for it though their summaries told of some.

    Returns:
        The group of each vjob, by its name, in the order of the queue.
    """
    ready = (vjob.rules for vjob in configuration.vjobs if configuration.state(vjob) not in _HAVE_MEMORY)
    told = summaries(configuration, groups, ready)
    walk = _Walk(configuration, groups, told, before or {}, refused or {})
    return {vjob.name: walk.assign(vjob) for vjob in configuration.vjobs}


_HAVE_MEMORY = (VJobState.RUNNING, VJobState.PAUSED)


def homes(configuration: Configuration, groups: Sequence[Group]) -> dict[str, str]:
    """The groups of vjobs that have memory or saved states on nodes, by the most of it; by the names of the vjobs."""
    group_of = {host: group.name for group in groups for host in group.hosts}
    found = {}
    for vjob in configuration.vjobs:
        held: Counter[str] = Counter()
        saved: Counter[str] = Counter()
        for vm in vjob.vms:
            at = configuration.locations[vm.name]
            if at.node is None or at.node == SHARED or at.node not in group_of:
                continue
            (held if at.state.holds_memory else saved)[group_of[at.node]] += max(1, vm.demand.memory_mib)
        if held or saved:
            found[vjob.name] = (held or saved).most_common(1)[0][0]
    return found


@dataclass
class _Room:
    """The room of one group, as the vjobs that were assigned so far leave it."""

    summary: Summary
    holes: dict[int, Counter[Hole]] = field(default_factory=dict)  # by the index of the class
    free: list[Resources] = field(default_factory=list)  # by the index of the class
    behind: Resources = NOTHING  # what is left if those behind in the queue make way
    demand: Resources = NOTHING  # of those that wait there for room
    refusals: set[_Shape] = field(default_factory=set)  # shapes for which there is no room any more

    def __post_init__(self) -> None:
        """Begin with what the summary tells."""
        self.holes = {index: Counter(each.holes) for index, each in enumerate(self.summary.classes)}
        self.free = [each.free for each in self.summary.classes]
        self.behind = self.summary.size

    def open_to(self, rules: Rules) -> list[tuple[int, NodeClass]]:
        return [(i, each) for i, each in enumerate(self.summary.classes) if rules not in each.closed_to]

    def can_host(self, shape: _Shape) -> bool:
        """Whether a vjob would fit if nothing else were there."""
        classes = [each for _, each in self.open_to(shape.rules)]
        if not all(any(each.size.holds(demand) for each in classes) for demand, _ in shape.vms):
            return False
        cpus = sum(each.size.cpus * each.nodes for each in classes)
        return Resources(cpus, sum(each.size.memory_mib * each.nodes for each in classes)).holds(shape.demand)

    def take(self, shape: _Shape) -> bool:
        """Take the room for a vjob beside all that run, if there is some."""
        if shape in self.refusals:
            return False
        found = self._packed(shape) if self._may_fit(shape) else None
        if found is None:
            self.refusals.add(shape)
            return False
        self.holes |= found
        return True

    def _may_fit(self, shape: _Shape) -> bool:
        return sum((self.free[index] for index, _ in self.open_to(shape.rules)), NOTHING).holds(shape.demand)

    def _packed(self, shape: _Shape) -> dict[int, Counter[Hole]] | None:
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


@dataclass(frozen=True)
class _Shape:
    """All of a vjob that a summary is asked about: the demands of its VMs, large ones first, and its rules."""

    vms: tuple[tuple[Resources, int], ...]
    rules: Rules
    demand: Resources


def _shape(vjob: VJob) -> _Shape:
    if len(vjob.vms) == 1:
        demand = vjob.vms[0].demand
        return _Shape(((demand, 1),), vjob.rules, demand)
    counts = Counter(vm.demand for vm in vjob.vms)
    vms = sorted(counts.items(), key=lambda each: (-each[0].memory_mib, -each[0].cpus))
    return _Shape(tuple(vms), vjob.rules, vjob.demand)


class _Walk:
    """One walk along the queue."""

    def __init__(
        self,
        configuration: Configuration,
        groups: Sequence[Group],
        told: Sequence[Summary],
        before: Mapping[str, str],
        refused: Mapping[str, Collection[str]],
    ) -> None:
        self._configuration = configuration
        self._rooms = {summary.name: _Room(summary) for summary in told}
        self._homes = homes(configuration, groups)
        self._before, self._refused = before, refused
        self._all_up = all(_takes_vms(node) for node in configuration.nodes)  # what is missing may come
        self._hosts: dict[_Shape, list[str]] = {}  # by shape, the groups that can host it
        # Of many that wait most are alike, and the room only gets less along the queue.
        self._no_room: set[_Shape] = set()
        self._nobody_behind: set[_Shape] = set()
        self._groups = groups
        self._up = {node.name for node in configuration.nodes if node.state is NodeState.UP}
        self._widest: dict[Rules, str] = {}  # by rules, the group with the most hosts that they allow
        self._group_of = {host: group.name for group in groups for host in group.hosts}
        for vjob in configuration.vjobs:
            if configuration.state(vjob) is VJobState.RUNNING and _stays(vjob):
                self._take_from_those_behind(vjob)

    def assign(self, vjob: VJob) -> Assigned:
        state, home = self._configuration.state(vjob), self._homes.get(vjob.name)
        if home is not None and self._has_memory(vjob):
            if not (state is VJobState.RUNNING and _stays(vjob)):
                self._take_from_those_behind(vjob)
            return Assigned(home, "its VMs are there")
        shape = _shape(vjob)
        able = self._able(shape)
        if home is not None and (not able or vjob.lost or vjob.target not in (None, VJobState.RUNNING)):
            return Assigned(home, "its saved state is there")
        if not able:
            return self._unable(shape)
        found = self._chosen(vjob, shape, able, home)
        return replace(found, chosen=len(able) > 1)

    def _take_from_those_behind(self, vjob: VJob) -> None:
        """Take the demand of a vjob where its VMs are: none behind it in the queue has that, whoever makes way."""
        for vm in vjob.vms:
            group = self._group_of.get(self._configuration.locations[vm.name].node or "")
            if group is not None:
                self._rooms[group].behind -= vm.demand

    def _has_memory(self, vjob: VJob) -> bool:
        return any(self._configuration.locations[vm.name].state.holds_memory for vm in vjob.vms)

    def _chosen(self, vjob: VJob, shape: _Shape, able: Sequence[str], home: str | None) -> Assigned:
        refused = self._refused.get(vjob.name, _NONE)
        if shape not in self._no_room:
            for name in self._by_room(shape, able, home):
                if name not in refused and self._rooms[name].take(shape):
                    self._rooms[name].behind -= shape.demand
                    return Assigned(name, "there is room for it", by_room=True)
            if not refused:
                self._no_room.add(shape)
        if shape not in self._nobody_behind:
            for name in self._by_preference(vjob, able, home):
                if self._rooms[name].behind.holds(shape.demand):
                    self._rooms[name].behind -= shape.demand
                    return Assigned(name, "there would be room for it if others behind it made way")
            self._nobody_behind.add(shape)
        name = next(self._by_preference(vjob, able, home))
        self._rooms[name].demand += shape.demand
        return Assigned(name, "no group has room for it")

    def _by_room(self, shape: _Shape, able: Iterable[str], home: str | None) -> Iterator[str]:
        """The groups in which room is looked for: its own first, then those with the least that is free."""
        rooms = self._rooms

        def left(name: str) -> tuple[bool, float]:
            open_to = rooms[name].open_to(shape.rules)
            return name != home, sum(rooms[name].free[index].cpus for index, _ in open_to)

        yield from sorted(able, key=left)

    def _by_preference(self, vjob: VJob, able: Sequence[str], home: str | None) -> Iterator[str]:
        """The groups in which it may wait: its own, that of the cycle before, then those where the least wait."""
        first = [name for name in dict.fromkeys((home, self._before.get(vjob.name))) if name in able]
        yield from (name for name in first if name is not None)
        yield from sorted((name for name in able if name not in first), key=lambda name: self._rooms[name].wait_share())

    def _able(self, shape: _Shape) -> list[str]:
        """The groups that could host a vjob if nothing else were there; else those with nodes that it may use."""
        found = self._hosts.get(shape)
        if found is None:
            found = [name for name, room in self._rooms.items() if room.can_host(shape)]
            self._hosts[shape] = found
        return found

    def _unable(self, shape: _Shape) -> Assigned:
        """The group where a vjob waits that no group can host: that with the most hosts for it, those up first."""
        name = self._widest.get(shape.rules)
        if name is None:
            hosts = {each.name: [host for host in each.hosts if admit(shape.rules, host)] for each in self._groups}
            up = {name: sum(host in self._up for host in usable) for name, usable in hosts.items()}
            name = self._widest[shape.rules] = max(hosts, key=lambda name: (up[name], len(hosts[name])))
        words = "no group can host it, and a vjob is never split"
        return Assigned(name, words, note=words if self._all_up else "")


def _takes_vms(node: Node) -> bool:
    return node.state is NodeState.UP and node.capacity.memory_mib > 0


def _stays(vjob: VJob) -> bool:
    """Whether a running vjob makes way for nobody."""
    return not vjob.preemptible or vjob.in_transit
