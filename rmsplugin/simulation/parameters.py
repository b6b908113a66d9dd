"""How a workload is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmsplugin.decision.cpu_demand import WINDOW_S
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.hosts import Slowdown
from rmsplugin.simulation.measured import Measured
from rmsplugin.simulation.observed_memory import MemoryParameters
from rmsplugin.workload.activity import Activity


@dataclass(frozen=True)
class ReplayParameters:
    """How a workload is replayed.

    Attributes:
        proposal: how the engine decides and plans; no search of it may look at a clock.
        cycle_s: so long lies between two decisions at least.
        look_s: so long it takes to look at the cluster: a decision comes so long after what called for it.
        failure_rate: the part of all operations that fail, from 0 to below 1.
        seed: which ones.
        slowdown: of those that compute beside an action.
        activity: what the VMs of a job do, by job id; of others what the trace says, or all that they requested.
        window_s: so long nothing more has to be seen of a VM before its demand falls.
        measured: how what was done to vjobs really went; what it does not know takes what ``proposal`` expects.
        memory: how memory is observed; None: VMs take what was requested for them.
        known: whether ``activity`` is the demand that an engine has seen, so that it is not to be observed once more.
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
