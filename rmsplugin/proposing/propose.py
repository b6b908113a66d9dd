"""Propose: decide, place, plan, order and estimate; one pure call for the command line, the simulator and the daemon.

The caller checks its answer by ``rmsplugin.proposing.check``, which shares nothing with the planner.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial

from rmsplugin.decision.outgrown import Remedy, outgrown
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.budget import Clock
from rmsplugin.packing.net import Net
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.planning.order.with_cpus import plan_with_cpus
from rmsplugin.planning.pausing import reduced
from rmsplugin.planning.plan import Unreachable
from rmsplugin.planning.target.placement import Placed, place, place_better_fit, place_repaired, place_sample
from rmsplugin.planning.target.replacement import Replacement, replacement
from rmsplugin.planning.target.ruled import place_by_rules
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal, sentence

#: Entered for each stage (``decision``, ``placement``, ``planning``) while it lasts: a clock, a display. A clock is the
#: caller's, for there is none here.
Stage = Callable[[str], AbstractContextManager[object]]

#: Called with each better plan while the search goes on, as a function that makes the proposal of it.
Better = Callable[[Callable[[], Proposal | NoProposal]], None]

#: Decides which vjobs run; ``decided`` is one.
Decides = Callable[[Configuration, ProposalParameters], Decision | Infeasible]

#: The part of the limits on the placement that an integer program for rules about VMs beside each other may use.
_RULES_SHARE = 0.3


def decided(configuration: Configuration, parameters: ProposalParameters) -> Decision | Infeasible:
    """The decision; it says so if the clock has ended its searches, for another call may decide otherwise then."""
    net = Net(parameters.decision.net_s)
    found = decide_by_rules(parameters.policy, configuration, parameters.decision.within(net))
    if not net.has_struck:
        return found
    words = (
        f"the decision's searches were ended by the clock after {net.used_s:.1f} s, before their work was done: this "
        "machine is slow, or busy with others"
    )
    if isinstance(found, Infeasible):
        return replace(found, explanation=f"{found.explanation}; {words}")
    return replace(found, sentence=f"{found.sentence}; {words}", cut_short=words)


def propose(
    configuration: Configuration,
    parameters: ProposalParameters,
    stage: Stage = nullcontext,
    clock: Clock | None = None,
    on_better: Better | None = None,
    decides: Decides = decided,
) -> Proposal | NoProposal:
    """Propose one context switch.

    Args:
        configuration: nodes, vjobs in the order of the queue (head first), and the location of each VM.
        parameters: policy, objective, limits, durations.
        stage: entered for each stage while it lasts.
        clock: monotonic seconds, by which the limit on the placement is a deadline; None: only the time of solvers
            is measured, and all else estimated.
        on_better: called with each better plan while the search goes on.
        decides: makes the decision.

    Returns:
        A proposal that nobody has checked yet; or the reason why there is none.

    Raises:
        ValueError: there is no such policy.
    """
    with stage("decision"):
        remedy = None if parameters.shortage is None else outgrown(configuration, parameters.shortage)
        configuration = configuration if remedy is None else remedy.applied_to(configuration)
        decision = decides(configuration, parameters)
    return propose_for(configuration, decision, parameters, stage, clock, on_better, remedy)


def propose_for(
    configuration: Configuration,
    decision: Decision | Infeasible,
    parameters: ProposalParameters,
    stage: Stage = nullcontext,
    clock: Clock | None = None,
    on_better: Better | None = None,
    remedy: Remedy | None = None,
) -> Proposal | NoProposal:
    """Propose for a decision that is made; arguments and answer as of ``propose``. ``remedy``: is applied already."""
    if isinstance(decision, Infeasible):
        return NoProposal(Missing.DECISION, decision.explanation)
    better = _better(configuration, decision, parameters, on_better, remedy)
    with stage("placement"):
        placed = _place(configuration, decision, parameters, clock, better)
    if isinstance(placed, Unreachable):
        return NoProposal(Missing.PLAN, placed.explanation)
    with stage("planning"):
        return _proposal(configuration, decision, placed, parameters, remedy)


def _better(
    configuration: Configuration,
    decision: Decision,
    parameters: ProposalParameters,
    on_better: Better | None,
    remedy: Remedy | None,
) -> Callable[[Placed], None] | None:
    if on_better is None:
        return None
    return lambda placed: on_better(lambda: _proposal(configuration, decision, placed, parameters, remedy))


def _proposal(
    configuration: Configuration,
    decision: Decision,
    placed: Placed,
    parameters: ProposalParameters,
    remedy: Remedy | None,
) -> Proposal | NoProposal:
    try:
        order = dependency_order(configuration, placed.plan, cpus=parameters.cpu_in_plan)
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
        fallback=decision.cut_short,
        remedy=remedy,
    )


def _place(
    source: Configuration,
    decision: Decision,
    parameters: ProposalParameters,
    clock: Clock | None,
    on_better: Callable[[Placed], None] | None,
) -> Placed | Unreachable:
    without = reduced(source, decision.states)
    if without is None:
        return _place_without_pauses(source, decision, parameters, clock, on_better)

    def expanded(placed: Placed) -> Placed | Unreachable:
        plan = without.plan(placed.plan)
        return (
            plan if isinstance(plan, Unreachable) else replace(placed, target=without.target(placed.target), plan=plan)
        )

    def better(placed: Placed) -> None:
        found = expanded(placed)
        if on_better is not None and isinstance(found, Placed):
            on_better(found)

    smaller = replace(decision, states=without.states)
    placed = _place_without_pauses(without.source, smaller, parameters, clock, better if on_better else None)
    return placed if isinstance(placed, Unreachable) else expanded(placed)


def _place_without_pauses(
    source: Configuration,
    decision: Decision,
    parameters: ProposalParameters,
    clock: Clock | None,
    on_better: Callable[[Placed], None] | None,
) -> Placed | Unreachable:
    if not parameters.cpu_in_plan:
        return _place_by_memory(source, decision, parameters, clock, on_better)

    def counted(placed: Placed | Unreachable) -> Placed | Unreachable:
        if isinstance(placed, Unreachable):
            return placed
        plan = plan_with_cpus(source, placed.target, placed.plan)
        return plan if isinstance(plan, Unreachable) else replace(placed, plan=plan)

    def better(placed: Placed) -> None:
        found = counted(placed)
        if on_better is not None and isinstance(found, Placed):
            on_better(found)

    return counted(_place_by_memory(source, decision, parameters, clock, better if on_better else None))


def _place_by_memory(
    source: Configuration,
    decision: Decision,
    parameters: ProposalParameters,
    clock: Clock | None,
    on_better: Callable[[Placed], None] | None,
) -> Placed | Unreachable:
    """Place as if CPUs counted in the end only."""
    if not source.joint:
        return _place_anywhere(source, decision, parameters, clock, on_better)
    search = None if parameters.heuristic is not None else parameters.search.part(_RULES_SHARE)
    rest = replace(parameters, search=parameters.search.part(1 - _RULES_SHARE))
    states, sample, shared = decision.states, decision.placement, parameters.shared_store
    stated = cache(partial(replacement, source, states, sample, shared))
    relaxed = _place_anywhere(source, decision, rest, clock, None, stated)  # it may break rules
    return place_by_rules(source, states, sample, relaxed, parameters.objective, search, shared, stated)


def _place_anywhere(
    source: Configuration,
    decision: Decision,
    parameters: ProposalParameters,
    clock: Clock | None,
    on_better: Callable[[Placed], None] | None,
    stated: Callable[[], Replacement] | None = None,
) -> Placed | Unreachable:
    """Place as if VMs might be beside each other in any way."""
    states, sample, shared = decision.states, decision.placement, parameters.shared_store
    if parameters.heuristic == "ffd":
        return place_sample(source, states, sample, shared)
    if parameters.heuristic == "better-fit":
        return place_better_fit(source, states, sample, shared)
    if parameters.heuristic == "repair":
        return place_repaired(source, states, sample, shared, decision.sample_first)
    return place(
        source,
        states,
        sample=sample,
        objective=parameters.objective,
        search=parameters.search,
        previous=parameters.previous,
        shared_store=shared,
        clock=clock,
        on_better=on_better,
        sample_first=decision.sample_first,
        stated=stated,
    )
