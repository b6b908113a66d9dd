"""Parameters: how the engine proposes context switches, from the settings and from slurm.conf as it is now."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.decision.parameters import Parameters, SlowdownParameters, SwitchDurations
from rmsplugin.errors import SettingsError
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.policy_names import POLICIES, choices, is_offered
from rmsplugin.packing.search import Search
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposer.process import ProposerLimits
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.settings import Settings

#: Shares of ``planning.limit_s``. The rest is for the work around the searches, on a machine that others use, too. That
#: of the decision is a number of deterministic units, about as many seconds of a CPU; its net is by the clock.
_DECISION_SHARE = 0.25
_NET_SHARE = 0.4
_PLACEMENT_SHARE = 0.4


def refuse_unknown_policy(settings: Settings) -> None:
    """Refuse a policy that nobody offers. A function of the site is loaded in the proposing process, and nowhere else.

    Raises:
        SettingsError: there is none of that name.
    """
    name = settings.decision.policy
    if name not in POLICIES and ":" not in name and not is_offered(name):
        raise SettingsError(f"decision.policy: there is no policy {name!r}; {choices()}")


def proposal_parameters(
    settings: Settings,
    rms: RmsSnapshot,
    capabilities: Capabilities = EVERYTHING,
    durations: Mapping[str, float] | None = None,
) -> ProposalParameters:
    """How to decide, to place and to estimate: everything that a proposal depends on besides the configuration.

    If slurm.conf has a PreemptExemptTime, a vjob is exempt from suspension for that long. Nothing is planned that is
    none of the platform's ``capabilities``. ``durations``: keys and values of section [durations] that are in
    use; None: those of the settings.
    """
    durations = settings.durations.model_dump() if durations is None else durations
    default = Parameters()
    limit_s = settings.planning.limit_s
    may_pause = capabilities.pause and not _observes_memory(settings)
    return ProposalParameters(
        policy=settings.decision.policy,
        decision=Parameters(
            search=Search(time_limit_s=math.inf, deterministic_limit=_DECISION_SHARE * limit_s),
            net_s=_NET_SHARE * limit_s,
            exempt_s=default.exempt_s if rms.preempt_exempt_s is None else rms.preempt_exempt_s,
            patience_s=settings.decision.patience_s,
            horizon_s=settings.decision.horizon_s,
            pause_limit_s=settings.decision.pause_limit_s if may_pause else 0.0,
            durations=SwitchDurations.from_values(durations),
            slowdown=SlowdownParameters(
                max_delay=settings.decision.max_delay,
                max_delay_s=settings.decision.max_delay_s,
                slurm_priority=settings.decision.slurm_priority,
                user_share=settings.decision.user_share,
                user_share_s=settings.decision.user_share_s,
            ),
        ),
        objective="nodes" if settings.planning.objective == "nodes" else "cost",
        search=Search(time_limit_s=_PLACEMENT_SHARE * limit_s),
        durations=Durations.from_values(durations),
        shared_store=settings.nodes.shared,
        cpu_in_plan=settings.cpu_in_plan,
        capabilities=capabilities,
    )


def _observes_memory(settings: Settings) -> bool:
    """Whether VMs take the memory that they are seen to need: there a paused VM could give none back to others."""
    return any(partition.memory == "observed" for partition in settings.partition.values())


def most_processes(settings: Settings) -> int:
    """The most proposing processes: by the settings, or as many as this machine has CPUs for us."""
    return settings.planning.processes or len(os.sched_getaffinity(0))


def proposer_limits(settings: Settings) -> ProposerLimits:
    """The bounds of each process that proposes."""
    return ProposerLimits(deadline_s=settings.planning.limit_s, memory_mib=settings.planning.memory_limit_mib)
