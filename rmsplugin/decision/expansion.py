"""Expansion: a vjob's whole time, its waits included, for each second that it is still expected to need. Pure.

It is the expansion factor of Kettimuthu, Subramani et al., "Selective preemption strategies for parallel job
scheduling" (ICPP 2002), with the rest of a run in place of the whole. The rest is unknown: users ask for far too much,
so the time that has run counts, too. Long runners run long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rmsplugin.decision.parameters import Parameters, SlowdownParameters
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import Resources

Item = TypeVar("Item")

#: A vjob that has run for a while is expected to need so many times that in all, and this more, if its limit allows it.
_TIMES, _LEAST_S = 20.0, 60.0

#: The part of a cluster that protected overdue vjobs have at most; one vjob always may be protected.
DUE_PART = 0.05


def expected_s(limit_s: float | None, ran_s: float) -> float:
    """The expected run time of a vjob in all, in seconds: by its time limit, and by the time that it has run."""
    long_s = _TIMES * ran_s + _LEAST_S
    return long_s if limit_s is None else min(limit_s, long_s)


def still_expected_s(limit_s: float | None, ran_s: float) -> float:
    """The part of that which is left, in seconds; always above 0, however wrong the limit was."""
    return max(expected_s(limit_s, ran_s) - ran_s, _LEAST_S)


def expansion(waited_s: float, needed_s: float, weight: float = 1.0) -> float:
    """The expansion.

    Args:
        waited_s: the time that the vjob has not run since it was submitted.
        needed_s: the time that it still needs, with the loss of a switch for it.
        weight: the site's weight of it.
    """
    return weight * (waited_s + needed_s) / needed_s


def enough_after_s(waited_s: float, needed_s: float, weight: float, least: float) -> float:
    """The seconds that a vjob still has to wait until its expansion is so large."""
    return max(0.0, needed_s * (least / weight - 1) - waited_s) if weight > 0 else math.inf


def switch_s(vjob: VJob, parameters: Parameters) -> float:
    """The time that it takes to suspend a vjob, and to resume it."""
    return parameters.durations.away_s(vjob)


def lost_s(begins_s: float, part: float, victims: Iterable[tuple[float, float]]) -> float:
    """The loss of all by a switch, in seconds of those vjobs for which it is made.

    Args:
        begins_s: the time until one of them computes.
        part: the part of the cluster that they have.
        victims: the vjobs that make way: the part of each, and the duration of its suspend and resume.
    """
    return begins_s + sum(each * switch_s for each, switch_s in victims) / part


def borne(
    one: Item, others: Iterable[Item], part: Callable[[Item], float], bears: Callable[[Item, float], bool]
) -> tuple[bool, list[Item]]:
    """Whether it pays that others make way for a vjob, if all that start by the switch share its loss (0135).

    Each bears a part of the loss as its part of their whole. If that is too much for one, the switch is not made for
    it: the rest bears the loss.

    Args:
        one: the vjob for which the switch is made.
        others: the vjobs behind it that get the room that it leaves free.
        part: the part of the cluster that each has.
        bears: whether it pays for a vjob if so large a part of the cluster bears the loss.

    Returns:
        Whether it pays, and the vjobs that would have borne the loss.
    """
    group = [one, *others]
    while bears(one, whole := sum(map(part, group))):
        left = [each for each in group if bears(each, whole)]
        if len(left) == len(group):
            return True, group
        group = left
    return False, group


def part_of(demand: Resources, capacity: Resources) -> float:
    """A demand's part of a cluster: of its CPUs or of its memory, whichever is more; above 0."""
    cpus = demand.cpus / capacity.cpus if capacity.cpus > 0 else 0.0
    memory = demand.memory_mib / capacity.memory_mib if capacity.memory_mib > 0 else 0.0
    return max(cpus, memory, 1e-9)


def overdue(waited_s: float, limit_s: float | None, ran_s: float, parameters: SlowdownParameters) -> float:
    """The time that a vjob has waited in all, as a multiple of its bound; above 1 it is overdue."""
    longest_s = bound_s(limit_s, ran_s, parameters)
    return waited_s / longest_s if longest_s > 0 else math.inf


def bound_s(limit_s: float | None, ran_s: float, parameters: SlowdownParameters) -> float:
    """The time that a vjob waits in all until it is overdue.

    This is ``max_delay`` of the time that it asked for, or of its expected time if it asked for none, and at least
    ``max_delay_s``.
    """
    asked_s = expected_s(limit_s, ran_s) if limit_s is None else limit_s
    return max(parameters.max_delay_s, parameters.max_delay * asked_s)


def protected(overdue: Iterable[tuple[Item, float | None, float, float]]) -> Iterator[Item]:
    """The overdue vjobs that are protected: the longest running first, up to the protected part of the cluster.

    A vjob that was protected before is protected until it ends: no starting vjob comes before it.

    Where many are overdue, only those far overdue count: of N, those at more than the square root of N times the bound.
    In an overloaded cluster all would be protected in time, and the order of submission would be back.

    Args:
        overdue: for each, the time that it has run since it was started or resumed (None: it does not run), its wait as
            a multiple of its bound, and its part of the cluster; among equals the first one is taken.
    """
    found = sorted(overdue, key=lambda each: (each[1] is None, -(each[1] or 0.0), -each[2]))
    least, held = math.sqrt(len(found)), 0.0
    for item, _, times, part in found:
        if times < least:
            continue
        if held and held + part > DUE_PART:
            return
        held += part
        yield item
