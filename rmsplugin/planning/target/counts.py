"""Counts: an answer to the replacement problem in numbers of VMs, and the named target for which it stands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from rmsplugin.model.elements import Location, running_on
from rmsplugin.planning.target.keep import Kept
from rmsplugin.planning.target.replacement import Mover, Replacement


@dataclass(slots=True)
class Counts:
    """The numbers of VMs that stay, resume locally and arrive, by node (in the order of ``Replacement.places``)."""

    kept: list[Kept]
    early: list[dict[int, int]] = field(default_factory=list)  # arrivals of the first pool, by class
    late: list[dict[int, int]] = field(default_factory=list)  # arrivals that wait for an action, by class
    early_groups: frozenset[int] = frozenset()  # vjobs whose resumes are all in the first pool
    early_out: dict[tuple[int, int], int] = field(default_factory=dict)  # migrations to begin with, by node and class

    @classmethod
    def empty(cls, places: int) -> Counts:
        """An answer in which nothing stays and nothing arrives."""
        nothing = range(places)
        return cls([Kept() for _ in nothing], [{} for _ in nothing], [{} for _ in nothing])

    def copy(self) -> Counts:
        """A copy whose nodes can be given other counts."""
        return Counts([*self.kept], [*self.early], [*self.late], self.early_groups, {**self.early_out})

    def hosted(self, i: int) -> list[tuple[int, int]]:
        """The VMs on a node in the end: classes, each with a number of VMs; a class may come more than once."""
        kept = self.kept[i]
        images = ((k, count) for (k, _), count in kept.images.items())
        return [*kept.residents.items(), *images, *self.early[i].items(), *self.late[i].items()]

    def are_on(self, i: int) -> bool:
        """Whether any VM is on a node in the end."""
        return any(count for _, count in self.hosted(i))

    def changes(self, problem: Replacement, i: int) -> bool:
        """Whether a VM leaves a node, or one arrives there."""
        residents = problem.places[i].residents.items()
        leave = any(len(names) > self.kept[i].residents.get(k, 0) for k, names in residents)
        return leave or any((*self.early[i].values(), *self.late[i].values()))

    def early_mib(self, problem: Replacement, i: int) -> int:
        """The memory of a node that is taken in the first pool."""
        resumed = [(k, count) for (k, group), count in self.kept[i].images.items() if group in self.early_groups]
        return sum(problem.classes[k].memory_mib * count for k, count in (*self.early[i].items(), *resumed))

    def cost_mib(self, problem: Replacement, i: int, wait_mib: int) -> int:
        """The cost of a node: of VMs that leave it or resume elsewhere, and of waits for a first pool of that cost."""
        place, kept = problem.places[i], self.kept[i]
        cost = wait_mib * sum(self.late[i].values())
        for k, names in place.residents.items():
            cost += problem.classes[k].memory_mib * (len(names) - kept.residents.get(k, 0))
        for (k, group), names in place.images.items():
            local = kept.images.get((k, group), 0)
            cost += problem.classes[k].memory_mib * (len(names) - local)
            cost += wait_mib * local if group not in self.early_groups else 0
        return cost

    def total_mib(self, problem: Replacement, wait_mib: int) -> int:
        """The whole cost, if late actions wait for a first pool of that cost, and for nothing else."""
        return problem.fixed_cost + sum(self.cost_mib(problem, i, wait_mib) for i in range(len(problem.places)))


@dataclass(frozen=True, slots=True)
class Named:
    """The end of every VM, and the VMs that should arrive in the first pool."""

    target: dict[str, Location]
    early: frozenset[str]


def counts_of(problem: Replacement, target: Mapping[str, Location], early: Collection[str]) -> Counts:
    """The counts of a known answer: the end of each VM, and the VMs that arrive in the first pool."""
    counts = Counts.empty(len(problem.places))
    at = {place.node.name: i for i, place in enumerate(problem.places)}

    def arrive(names: Iterable[str], k: int) -> None:
        for name in names:
            arrivals = (counts.early if name in early else counts.late)[at[target[name].node or ""]]
            arrivals[k] = arrivals.get(k, 0) + 1

    late: set[int | None] = set()
    for i, place in enumerate(problem.places):
        for k, names in place.residents.items():
            gone = [name for name in names if target[name].node != place.node.name]
            counts.kept[i].residents[k] = len(names) - len(gone)
            counts.early_out[i, k] = sum(name in early for name in gone)
            arrive(gone, k)
        for (k, group), names in place.images.items():
            gone = [name for name in names if target[name].node != place.node.name]
            counts.kept[i].images[k, group] = len(names) - len(gone)
            arrive(gone, k)
            if not all(name in early for name in names):
                late.add(group)
    for mover in problem.movers:
        arrive([mover.name], mover.vm_class)
        if mover.name not in early:
            late.add(mover.group)
    counts.early_groups = frozenset(range(len(problem.groups))) - late
    return counts


def is_viable(problem: Replacement, counts: Counts) -> bool:
    """Whether each node has its VMs' demand in the end, and accepts the arriving VMs."""
    classes = problem.classes
    for i, place in enumerate(problem.places):
        hosted = counts.hosted(i)
        for k, count in (*counts.early[i].items(), *counts.late[i].items()):
            if count and not (place.takes and classes[k].may_go(i)):
                return False
        if sum(classes[k].centi_cpus * count for k, count in hosted) > place.capacity_c:
            return False
        if sum(classes[k].memory_mib * count for k, count in hosted) > place.capacity_m:
            return False
    return True


def movers_after(problem: Replacement, kept: list[Kept]) -> list[Mover]:
    """All VMs that have to arrive somewhere: those of the problem, and those that their nodes do not keep."""
    movers = list(problem.movers)
    for place, keeps in zip(problem.places, kept, strict=True):
        for k, names in place.residents.items():
            memory = problem.classes[k].memory_mib
            movers += [Mover(name, k, memory) for name in names[keeps.residents.get(k, 0) :]]
        for (k, group), names in place.images.items():
            memory = problem.classes[k].memory_mib
            movers += [Mover(name, k, 2 * memory, group) for name in names[keeps.images.get((k, group), 0) :]]
    return movers


def with_names(problem: Replacement, counts: Counts) -> Named:
    """Give the counts names.

    Of VMs that could arrive early, those that resume come first (their vjob depends on it), then migrations, which
    give room back, then runs.
    """
    hosts = _kept_hosts(problem, counts)
    slots_early, slots_late = _slots(counts.early), _slots(counts.late)
    early: set[str] = set()
    waiting: dict[int, list[Mover]] = defaultdict(list)
    for mover in movers_after(problem, counts.kept):
        waiting[mover.vm_class].append(mover)
    for k, movers in waiting.items():
        movers.sort(key=lambda mover: (_rank(mover, counts.early_groups), mover.name))
        places = [(place, True) for place in slots_early[k]] + [(place, False) for place in slots_late[k]]
        for mover, (place, is_early) in zip(movers, places, strict=True):
            hosts[mover.name] = place
            if is_early:
                early.add(mover.name)
    early |= {
        name
        for place in problem.places
        for (_, group), names in place.images.items()
        if group in counts.early_groups
        for name in names
    }
    target = dict(problem.fixed)
    target |= {name: running_on(problem.places[place].node.name) for name, place in hosts.items()}
    return Named(target, frozenset(early))


def _rank(mover: Mover, early_groups: frozenset[int]) -> int:
    if mover.group is not None:
        return 0 if mover.group in early_groups else 3
    return 1 if mover.cost else 2


def _kept_hosts(problem: Replacement, counts: Counts) -> dict[str, int]:
    hosts: dict[str, int] = {}
    for i, (place, keeps) in enumerate(zip(problem.places, counts.kept, strict=True)):
        for k, names in place.residents.items():
            hosts |= dict.fromkeys(names[: keeps.residents.get(k, 0)], i)
        for key, names in place.images.items():
            hosts |= dict.fromkeys(names[: keeps.images.get(key, 0)], i)
    return hosts


def _slots(arrivals: list[dict[int, int]]) -> Mapping[int, list[int]]:
    slots: dict[int, list[int]] = defaultdict(list)
    for place, by_class in enumerate(arrivals):
        for k, count in by_class.items():
            slots[k] += [place] * count
    return slots
