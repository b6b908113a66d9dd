"""What a decision leaves out because nobody asks, or because sums refuse it, changes no state of any vjob."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from examples import few
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from properties.generators import configurations
from properties.joint_rules import joint_rule, with_rules

from rmsplugin.decision.later import Ruling
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import Resources
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
@settings(max_examples=few(400), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_what_sums_refuse_has_no_place_by_any_search(source: Configuration, data: st.DataObject) -> None:
    assume(source.joint)
    chosen = data.draw(st.lists(st.sampled_from(source.vjobs), min_size=1, unique_by=lambda vjob: vjob.name))
    sums = RuledSums(source.nodes, source.joint, source.homes)
    refused = sums.refuse(vjob.vms for vjob in chosen)
    assume(refused)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RuledSums, "refuse", lambda self, vms: False)
        assert not Ruling(source, Budget(SEARCH)).passing.allow(chosen)


def places(names: list[str], homes: Mapping[str, str], cluster: list[Node]) -> Iterator[dict[str, str]]:
    """All places of VMs of a CPU: each where it is, whatever node that is, or on one that is up, with room for all."""
    up = [node.name for node in cluster if node.state is NodeState.UP]
    choices = [dict.fromkeys([*([homes[name]] if name in homes else []), *up]) for name in names]
    capacity = {node.name: node.capacity.cpus for node in cluster}
    for nodes in itertools.product(*choices):
        hosts = dict(zip(names, nodes, strict=True))
        there, come = Counter(nodes), {node for name, node in hosts.items() if homes.get(name) != node}
        if all(there[node] <= capacity[node] for node in come):
            yield hosts


@given(data=st.data())
@settings(max_examples=few(600), deadline=None)
def test_sums_refuse_no_vms_of_which_some_may_stay_where_they_break_rules(data: st.DataObject) -> None:
    states = data.draw(st.lists(st.sampled_from([NodeState.UP] * 6 + [NodeState.DRAINING]), min_size=2, max_size=3))
    cpus = data.draw(st.integers(1, 3))
    cluster = [Node(f"n{i}", Resources(cpus, 4), state) for i, state in enumerate(states)]
    names = [f"v{i}" for i in range(data.draw(st.integers(2, 6)))]
    node = st.sampled_from([each.name for each in cluster])
    homes = data.draw(st.dictionaries(st.sampled_from(names), node))
    rule = data.draw(joint_rule(names, [each.name for each in cluster]))
    if not RuledSums(cluster, [rule], homes).refuse([VM(name, Resources(1, 0))] for name in names):
        return
    for hosts in places(names, homes, cluster):
        held = set(hosts.items())
        assert rule.broken(held, held - homes.items()) is not None, hosts
