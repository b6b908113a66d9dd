"""Worth: the gain and the cost of a switch, both in CPU-seconds (RR-6929 section 2.3).

"Starting the 4th job can be useless if the suspend time is significant with regards to the running one."
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmsplugin.decision.fcfs import remaining_s
from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState


@dataclass(frozen=True, slots=True)
class Worth:
    """A gain and a cost in CPU-seconds, over a time in seconds."""

    over_s: float
    gain: float
    cost: float


def start_s(vjob: VJob, state: VJobState, parameters: Parameters) -> float:
    """The time until a ready vjob computes: its boot or, if it made way, the time to go on."""
    durations = parameters.durations
    return durations.back_s(vjob) if state is VJobState.SLEEPING else durations.run.of(vjob)


def of_hole(vjob: VJob, state: VJobState, hole_s: float, parameters: Parameters) -> Worth:
    """The worth of filling a hole: its CPUs as long as the hole lasts, against the loss of starting and suspending."""
    cpus = vjob.demand.cpus
    lost_s = start_s(vjob, state, parameters) + parameters.durations.leave_s(vjob)
    return Worth(hole_s, cpus * hole_s, cpus * lost_s)


def of_preemption(
    vjob: VJob, state: VJobState, victims: Sequence[VJob], hole_s: float, parameters: Parameters
) -> Worth:
    """The worth of suspending ``victims`` so that a vjob runs.

    The gain is the difference in running CPUs for as long as there is one: until the first of them ends, the hole
    ends, or the horizon is reached. The cost is the loss of starting it, suspending the victims and resuming them
    later.
    """
    over_s = min([hole_s, parameters.horizon_s, *(remaining_s(each) for each in (vjob, *victims))])
    cpus = vjob.demand.cpus
    durations = parameters.durations
    gain = (cpus - sum(victim.demand.cpus for victim in victims)) * over_s
    cost = cpus * start_s(vjob, state, parameters) + sum(
        victim.demand.cpus * durations.away_s(victim) for victim in victims
    )
    return Worth(over_s, gain, cost)
