"""Emptying: the plan that empties one node that is little used, if that saves more energy than it costs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rmsplugin.decision.result import Decision
from rmsplugin.energy.emptying import may_pay, migrating_w, pays
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.item import Item
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared, prepare
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import propose_for
from rmsplugin.proposing.terms import Terms

#: So many nodes are looked at in one cycle. The next cycle looks again, so that few are enough.
_LOOKED_AT = 8


@dataclass(frozen=True, slots=True)
class EmptiedNode:
    """A node that is worth to be emptied, and the checked plan that does so."""

    node: str
    prepared: Prepared


def empty_one(source: Configuration, terms: Terms, parameters: ProposalParameters) -> EmptiedNode | None:
    """Empty the node with which most is saved, and of several the one with the least memory to move.

    Its VMs migrate to other nodes that have VMs already.

    Args:
        source: the present configuration.
        terms: what is saved.
        parameters: durations, the platform's abilities and the rest of what a plan depends on.

    Returns:
        None if no node can be emptied wholly, by migrations alone, so that it pays.
    """
    fit = _filled(source)
    underloaded = [name for name in fit.underloaded(terms.emptying.underload) if _may_pay(terms, name)]
    worth = {name: terms.classes[name].profit_j(terms.idle_s[name]) for name in underloaded}
    for name in sorted(worth, key=lambda name: (-worth[name], source.used[name].memory_mib))[:_LOOKED_AT]:
        for prepared in _prepared(source, fit, name, parameters):
            if _pays(prepared.proposal, name, source, terms, parameters.durations):
                return EmptiedNode(name, prepared)
    return None


def _may_pay(terms: Terms, name: str) -> bool:
    return name in terms.idle_s and may_pay(terms.emptying, terms.classes[name], terms.idle_s[name])


def _filled(source: Configuration) -> BetterFit:
    """All nodes with their VMs; those in transit stay, and all of a node with a paused VM or a saved state."""
    keeps = {at.node for at in source.locations.values() if at.node and at.state is not VMState.RUNNING}
    fit = BetterFit(source.nodes)
    for vjob in source.vjobs:
        stays = vjob.in_transit or vjob.leaves
        for vm in vjob.vms:
            at = source.locations[vm.name]
            if at.state.holds_memory and at.node is not None:
                fit.put(Item(vm, vjob.rules_of(vm)), at.node, stays=stays or at.node in keeps)
    return fit


def _prepared(source: Configuration, fit: BetterFit, node: str, parameters: ProposalParameters) -> Iterator[Prepared]:
    """The ways to empty a node: first only its own VMs move, then others make way for them."""
    for exchange in (False, True):
        moves = fit.moves_to_empty(node, exchange=exchange)
        if moves is None:
            continue
        ask = partial(_ask, _decision(source, parameters.policy, node, moves))
        found = prepare(source, replace(parameters, heuristic="ffd"), ask)
        if found.proposal is not None and not found.fault:  # after a fault it is another plan
            yield found


def _ask(decision: Decision, source: Configuration, parameters: ProposalParameters) -> Proposal | NoProposal:
    return propose_for(source, decision, parameters)


def _decision(source: Configuration, policy: str, node: str, moves: Mapping[str, str]) -> Decision:
    """That all vjobs stay in their states, some on other nodes."""
    states = {vjob.name: source.state(vjob) for vjob in source.vjobs}
    stay = {
        vm.name: source.locations[vm.name].node or ""
        for vjob in source.vjobs
        if states[vjob.name] is VJobState.RUNNING
        for vm in vjob.vms
    }
    sentence = f"{node} is emptied, so that it can be switched off"
    return Decision(policy, states, {}, {**stay, **moves}, sentence)


def _pays(proposal: Proposal | None, node: str, source: Configuration, terms: Terms, durations: Durations) -> bool:
    """Whether the plan does nothing but migrate, and is repaid."""
    assert proposal is not None
    actions = list(proposal.plan.actions())
    if any(action.kind is not ActionKind.MIGRATE for action in actions):
        return False
    moves_j = sum(_joules(action, source, terms, durations) for action in actions)
    moves_s = proposal.estimate.by_dependencies_s
    return pays(terms.emptying, terms.classes[node], terms.idle_s[node], moves_s, moves_j)


def _joules(action: Action, source: Configuration, terms: Terms, durations: Durations) -> float:
    """What a migration takes."""
    ends = [source.node_by_name[end] for end in (action.source, action.destination) if end is not None]
    watts = sum(migrating_w(terms.classes[end.name], end.capacity.cpus) for end in ends)
    return watts * durations.of(action).seconds(action.vm.demand.memory_mib)
