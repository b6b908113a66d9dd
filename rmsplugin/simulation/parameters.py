"""Parameters: how a workload is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.decision.cpu_demand import WINDOW_S
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.model import policy_names
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.propose import Decides, decided
from rmsplugin.simulation.hosts import Slowdown
from rmsplugin.simulation.measured import Measured
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.simulation.ruled import SiteRules
from rmsplugin.workload.activity import Activity

#: Policies that give each VM what it requested, whatever it uses, and whose decisions time alone does not change. They
#: suspend and move nothing.
STATIC = frozenset(policy_names.STATIC)


@dataclass(frozen=True)
class ReplayParameters:
    """How a workload is replayed.

    Attributes:
        proposal: how the engine decides and plans; no search of it may look at a clock.
        cycle_s: the least time between two decisions.
        look_s: the duration of a look at the cluster: a decision comes so long after its cause.
        failure_rate: the part of all operations that fail, from 0 to below 1.
        seed: chooses the operations that fail.
        slowdown: the slowdown of vjobs that compute beside an action.
        activity: the activity of a job's VMs, by job id; for other jobs by the trace, or all that they requested.
        window_s: a VM's demand falls only if no more was seen for so long.
        measured: the measured course of operations; where it has none, the durations that ``proposal`` expects.
        memory: how memory is observed; None: VMs take the memory requested for them.
        energy: the nodes' watts, and how they are switched off and on; None: all are on all the time.
        rules: the placement rules; None: there are none. With them memory is not observed.
        decides: makes the decisions.
        known: whether ``activity`` is the demand that an engine has seen, so that it is not observed once more.
    """

    proposal: ProposalParameters
    cycle_s: float = 30.0
    look_s: float = 0.0
    failure_rate: float = 0.0
    seed: int = 0
    slowdown: Slowdown = field(default_factory=Slowdown)
    activity: Mapping[int, Activity] = field(default_factory=dict)
    window_s: float = WINDOW_S
    measured: Measured = field(default_factory=Measured)
    memory: MemoryParameters | None = None
    known: bool = False
    energy: EnergyParameters | None = None
    rules: SiteRules | None = None
    decides: Decides = decided
