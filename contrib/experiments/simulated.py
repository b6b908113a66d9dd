"""The simulator as the experiments use it: the engine's own decisions, planner and checker, and no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.durations import DEFAULTS
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.planning.target.placement import Objective
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.simulation.outcome import Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.activity import Activity
from rmsplugin.workload.jobs import Job

#: Of each search for a plan, in the solver's unit, about a second of one core; decisions get half of it.
LIMIT = 0.2


#: No action on a VM takes any time.
FREE = dict.fromkeys(DEFAULTS, 0.0)


def switches_of(suspend_s: float, resume_s: float) -> dict[str, float]:
    """Durations by which a suspend and a resume take so long, whatever the VM and wherever it is; all else no time."""
    return FREE | {"suspend_s": suspend_s, "resume_s": resume_s, "remote_resume_s": resume_s}


def simulated(
    jobs: Sequence[Job],
    cluster: Cluster,
    policy: str,
    *,
    activity: Mapping[int, Activity] | None = None,
    cycle_s: float = 30.0,
    objective: Objective = "cost",
    heuristic: Literal["ffd"] | None = None,
    limit: float = LIMIT,
    durations: Mapping[str, float] = DEFAULTS,
    slowdown: SlowdownParameters | None = None,
    memory: MemoryParameters | None = None,
    energy: EnergyParameters | None = None,
    cpu_in_plan: bool = False,
) -> Outcome:
    """Replay jobs on a cluster; the arguments are those of ``ReplayParameters`` and ``ProposalParameters``.

    Raises:
        OperationFailedError: a decision or plan was rejected, so that what was simulated is not what was asked for.
    """
    search = Search(time_limit_s=math.inf, deterministic_limit=limit)
    proposal = ProposalParameters(
        policy,
        decision=Parameters(
            search=search.part(0.5),
            durations=SwitchDurations.from_values(durations),
            slowdown=slowdown or SlowdownParameters(),
        ),
        objective=objective,
        heuristic=heuristic,
        search=search,
        durations=Durations.from_values(durations),
        cpu_in_plan=cpu_in_plan,
    )
    parameters = ReplayParameters(proposal, cycle_s=cycle_s, activity=activity or {}, memory=memory, energy=energy)
    outcome = replay(jobs, cluster, parameters)
    if outcome.faults:
        raise OperationFailedError(f"{policy}: {next(iter(outcome.faults))}")
    return outcome
