"""Keep: the VMs of a node that can stay or resume there, if nothing else is asked of it.

A VM that a node cannot keep has to arrive elsewhere, at a cost of its memory demand (RR-6929, table 1): a migration, or
the copy of its saved state. A local resume for which the room is not free at the start waits. The least of both, summed
over the nodes, is a lower bound on what every target costs: arrivals can only take room away. Of all bounds it is the
cheapest to compute, and where there is room enough it is reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rmsplugin.planning.target.replacement import Place, Replacement, VMClass

#: A guard against endless work. With more different sums on one node, images wait for nothing, which leaves a weaker
#: bound; with more even then, the bound is the excess demand, and the choice greedy.
_MOST_SUMS = 2_000


@dataclass(slots=True)
class Kept:
    """The VMs that a node keeps: VMs that stay, VMs that resume locally; and a lower bound on the cost (MiB)."""

    residents: dict[int, int] = field(default_factory=dict)  # by class
    images: dict[tuple[int, int], int] = field(default_factory=dict)  # by class and group
    bound_mib: int = 0  # exact unless there are too many different VMs


@dataclass(frozen=True, slots=True)
class _Item:
    """Equal VMs of a node: their number, and the resources of each."""

    vm_class: int
    is_image: bool
    count: int
    centi_cpus: int
    memory_mib: int


#: Sums of CPUs, memory, and memory of the first pool.
_Sums = tuple[int, int, int]


def keep(place: Place, classes: list[VMClass], wait_mib: int | None) -> Kept:
    """Choose the VMs that a node keeps so that lost and waiting VMs cost the least: a small knapsack.

    Args:
        place: the node.
        classes: the classes of all VMs.
        wait_mib: the cost of a local resume's wait outside the first pool; None: none may wait. Then the answer is a
            good choice (a vjob whose VMs all resume at once waits for nothing), but no bound.
    """
    if not place.residents and not place.images:
        return Kept()
    here = [(classes[k], len(names)) for k, names in place.residents.items()]
    images = [(classes[k], len(names)) for (k, _), names in place.images.items()]
    images_m = sum(count * each.memory_mib for each, count in images)
    total_c = sum(count * each.centi_cpus for each, count in (*here, *images))
    total_m = images_m + sum(count * each.memory_mib for each, count in here)
    if total_c <= place.capacity_c and total_m <= place.capacity_m and images_m <= place.early_m:
        residents = {k: len(names) for k, names in sorted(place.residents.items())}
        return Kept(residents, {key: len(names) for key, names in place.images.items()})
    items = _items(place, classes)
    found = _exact(place, items, wait_mib)
    if found is None and wait_mib:
        found = _exact(place, items, 0)
    if found is None:
        return _share(place, items, _greedy(place, items), max(0, total_m - place.capacity_m))
    return _share(place, items, *found)


def keep_all(problem: Replacement) -> list[Kept]:
    """The VMs that each node keeps, with bounds for all plans."""
    wait_mib = problem.wait_mib
    return [keep(place, problem.classes, wait_mib) for place in problem.places]


def keep_at_ease(problem: Replacement) -> list[Kept]:
    """The same if no local resume waits for room."""
    return [keep(place, problem.classes, 0) for place in problem.places]


def bound_of(problem: Replacement, kept: list[Kept]) -> int:
    """The bound of all nodes together: no plan costs less, in MiB."""
    return problem.fixed_cost + sum(each.bound_mib for each in kept)


def _items(place: Place, classes: list[VMClass]) -> list[_Item]:
    """Residents first: of two equal VMs the running one is kept, for it needs no room of the first pool."""
    residents = {k: len(names) for k, names in place.residents.items()}
    images: dict[int, int] = {}
    for (k, _), names in place.images.items():
        images[k] = images.get(k, 0) + len(names)
    return [
        _Item(k, is_image, count, classes[k].centi_cpus, classes[k].memory_mib)
        for is_image, counts in ((False, residents), (True, images))
        for k, count in sorted(counts.items())
    ]


def _exact(place: Place, items: list[_Item], wait_mib: int | None) -> tuple[list[int], int] | None:
    """The number of each item kept at the least cost, and that cost; None if there are too many sums to try."""
    sums: dict[_Sums, tuple[int, tuple[int, ...]]] = {(0, 0, 0): (0, ())}
    for item in items:
        grown: dict[_Sums, tuple[int, tuple[int, ...]]] = {}
        for (used_c, used_m, used_early), (cost, chosen) in sums.items():
            for count, late in _choices(item, wait_mib):
                early = (count - late) * item.memory_mib if item.is_image and wait_mib != 0 else 0
                key = (used_c + count * item.centi_cpus, used_m + count * item.memory_mib, used_early + early)
                if key[0] > place.capacity_c or key[1] > place.capacity_m or key[2] > place.early_m:
                    continue
                total = cost + (item.count - count) * item.memory_mib + late * (wait_mib or 0)
                # Of two choices with equal cost and resources, the later keeps more of the first items: running VMs
                # stay.
                if key not in grown or total <= grown[key][0]:
                    grown[key] = (total, (*chosen, count))
            if len(grown) > _MOST_SUMS:  # they do not become fewer
                return None
        sums = grown
    # At equal cost, the fewest CPUs and the least memory: that leaves most to arrivals.
    best = min(sums, key=lambda key: (sums[key][0], key))
    return list(sums[best][1]), sums[best][0]


def _choices(item: _Item, wait_mib: int | None) -> Iterator[tuple[int, int]]:
    """The numbers of kept VMs, and of those of them that wait (not told apart if waiting costs nothing)."""
    for count in range(item.count + 1):
        yield from ((count, late) for late in range(count + 1 if item.is_image and wait_mib else 1))


def _greedy(place: Place, items: list[_Item]) -> list[int]:
    """Keep the largest first, and none that waits."""
    left_c, left_m, left_early = place.capacity_c, place.capacity_m, place.early_m
    chosen = [0] * len(items)
    for at in sorted(range(len(items)), key=lambda at: (-items[at].memory_mib, items[at].centi_cpus, at)):
        item = items[at]
        rooms = [left_c // item.centi_cpus if item.centi_cpus else item.count]
        if item.memory_mib:
            rooms.append((min(left_m, left_early) if item.is_image else left_m) // item.memory_mib)
        chosen[at] = min(item.count, *rooms)
        left_c, left_m = left_c - chosen[at] * item.centi_cpus, left_m - chosen[at] * item.memory_mib
        left_early -= chosen[at] * item.memory_mib if item.is_image else 0
    return chosen


def _share(place: Place, items: list[_Item], chosen: list[int], bound_mib: int) -> Kept:
    """Name the vjobs of the kept images: in their order."""
    kept = Kept(bound_mib=bound_mib)
    images = {}
    for item, count in zip(items, chosen, strict=True):
        if item.is_image:
            images[item.vm_class] = count
        else:
            kept.residents[item.vm_class] = count
    for key, names in place.images.items():
        kept.images[key] = min(len(names), images[key[0]])
        images[key[0]] -= kept.images[key]
    return kept
