"""Decisions with pauses on random small clusters: nothing new once they are applied, and nobody is worse off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from properties.plans import DECIDING, SEARCH, paused_instance

from rmsplugin.decision.pausing import as_asleep, decide_with_pauses
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose_for

PAUSING = replace(DECIDING, pause_limit_s=math.inf)
SEEDS = range(5000, 5120)


@pytest.mark.parametrize("policy", ["rjsp", "mixed", "slowdown"])
def test_with_a_decision_applied_the_next_one_changes_nothing(policy: str) -> None:
    for seed in SEEDS:
        source, _, shared, _ = paused_instance(seed)
        decision = decide_with_pauses(policy, source, PAUSING)
        if not isinstance(decision, Decision) or ReasonCode.LOST in {each.code for each in decision.reasons.values()}:
            continue
        parameters = ProposalParameters(policy, decision=PAUSING, search=SEARCH, shared_store=shared)
        proposal = propose_for(source, decision, parameters)
        assert isinstance(proposal, Proposal), seed
        again = decide_with_pauses(policy, source.with_locations(proposal.target), PAUSING)
        assert isinstance(again, Decision), seed
        assert again.states == decision.states, seed


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "fcfs"])
def test_policies_that_weigh_no_switch_run_the_same_vjobs_whether_others_are_paused_or_saved(policy: str) -> None:
    for seed in SEEDS:
        source, *_ = paused_instance(seed)
        with_pauses = decide_with_pauses(policy, source, PAUSING)
        without = decide(policy, as_asleep(source), DECIDING)
        if isinstance(with_pauses, Decision):
            assert isinstance(without, Decision)
            asleep = {VJobState.PAUSED: VJobState.SLEEPING}
            assert {name: asleep.get(state, state) for name, state in with_pauses.states.items()} == without.states
