"""Manager assignment: which manager runs the cycle of each group of hosts. Groups stay where they are, if they can.

Pure: the leader calls it when a manager or a group comes or goes, or when an operator has said where a group is to be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def assign_groups(
    sizes: Mapping[str, int],
    managers: Iterable[str],
    owners: Mapping[str, str],
    kept: Mapping[str, str] | None = None,
    closed: Collection[str] = (),
    barred: Mapping[str, Collection[str]] | None = None,
) -> dict[str, str]:
    """Give each group to a manager, so that no single group's move would make loads more even.

    A group moves only if its manager is gone, if it is kept at another one, or if the move makes loads more even. So
    groups of one size are as even as can be: the numbers of two managers differ by one at most. Groups that are kept
    do not move for evenness; the others make up for them as far as they can.

    Args:
        sizes: by group, its load, such as the number of its hosts; at least 1.
        managers: those that are there.
        owners: by group, the manager that has it now; groups and managers that are gone may be among them.
        kept: by group, the manager that an operator wants to have it; one that is gone counts for nothing.
        closed: managers that keep what they have, and get nothing more but what an operator wants them to have; if all
            are, none is.
        barred: by group, the managers that cannot have it, whoever wants that; if all are, none is.

    Returns:
        By group, its manager. Empty if there is none.
    """
    present = sorted(set(managers))
    if not present:
        return {}
    able = {
        group: [each for each in present if each not in (barred or {}).get(group, ())] or present for group in sizes
    }
    fixed = {group: manager for group, manager in (kept or {}).items() if manager in able.get(group, ())}
    found = {group: owner for group, owner in owners.items() if owner in able.get(group, ())} | fixed
    taking = {group: [each for each in those if each not in closed] or those for group, those in able.items()}
    loads = dict.fromkeys(present, 0)
    for group, owner in found.items():
        loads[owner] += sizes[group]
    for group in sorted(sizes.keys() - found.keys(), key=lambda group: (-sizes[group], group)):
        found[group] = _lightest(taking[group], loads)
        loads[found[group]] += sizes[group]
    while move := _best_move(sizes, found, loads, fixed.keys(), taking):
        group, target = move
        loads[found[group]] -= sizes[group]
        loads[target] += sizes[group]
        found[group] = target
    return found


def _best_move(
    sizes: Mapping[str, int],
    found: Mapping[str, str],
    loads: Mapping[str, int],
    fixed: Collection[str],
    taking: Mapping[str, Collection[str]],
) -> tuple[str, str] | None:
    """The move after which the larger of the two loads is the least, of the most loaded managers' moves; None if none.

    A move makes loads more even if the gap between both is larger than the group: then the sum of their squares falls,
    and so moves come to an end. The groups ``fixed`` do not move, and others only to managers ``taking`` them.
    """
    best: tuple[int, str, str] | None = None
    for group, owner in found.items():
        if group in fixed:
            continue
        lightest = _lightest(taking[group], loads)
        gap = loads[owner] - loads[lightest]
        if gap > sizes[group]:
            move = (-_gain(gap, sizes[group]), group, lightest)
            best = move if best is None else min(best, move)
    return best[1:] if best else None


def _lightest(managers: Iterable[str], loads: Mapping[str, int]) -> str:
    return min(managers, key=lambda manager: (loads[manager], manager))


def _gain(gap: int, size: int) -> int:
    """By how much the sum of the squares of two loads falls, halved, when a group of this size crosses their gap."""
    return size * (gap - size)
