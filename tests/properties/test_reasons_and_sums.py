"""What a decision leaves out because nobody asks, or because sums refuse it, changes no state of any vjob."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import few
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from properties.generators import configurations
from properties.joint_rules import with_rules

from rmsplugin.decision.later import Ruling
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.ruled_sums import RuledSums
from rmsplugin.packing.search import Search

SEARCH = Search(time_limit_s=3600, deterministic_limit=1)
PARAMETERS = Parameters(search=SEARCH)
LIMITS = (100.0, 100.0, 300.0, 500.0, None)


@st.composite
def timed(draw: st.DrawFn, source: Configuration) -> Configuration:
    """The configuration with time limits."""
    vjobs = tuple(replace(vjob, time_limit_s=draw(st.sampled_from(LIMITS))) for vjob in source.vjobs)
    return Configuration(source.nodes, vjobs, source.locations)


def queues(*, ruled: bool) -> st.SearchStrategy[Configuration]:
    plain = configurations(max_nodes=4, max_vjobs=6, max_vms=3)
    return (plain.flatmap(with_rules) if ruled else plain).flatmap(timed)


@pytest.mark.parametrize("ruled", [False, True], ids=["no rules", "rules"])
@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(data=st.data())
@settings(max_examples=few(60), deadline=None)
def test_a_decision_without_times_in_its_reasons_decides_the_same(
    policy: str, ruled: bool, data: st.DataObject
) -> None:
    source = data.draw(queues(ruled=ruled))
    told = decide_by_rules(policy, source, PARAMETERS)
    untold = decide_by_rules(policy, source, replace(PARAMETERS, explains=False))
    assert type(told) is type(untold)
    if isinstance(told, Decision) and isinstance(untold, Decision):
        assert told.states == untold.states
        assert told.placement == untold.placement


@given(source=queues(ruled=True), data=st.data())
@settings(max_examples=few(400), deadline=None)
def test_what_sums_refuse_has_no_place_by_any_search(source: Configuration, data: st.DataObject) -> None:
    assume(source.joint)
    chosen = data.draw(st.lists(st.sampled_from(source.vjobs), min_size=1, unique_by=lambda vjob: vjob.name))
    sums = RuledSums(source.nodes, source.joint, source.homes)
    refused = sums.refuse(vm for vjob in chosen for vm in vjob.vms)
    assume(refused)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RuledSums, "refuse", lambda self, vms: False)
        assert not Ruling(source, Budget(SEARCH)).allows(chosen)
