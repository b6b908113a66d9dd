"""Propose: decide, place, plan, order and estimate; one pure call for the command line, the simulator and the daemon.

Its answer is checked by whoever uses it, by ``rmsplugin.proposing.check``, which shares nothing with the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.budget import Clock
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import Placed, place, place_repaired, place_sample
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal, sentence

#: Entered for each stage (``decision``, ``placement``, ``planning``) while it lasts: a clock, a display. The clock is
#: the caller's, for there is none here.
Stage = Callable[[str], AbstractContextManager[object]]


def propose(
    configuration: Configuration,
    parameters: ProposalParameters,
    stage: Stage = nullcontext,
    clock: Clock | None = None,
) -> Proposal | NoProposal:
    """Propose one context switch.

    Args:
        configuration: nodes, vjobs in the order of the queue (head first), and where each VM is.
        parameters: policy, objective, limits, durations.
        stage: entered for each stage while it lasts.
        clock: monotonic seconds, with which the limit on the placement is a deadline; None: only what solvers take
            is measured, and all else estimated.

    Returns:
        A proposal that nobody has checked yet; or why there is none.

    Raises:
        ValueError: there is no such policy.
    """
    with stage("decision"):
        decision = decide(parameters.policy, configuration, parameters.decision)
    if isinstance(decision, Infeasible):
        return NoProposal(Missing.DECISION, decision.explanation)
    with stage("placement"):
        placed = _place(configuration, decision, parameters, clock)
    if isinstance(placed, Unreachable):
        return NoProposal(Missing.PLAN, placed.explanation)
    with stage("planning"):
        try:
            order = dependency_order(configuration, placed.plan)
        except ValueError as error:  # a plan that the checker would reject
            return NoProposal(Missing.ORDER, str(error))
        return Proposal(
            decision=decision,
            target=placed.target,
            plan=placed.plan,
            order=order,
            estimate=makespan(placed.plan, order, parameters.durations),
            lower_bound=placed.lower_bound,
            nodes_used=placed.nodes_used,
            nodes_lower_bound=placed.nodes_lower_bound,
            fingerprint=fingerprint(configuration, placed.plan),
            sentence=sentence(decision, placed.plan),
        )


def _place(
    source: Configuration, decision: Decision, parameters: ProposalParameters, clock: Clock | None
) -> Placed | Unreachable:
    if parameters.heuristic is not None:
        quick = place_sample if parameters.heuristic == "ffd" else place_repaired
        return quick(source, decision.states, decision.placement, parameters.shared_store)
    return place(
        source,
        decision.states,
        sample=decision.placement,
        objective=parameters.objective,
        search=parameters.search,
        previous=parameters.previous,
        shared_store=parameters.shared_store,
        clock=clock,
    )
