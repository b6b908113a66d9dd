"""Idle off: a plan after which nodes that have nothing are switched off. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from rmsplugin.decision.result import Decision
from rmsplugin.energy.emptying import Emptying, expected_rest_s, idle_after_s
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState
from rmsplugin.model.node_action import NodeAction, NodeActionKind
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.fingerprint import fingerprint
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal, sentence
from rmsplugin.proposing.terms import Terms


def saving(
    source: Configuration, proposal: Proposal, energy: EnergyParameters, parameters: ProposalParameters
) -> Proposal:
    """The proposal, and what saves energy besides.

    If it does nothing, a node that is little used is emptied where that pays. Nodes that have nothing in the end are
    switched off, but for the first ones, which are the reserve. Nothing is known of how long they have had nothing:
    they are taken to stay so for longer than their threshold.

    Args:
        source: the configuration that the proposal begins with.
        proposal: what is done otherwise.
        energy: the nodes' watts.
        parameters: of the proposal.
    """
    emptying = energy.emptying
    if emptying is not None and not any(proposal.plan.actions()):
        proposal = _emptied(source, proposal, energy, emptying, parameters)
    off = [NodeAction(NodeActionKind.POWER_OFF, name) for name in _idle(source, proposal, energy)]
    if not off:
        return proposal
    plan = replace(proposal.plan, nodes=(*proposal.plan.nodes, *off))
    order = dependency_order(source, plan)
    return replace(
        proposal,
        plan=plan,
        order=order,
        estimate=makespan(plan, order, parameters.durations),
        fingerprint=fingerprint(source, plan),
        sentence=sentence(proposal.decision, plan),
    )


def _idle(source: Configuration, proposal: Proposal, energy: EnergyParameters) -> Iterable[str]:
    """The nodes that have nothing in the end, without the reserve, where switching off saves."""
    used = {at.node for at in {**source.locations, **proposal.target}.values()}
    idle = [node.name for node in source.nodes if node.state is NodeState.UP and node.name not in used]
    return [name for name in idle[energy.reserve :] if math.isfinite(energy.classes[name].threshold_s)]


def _emptied(
    source: Configuration,
    proposal: Proposal,
    energy: EnergyParameters,
    emptying: Emptying,
    parameters: ProposalParameters,
) -> Proposal:
    """The plan that empties a node; the same proposal if none is to be emptied."""
    rests_s: dict[str, list[float]] = {}
    for vjob in source.vjobs:
        rest_s = expected_rest_s(vjob.ran_s, vjob.time_limit_s)
        for node in {source.locations[vm.name].node for vm in vjob.vms} - {None}:
            rests_s.setdefault(str(node), []).append(rest_s)
    idle_s = {name: idle_after_s(rests, None, 0.0) for name, rests in rests_s.items()}
    found = empty_one(source, Terms(emptying, energy.classes, idle_s), parameters)
    if found is None or found.prepared.proposal is None:
        return proposal
    own = found.prepared.proposal
    return replace(own, decision=_told(proposal.decision, own.decision), remedy=proposal.remedy)


def _told(decision: Decision, emptied: Decision) -> Decision:
    """The decision with its reasons, and the sentence of the one that empties a node."""
    return replace(decision, placement=emptied.placement, sentence=emptied.sentence)
