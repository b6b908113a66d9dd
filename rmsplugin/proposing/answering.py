"""Answering: what a proposing process is asked: to decide about vjobs, or to empty a node that is little used."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.budget import Clock
from rmsplugin.proposing.emptying import empty_one
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal
from rmsplugin.proposing.propose import Better, Stage, propose


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
