"""Answering: what a process is asked: to propose about vjobs, to empty a node that is little used, or only to decide.

The last one is for commands, which have a policy of the site decide elsewhere, and do the rest themselves.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from rmsplugin.decision.own_policies import find
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.errors import OwnPolicyError
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.budget import Clock
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal
from rmsplugin.proposing.propose import Better, Stage, decided, propose


def answer(
    configuration: Configuration,
    parameters: ProposalParameters,
    stage: Stage = nullcontext,
    clock: Clock | None = None,
    on_better: Better | None = None,
) -> Proposal | NoProposal:
    """Propose one context switch; arguments and answer as of ``propose``.

    With ``parameters.terms`` it empties one node, wholly and by migrations alone, or there is none.
    """
    if parameters.terms is None:
        return propose(configuration, parameters, stage, clock, on_better)
    with stage("decision"):
        found = empty_one(configuration, parameters.terms, replace(parameters, terms=None))
    if found is None or found.prepared.proposal is None:
        return NoProposal(Missing.PLAN, "no node can be emptied so that it pays")
    return found.prepared.proposal


def decide(configuration: Configuration, parameters: ProposalParameters, *_: object) -> Decision | Infeasible:
    """The decision of a policy of the site. About no vjobs there is none to make: the policy is loaded, and not asked.

    Args:
        configuration: nodes, vjobs in the order of the queue (head first), and the location of each VM.
        parameters: the policy, and its tunables.
    """
    if configuration.vjobs:
        return decided(configuration, parameters)
    try:
        find(parameters.policy)
    except OwnPolicyError as error:
        return Infeasible(str(error), errs=True)
    return Decision(parameters.policy, {}, {}, {}, "there are no vjobs")
