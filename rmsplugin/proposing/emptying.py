"""Emptying: the plan that empties one node that is little used, if that saves more energy than it costs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rmsplugin.decision.result import Decision
from rmsplugin.energy.emptying import may_pay, migrating_w, pays
from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VMState, held
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit, obeys
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
    """The ways to empty a node that rules allow: only its own VMs move, or others make way for them."""
    for moves in _ways(source, fit, node):
        if not _obeys(source, moves):
            continue
        ask = partial(_ask, _decision(source, parameters.policy, node, moves))
        found = prepare(source, replace(parameters, heuristic="ffd"), ask)
        if found.proposal is not None and not found.fault:  # after a fault it is another plan
            yield found


def _ways(source: Configuration, fit: BetterFit, node: str) -> Iterator[Mapping[str, str]]:
    """By VM, the nodes to which VMs move: as if there were no rules about VMs beside each other, and by these."""
    ways = (
        fit.moves_to_empty(node, exchange=False),
        _moves_by_rules(source, node),
        fit.moves_to_empty(node, exchange=True),
    )
    yield from (moves for moves in ways if moves is not None)


def _moves_by_rules(source: Configuration, node: str) -> Mapping[str, str] | None:
    """The node's VMs go, one after the other, where there are VMs and their rules allow it; None: one finds no node."""
    if not source.joint:
        return None
    here, hosting = list[Item](), set(source.homes.values()) - {node}
    nodes = [each for each in source.nodes if each.name in hosting]
    fit = RuledFit(nodes, source.concerning, source.homes, source.vm_by_name.values())
    for vjob in source.vjobs:
        for vm in vjob.vms:
            at = source.locations[vm.name]
            if at.node != node and vm.name in source.homes:
                fit.take(replace(vm, demand=held(vm, at.state)), source.homes[vm.name])
            elif at.node == node:
                if vjob.in_transit or vjob.leaves or at.state is not VMState.RUNNING:
                    return None
                here.append(Item(vm, vjob.rules_of(vm)))
    found = fit.place(here, {})
    return None if isinstance(found, Obstacle) else found


def _obeys(source: Configuration, moves: Mapping[str, str]) -> bool:
    return not source.joint or obeys(source.concerning, source.homes, {**source.homes, **moves})


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
