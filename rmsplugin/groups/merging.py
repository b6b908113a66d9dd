"""Merging: the proposals of all parts as one proposal for the whole, which is checked and carried out as any other.

Parts share no room: their plans are carried out side by side, the first pools of all together, and so on. The bounds on
the cost and on the number of nodes hold for vjobs that stay in their groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import zip_longest

from rmsplugin.decision.outgrown import MemoryFacts, Remedy, Shortage
from rmsplugin.decision.reasons import sentence as sentence_of_states
from rmsplugin.decision.reservation import Reservations
from rmsplugin.decision.result import Decision, Reason
from rmsplugin.groups.assignment import Assignment
from rmsplugin.groups.choosing import Assigned
from rmsplugin.groups.splitting import Part
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal, sentence


def parameters_of(part: Part, parameters: ProposalParameters, turns: int = 1) -> ProposalParameters:
    """The parameters of a part's proposal.

    Args:
        part: the part.
        parameters: those of the whole.
        turns: how many parts are searched one after the other in the time of one: each search has so much less.
    """
    vms = part.configuration.locations
    previous, shortage = parameters.previous, parameters.shortage
    search, decision = parameters.search, parameters.decision
    if turns > 1:
        search = search.part(1 / turns)
        decision = replace(decision, search=decision.search.part(1 / turns), net_s=decision.net_s / turns)
    return replace(
        parameters,
        search=search,
        decision=decision,
        previous=None if previous is None else {vm: node for vm, node in previous.items() if vm in vms} or None,
        shortage=None if shortage is None else _shortage_of(part.configuration.node_by_name, shortage),
    )


def _shortage_of(nodes: Collection[str], shortage: Shortage) -> Shortage:
    """The question about the nodes of a part."""
    real_mib = {name: mib for name, mib in shortage.facts.real_mib.items() if name in nodes}
    held = tuple(each for each in shortage.before.held if each.node in nodes)
    return replace(shortage, facts=MemoryFacts(real_mib), before=replace(shortage.before, held=held))


def merge(
    source: Configuration,
    assignment: Assignment,
    found: Sequence[tuple[Part, Proposal]],
    parameters: ProposalParameters,
) -> Proposal | NoProposal:
    """Merge the proposals of all parts that have vjobs.

    Args:
        source: the whole configuration, with all vjobs of the parts.
        assignment: the group of each vjob.
        found: the parts with their proposals, in the order of the parts.
        parameters: those of the whole.
    """
    proposals = [proposal for _, proposal in found]
    remedy = _remedy(proposals)
    decided = source if remedy is None else remedy.applied_to(source)
    decision = _decision(decided, assignment, [proposal.decision for proposal in proposals])
    pools = zip_longest(*(proposal.plan.pools for proposal in proposals), fillvalue=())
    plan = Plan(
        tuple(tuple(action for pool in each for action in pool) for each in pools),
        tuple(node for proposal in proposals for node in proposal.plan.nodes),
    )
    try:
        order = dependency_order(decided, plan)
    except ValueError as error:
        return NoProposal(Missing.ORDER, str(error))
    return Proposal(
        decision=decision,
        target={vm: at for proposal in proposals for vm, at in proposal.target.items()},
        plan=plan,
        order=order,
        estimate=makespan(plan, order, parameters.durations),
        lower_bound=sum(proposal.lower_bound for proposal in proposals),
        nodes_used=sum(proposal.nodes_used for proposal in proposals),
        nodes_lower_bound=sum(proposal.nodes_lower_bound for proposal in proposals),
        fingerprint=fingerprint(decided, plan),
        sentence=sentence(decision, plan),
        fallback="; ".join(
            f"group {'+'.join(part.groups)}: {proposal.fallback}" for part, proposal in found if proposal.fallback
        ),
        remedy=remedy,
    )


def _remedy(proposals: Sequence[Proposal]) -> Remedy | None:
    remedies = [proposal.remedy for proposal in proposals if proposal.remedy is not None]
    if not remedies:
        return None
    held = tuple(each for remedy in remedies for each in remedy.reservations.held)
    return Remedy(
        Reservations(held, max(remedy.reservations.full_until_s for remedy in remedies)),
        tuple(note for remedy in remedies for note in remedy.notes),
        frozenset[str]().union(*(remedy.waiting for remedy in remedies)),
    )


def _decision(source: Configuration, assignment: Assignment, decisions: Sequence[Decision]) -> Decision:
    found: dict[str, VJobState] = {}
    reasons: dict[str, Reason] = {}
    for decision in decisions:
        found |= decision.states
        reasons |= decision.reasons
    states = {vjob.name: found[vjob.name] for vjob in source.vjobs}
    running = VJobState.RUNNING
    alike: dict[tuple[int, int], Reason] = {}  # by identity: thousands wait for one reason in one group
    told: dict[str, Reason] = {}
    for name, state in states.items():
        reason = reasons[name]
        if state is not running:
            assigned = assignment[name]
            pair = (id(reason), id(assigned))
            known = alike.get(pair)
            reason = alike[pair] = _told(reason, assigned) if known is None else known
        told[name] = reason
    return Decision(
        policy=decisions[0].policy,
        states=states,
        reasons=told,
        placement={vm: node for decision in decisions for vm, node in decision.placement.items()},
        sentence=sentence_of_states(source, states, reasons),
        sample_first=any(decision.sample_first for decision in decisions),
        barred={name: barred for decision in decisions for name, barred in decision.barred.items()},
    )


def _told(reason: Reason, assigned: Assigned) -> Reason:
    """The reason of one that does not run names its group, if it could have been in another one."""
    if assigned.note:
        return Reason(reason.code, f"{reason.sentence}; {assigned.note}", reason.numbers)
    if not assigned.chosen:
        return reason
    return Reason(reason.code, f"in group {assigned.group}: {reason.sentence}", reason.numbers)
