"""Deciding: one cycle of the engine on the simulated cluster: decide, place, order and check, all by the same code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Barred, Decision, Infeasible
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.prepared import Prepared, prepare
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.propose import Decides, propose, propose_for


class Deciding:
    """Decides cycle after cycle."""

    def __init__(self, parameters: ProposalParameters, decides: Decides) -> None:
        self._parameters, self._decides = parameters, decides
        self._previous: dict[str, str] = {}
        self.decisions = 0
        self.faults: Counter[str] = Counter()
        self.barred: Mapping[str, Barred] | None = None  # by the last decision; None: it may have changed something

    def find(self, source: Configuration) -> Prepared | None:
        """The decision and its plan; None if nothing is to be done.

        The planner is asked only where a state changes, a node is overloaded or a rule is broken: else no plan is
        cheaper than none. On fewer nodes there may always be room.

        Raises:
            OperationFailedError: a policy of a site says that nothing can be decided; it would do so for ever.
        """
        self.decisions += 1
        self.barred = None
        decision = self._decides(source, self._parameters)
        if isinstance(decision, Infeasible) and self._parameters.policy not in POLICIES:
            raise OperationFailedError(decision.explanation)
        cheapest = self._parameters.objective == "cost"
        if cheapest and isinstance(decision, Decision) and not _changes(source, decision):
            self.barred = decision.barred
            return None
        if isinstance(decision, Decision):
            source, decision = _without_waiting(source, decision)
        prepared = prepare(
            source,
            replace(self._parameters, previous=self._previous or None),
            lambda configuration, parameters: self._ask(configuration, parameters, decision),
        )
        if prepared.fault:
            self.faults[prepared.fault] += 1
        if prepared.proposal is None:
            return None
        target = prepared.proposal.target
        self._previous = {name: at.node for name, at in target.items() if at.state.holds_memory and at.node}
        return prepared if prepared.steps else None

    def _ask(
        self, source: Configuration, parameters: ProposalParameters, decision: Decision | Infeasible
    ) -> Proposal | NoProposal:
        if parameters.policy == self._parameters.policy and parameters.heuristic == self._parameters.heuristic:
            return propose_for(source, decision, parameters)
        return propose(source, parameters, decides=self._decides)


def _without_waiting(source: Configuration, decision: Decision) -> tuple[Configuration, Decision]:
    """The same without the vjobs that go on waiting: the plan is the same without them, and they may have most VMs."""
    waiting, states = VJobState.WAITING, decision.states
    acts = tuple(v for v in source.vjobs if states[v.name] is not waiting or source.state(v) is not waiting)
    if len(acts) == len(source.vjobs):
        return source, decision
    locations = {vm.name: source.locations[vm.name] for vjob in acts for vm in vjob.vms}
    left = {vjob.name: states[vjob.name] for vjob in acts}
    return Configuration(source.nodes, acts, locations, checked=True), replace(decision, states=left)


def _changes(source: Configuration, decision: Decision) -> bool:
    states = decision.states
    if any(states[vjob.name] is not source.state(vjob) for vjob in source.vjobs) or source.overloaded():
        return True
    held = set(source.homes.items())
    return any(rule.broken(held, held) for rule in source.joint)
