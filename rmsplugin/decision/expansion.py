"""Expansion: how long a vjob takes in all, its waits included, for each second that it is still expected to need.

The expansion factor of Kettimuthu, Subramani et al., "Selective preemption strategies for parallel job scheduling"
(ICPP 2002, section 4), with what is left of a run in place of the whole. How much is left nobody knows: users ask for
far too much, so that what has run is asked, too. Long runners run long.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.worth import start_s
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

#: One that has run for a while is expected to need so many times that in all, and this more, if its limit allows it.
_TIMES, _LEAST_S = 20.0, 60.0


def expected_s(vjob: VJob) -> float:
    """For how long a vjob is expected to run in all, in seconds: by its limit, and by how long it has run."""
    limit_s = math.inf if vjob.time_limit_s is None else vjob.time_limit_s
    return min(limit_s, _TIMES * vjob.ran_s + _LEAST_S)


def still_expected_s(vjob: VJob) -> float:
    """How much of that is left, in seconds; never nothing, however wrong the limit was."""
    return max(expected_s(vjob) - vjob.ran_s, _LEAST_S)


def expansion(vjob: VJob, lost_s: float = 0.0) -> float:
    """The expansion, multiplied by what the site says of the vjob.

    Args:
        vjob: whose.
        lost_s: seconds of its own CPUs that a switch loses; they count as if it had to do that work itself.
    """
    needed_s = still_expected_s(vjob) + lost_s
    return vjob.weight * (vjob.waited_s + needed_s) / needed_s


def switch_s(vjob: VJob, parameters: Parameters) -> float:
    """How long it takes to suspend a vjob, and to resume it."""
    return parameters.durations.suspend.of(vjob) + parameters.durations.resume.of(vjob)


def lost_s(vjob: VJob, state: VJobState, victims: Iterable[VJob], capacity: Resources, parameters: Parameters) -> float:
    """What a switch loses to everybody, in seconds of the CPUs (or the memory) of whom it is made for.

    Args:
        vjob: for whom.
        state: in which it is.
        victims: who makes way for it.
        capacity: of all nodes: what each has of it is the larger part of its CPUs and of its memory.
        parameters: how long operations take.
    """
    whole = sum(part_of(victim, capacity) * switch_s(victim, parameters) for victim in victims)
    return start_s(vjob, state, parameters) + whole / part_of(vjob, capacity)


def part_of(vjob: VJob, capacity: Resources) -> float:
    """The part of a cluster that a vjob has: of its CPUs or of its memory, whichever is more; above 0."""
    demand = vjob.demand
    cpus = demand.cpus / capacity.cpus if capacity.cpus > 0 else 0.0
    memory = demand.memory_mib / capacity.memory_mib if capacity.memory_mib > 0 else 0.0
    return max(cpus, memory, 1e-9)


def overdue(vjob: VJob, parameters: Parameters) -> float:
    """How many times as long as its bound a vjob has waited in all; above 1 it is overdue.

    The bound is ``max_delay`` of what it asked for, or of what it is expected to need if it asked for nothing, and
    ``max_delay_s`` at least.
    """
    asked_s = expected_s(vjob) if vjob.time_limit_s is None else vjob.time_limit_s
    bound_s = max(parameters.slowdown.max_delay_s, parameters.slowdown.max_delay * asked_s)
    return vjob.waited_s / bound_s if bound_s > 0 else math.inf
