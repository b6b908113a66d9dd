"""Waits: the least cost of a plan because not all arrivals find room in its first pool.

Suspends are in the first pool (RR-6929 section 4.1), so later arrivals wait for the dearest action there.
The first pool uses only the memory that is free at the start, and all VMs of a vjob that resumes are in one pool. If
VMs are equal, these waits are mostly the only cost beside each action's own.

A VM that resumes early need not do so where it ends: it may move on later. So any room that is free at the start
suffices for its vjob to be early, also on a node on which no VM may end because it is overloaded; and a VM without
memory needs no room.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmsplugin.planning.target.replacement import Replacement


def waits_mib(problem: Replacement) -> int:
    """The least sum of the waits of later arrivals, in MiB, whatever the dearest action of the first pool."""
    if not problem.suspend_mib:
        return 0
    dearest = _dearest(problem)
    singles = sum(mover.group is None for mover in problem.movers)
    arrivals, slots = singles + sum(problem.group_sizes), _slots(problem)
    waits = []
    for price in {problem.suspend_mib, *(cost for cost in dearest if cost > problem.suspend_mib)}:
        groups = [size for size, cost in zip(problem.group_sizes, dearest, strict=True) if cost <= price]
        waits.append(price * (arrivals - _most_early(singles, groups, slots)))
    return min(waits)


def _dearest(problem: Replacement) -> list[int]:
    """By group: the least cost of the dearest of its resumes if all are in the first pool, in MiB."""
    found = [0] * len(problem.groups)
    # A VM whose state lies on an overloaded node may resume there, and has to move on.
    moves_on = any(place.overloaded for place in problem.places)
    for place in problem.places:
        for k, group in place.images:
            memory = problem.classes[k].memory_mib
            cost = memory if memory <= place.early_m else 2 * memory  # there is no room yet where its saved state lies
            found[group] = max(found[group], cost)
    for mover in problem.movers:
        if mover.group is not None:
            memory = problem.classes[mover.vm_class].memory_mib
            found[mover.group] = max(found[mover.group], memory if moves_on else mover.cost)
    return found


def _slots(problem: Replacement) -> int:
    """The most arrivals that have room in the first pool: all without memory, and the smallest."""
    memory = [each.memory_mib for each in problem.classes]
    of = [(mover.vm_class, 1) for mover in problem.movers]
    of += [(k, len(names)) for place in problem.places for (k, _), names in place.images.items()]
    need_none = sum(count for k, count in of if not memory[k])
    least_mib = min((memory[k] for k, _ in of if memory[k]), default=0)
    return need_none + (sum(place.early_m // least_mib for place in problem.places) if least_mib else 0)


def _most_early(singles: int, groups: Sequence[int], slots: int) -> int:
    """The most VMs that have so many slots, if of each group all have one or none has."""
    sums = 1  # its bits are the possible numbers of VMs of groups together
    for size in groups:
        sums |= sums << size
    most = min(slots, sum(groups))
    return max(number + min(singles, slots - number) for number in range(most + 1) if sums >> number & 1)
