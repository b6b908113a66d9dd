"""Policies: the ways to decide which vjobs run, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rmsplugin.decision.easy_preempt import easy_preempt
from rmsplugin.decision.fcfs import conservative, easy, fcfs
from rmsplugin.decision.mixed import mixed
from rmsplugin.decision.own_policies import decide_by
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.decision.rjsp import rjsp, rjsp_exact
from rmsplugin.decision.sharing_policies import load_sharing, v_reconfiguration
from rmsplugin.decision.slowdown import slowdown
from rmsplugin.model.configuration import Configuration

Policy = Callable[[Configuration, Parameters], Decision | Infeasible]

#: All policies. Each gives every vjob a state and a reason, and is a pure function.
POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "rjsp": rjsp,
        "rjsp-exact": rjsp_exact,
        "fcfs": fcfs,
        "easy": easy,
        "conservative": conservative,
        "easy-preempt": easy_preempt,
        "mixed": mixed,
        "slowdown": slowdown,
        "load-sharing": load_sharing,
        "v-reconfiguration": v_reconfiguration,
    }
)


def decide(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide the state of each vjob.

    Args:
        policy: a name from ``POLICIES``; or of a policy of the site: of its entry point, or ``module:function``.
        configuration: nodes, queue (head first) and the place of each VM.
        parameters: tunables; the papers' policies need none.

    Returns:
        The decision. Infeasible: nothing can be decided, there is no such policy, or it is a site's and errs.
    """
    chosen = POLICIES.get(policy)
    if chosen is None:
        return decide_by(policy, configuration, parameters)
    return chosen(configuration, parameters)
