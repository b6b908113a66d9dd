"""Whatever the configuration, a proposal is right by a check that had no part in it, or says why there is none."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.generators import configurations

from rmsplugin.decision.policies import POLICIES
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.check import check
from rmsplugin.proposing.fingerprint import fingerprint, moved
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, NoProposal, Proposal
from rmsplugin.proposing.propose import propose

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.02)


@pytest.mark.parametrize("policy", POLICIES)
@given(source=configurations(), search=st.booleans())
@settings(max_examples=few(40), deadline=None)
def test_every_proposal_passes_the_check(policy: str, source: Configuration, search: bool) -> None:
    parameters = ProposalParameters(policy, search=SEARCH)
    found = propose(source, parameters if search else parameters.without_solver())
    if isinstance(found, Proposal):
        assert check(source, found) == []
        assert found.sentence.endswith(".") and "\n" not in found.sentence
    else:
        assert found.missing in (Missing.DECISION, Missing.PLAN) and found.explanation


@pytest.mark.parametrize("policy", ["rjsp", "mixed", "slowdown"])
@given(source=configurations())
@settings(max_examples=few(40), deadline=None)
def test_each_proposal_on_the_way_passes_the_check_and_the_last_one_is_the_answer(
    policy: str, source: Configuration
) -> None:
    """A waiting thread may take the best so far at any moment."""
    makes: list[Callable[[], Proposal | NoProposal]] = []
    found = propose(source, ProposalParameters(policy, search=SEARCH), on_better=makes.append)
    better = [make() for make in makes]
    if not isinstance(found, Proposal):
        return
    assert better, "there was none"
    costs = []
    for each in better:
        assert isinstance(each, Proposal) and check(source, each) == []
        assert each.lower_bound <= found.lower_bound
        costs.append(each.plan.cost)
    assert costs == sorted(set(costs), reverse=True)
    assert (each.plan, each.target) == (found.plan, found.target)


@given(source=configurations())
@settings(max_examples=few(40), deadline=None)
def test_a_proposal_survives_the_way_to_another_process(source: Configuration) -> None:
    found = propose(source, ProposalParameters("rjsp").without_solver())
    copied_source, copied = pickle.loads(pickle.dumps((source, found)))
    assert copied == found
    assert not isinstance(copied, Proposal) or check(copied_source, copied) == []


@given(source=configurations())
@settings(max_examples=few(40), deadline=None)
def test_a_plan_that_was_begun_is_stale(source: Configuration) -> None:
    """Each action that is carried out moves what the plan depends on: nobody applies it a second time."""
    found = propose(source, ProposalParameters("rjsp").without_solver())
    if not isinstance(found, Proposal):
        return
    now = source
    for action in found.plan.pools[0] if found.plan.pools else ():
        now = now.with_locations({action.vm.name: action.after})
        assert fingerprint(now, found.plan) != found.fingerprint
        assert any(action.vm.name in line for line in moved(source, now, found.plan))
    assert fingerprint(source, found.plan) == found.fingerprint
    assert set(found.decision.states.values()) <= set(VJobState)
