"""Prepared: a proposal that the checker accepts, as the steps that carry it out; or the reason why there is none.

A bad plan harms nobody, but no plan at all would keep everything from starting. So if none is found, or the checker
rejects it, heuristics alone are asked once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rmsplugin.model.action import ActionKind
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import NoProposal, Proposal
from rmsplugin.proposing.quiet import disturbed, explained, kept_still, quietly
from rmsplugin.proposing.steps import PlannedStep, UnsuitableError, steps_of

#: Makes proposals that nobody has checked.
Ask = Callable[[Configuration, ProposalParameters], Proposal | NoProposal]


@dataclass(frozen=True)
class Prepared:
    """The result: the steps to be done, with their proposal.

    Attributes:
        parameters: the parameters of the proposal.
        proposal: None if there is none.
        steps: of the proposal; none if there is nothing to do.
        fault: the reason why there is no proposal, or why another one was rejected; empty if all went well.
    """

    parameters: ProposalParameters
    proposal: Proposal | None = None
    steps: Sequence[PlannedStep] = ()
    fault: str = ""


def prepare(source: Configuration, parameters: ProposalParameters, ask: Ask) -> Prepared:
    """Ask for a proposal, and check it; if it is bad, ask for one without a solver, then for one without pauses.

    In quiet hours no vjob that can stay is acted on: if a proposal does so all the same, one in which no vjob starts
    takes its place.
    """
    quiet = parameters.quiet
    if quiet is None:
        return _prepare(source, parameters, ask)
    real_mib = {} if parameters.shortage is None else parameters.shortage.facts.real_mib
    still = kept_still(source, real_mib)
    found = _prepare(quietly(source, quiet, still), parameters, ask)
    if found.proposal is not None and disturbed(source, found.proposal.plan, still):
        found = _prepare(quietly(source, replace(quiet, starts=False), still), parameters, ask)
    if found.proposal is None:
        return found
    if disturbed(source, found.proposal.plan, still):
        return Prepared(found.parameters, fault="no plan leaves those alone that quiet hours keep where they are")
    decision = explained(source, found.proposal.decision, quiet, still)
    return replace(found, proposal=replace(found.proposal, decision=decision))


def beyond(capabilities: Capabilities, plan: Plan) -> list[str]:
    """The demands of a plan that are beyond the platform's abilities, a sentence for each kind."""
    cannot = {kind for kind, can in _needed(capabilities).items() if not can}
    found = {action.kind for action in plan.actions()} & cannot
    return [f"the platform has no {kind}" for kind in sorted(found)]


def _needed(capabilities: Capabilities) -> dict[ActionKind, bool]:
    return {
        ActionKind.MIGRATE: capabilities.migrate,
        ActionKind.SUSPEND: capabilities.suspend,
        ActionKind.PAUSE: capabilities.pause,
    }


def _prepare(source: Configuration, parameters: ProposalParameters, ask: Ask) -> Prepared:
    found = _prepared(source, parameters, ask)
    if found.proposal is None and found.fault:
        found = replace(_prepared(source, parameters.without_solver(), ask), fault=found.fault)
    if found.proposal is None and found.fault and parameters.decision.pause_limit_s > 0:
        found = replace(_prepared(source, parameters.without_solver().without_pauses(), ask), fault=found.fault)
    return found


def _prepared(source: Configuration, parameters: ProposalParameters, ask: Ask) -> Prepared:
    proposal = ask(source, parameters)
    if isinstance(proposal, NoProposal):
        return Prepared(parameters, fault=proposal.sentence)
    source = proposal.decided_about(source)
    found = check(source, proposal, cpu_in_plan=parameters.cpu_in_plan)
    faults = [*found, *beyond(parameters.capabilities, proposal.plan)]
    if faults:
        return Prepared(parameters, fault=f"a plan was rejected: {'; '.join(faults)}")
    try:
        steps = steps_of(source, proposal)
    except UnsuitableError as error:
        return Prepared(parameters, fault=f"a plan cannot be carried out: {error}")
    return Prepared(parameters, proposal, steps)
