"""Expansion: how long a vjob takes in all, its waits included, for each second that it is still expected to need. Pure.

The expansion factor of Kettimuthu, Subramani et al., "Selective preemption strategies for parallel job scheduling"
(ICPP 2002), with what is left of a run in place of the whole. How much is left nobody knows: users ask for far too
much, so that what has run is asked, too. Long runners run long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rmsplugin.decision.parameters import Parameters, SlowdownParameters
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import Resources

Item = TypeVar("Item")

#: One that has run for a while is expected to need so many times that in all, and this more, if its limit allows it.
_TIMES, _LEAST_S = 20.0, 60.0

#: So much of a cluster those have at most that are protected because they are overdue; one always may be.
DUE_PART = 0.05


def expected_s(limit_s: float | None, ran_s: float) -> float:
    """For how long one is expected to run in all, in seconds: by its time limit, and by how long it has run."""
    long_s = _TIMES * ran_s + _LEAST_S
    return long_s if limit_s is None else min(limit_s, long_s)


def still_expected_s(limit_s: float | None, ran_s: float) -> float:
    """How much of that is left, in seconds; never nothing, however wrong the limit was."""
    return max(expected_s(limit_s, ran_s) - ran_s, _LEAST_S)


def expansion(waited_s: float, needed_s: float, weight: float = 1.0) -> float:
    """The expansion.

    Args:
        waited_s: how long one has not run since it was submitted.
        needed_s: what it still needs, with what a switch for it loses.
        weight: what the site says of it.
    """
    return weight * (waited_s + needed_s) / needed_s


def enough_after_s(waited_s: float, needed_s: float, weight: float, least: float) -> float:
    """For how much longer one has to wait until its expansion is so large."""
    return max(0.0, needed_s * (least / weight - 1) - waited_s) if weight > 0 else math.inf


def switch_s(vjob: VJob, parameters: Parameters) -> float:
    """How long it takes to suspend a vjob, and to resume it."""
    return parameters.durations.away_s(vjob)


def lost_s(begins_s: float, part: float, victims: Iterable[tuple[float, float]]) -> float:
    """What a switch loses to everybody, in seconds of what those have whom it is made for.

    Args:
        begins_s: how long it takes until one of them computes.
        part: of the cluster that they have.
        victims: who makes way: the part that each has, and how long a suspend and a resume of it take.
    """
    return begins_s + sum(each * switch_s for each, switch_s in victims) / part


def borne(
    one: Item, others: Iterable[Item], part: Callable[[Item], float], bears: Callable[[Item, float], bool]
) -> tuple[bool, list[Item]]:
    """Whether it pays for one to have others make way, if all share what that loses who start by it (0135).

    Each bears as much of it as it has of what they have together. For whom that is too much it is not made: the rest
    bears it.

    Args:
        one: whom the switch is made for.
        others: those behind it that get what it leaves free.
        part: of the cluster that each has.
        bears: whether it pays for one if so large a part of the cluster bears the loss.

    Returns:
        That, and who would have borne it.
    """
    group = [one, *others]
    while bears(one, whole := sum(map(part, group))):
        left = [each for each in group if bears(each, whole)]
        if len(left) == len(group):
            return True, group
        group = left
    return False, group


def part_of(demand: Resources, capacity: Resources) -> float:
    """The part of a cluster that a demand is: of its CPUs or of its memory, whichever is more; above 0."""
    cpus = demand.cpus / capacity.cpus if capacity.cpus > 0 else 0.0
    memory = demand.memory_mib / capacity.memory_mib if capacity.memory_mib > 0 else 0.0
    return max(cpus, memory, 1e-9)


def overdue(waited_s: float, limit_s: float | None, ran_s: float, parameters: SlowdownParameters) -> float:
    """How many times as long as its bound one has waited in all; above 1 it is overdue."""
    longest_s = bound_s(limit_s, ran_s, parameters)
    return waited_s / longest_s if longest_s > 0 else math.inf


def bound_s(limit_s: float | None, ran_s: float, parameters: SlowdownParameters) -> float:
    """For how long one waits in all until it is overdue.

    ``max_delay`` of what it asked for, or of what it is expected to need if it asked for nothing, and ``max_delay_s``
    at least.
    """
    asked_s = expected_s(limit_s, ran_s) if limit_s is None else limit_s
    return max(parameters.max_delay_s, parameters.max_delay * asked_s)


def protected(overdue: Iterable[tuple[Item, float | None, float, float]]) -> Iterator[Item]:
    """Who of those that are overdue is protected: that part of the cluster that may be, whoever runs longest first.

    Whoever was protected before then is until it ends: nobody that is started comes before it.

    Where many are overdue, who is so by much: N of them, and only the square root of N times the bound counts. In an
    overloaded cluster all would be protected in time, and the order of submission would be back.

    Args:
        overdue: of each, for how long it has run since it was started or resumed (None: it does not run), how many
            times as long as its bound it has waited, and its part of the cluster; among equals the first one is taken.
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
