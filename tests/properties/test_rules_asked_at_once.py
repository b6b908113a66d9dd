"""Rules that are asked as each vjob is chosen: all that run have their places, and what is kept changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from examples import few
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from properties.generators import configurations
from properties.joint_rules import holds, with_rules
from properties.test_reasons_and_sums import timed

from rmsplugin.decision import later, ruled_room
from rmsplugin.decision.later import Places, Ruling
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.decision.ruled_placing import Attempt
from rmsplugin.decision.ruled_room import RuledRoom
from rmsplugin.decision.ruled_trial import Trial
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob, running_on
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search

PARAMETERS = Parameters(search=Search(time_limit_s=3600, deterministic_limit=1))
POLICIES = ["fcfs", "easy", "conservative"]


def queues() -> st.SearchStrategy[Configuration]:
    plain = configurations(max_nodes=4, max_vjobs=7, max_vms=3, all_up=True)
    return plain.flatmap(with_rules).flatmap(timed)


@st.composite
def in_pieces(draw: st.DrawFn) -> Configuration:
    """Nodes of four CPUs with small vjobs here and there, and two large ones wait: First Fit has many elsewhere."""
    cluster = tuple(Node(f"n{i}", Resources(4, 4096)) for i in range(1, 5))
    free, vjobs, locations = {node.name: 4 for node in cluster}, [], {}
    for number in range(draw(st.integers(3, 6))):
        cpus = draw(st.integers(1, 2))
        node = draw(st.sampled_from([name for name, left in free.items() if left >= cpus]))
        free[node] -= cpus
        vjobs.append(VJob(f"v{number}", (VM(f"v{number}-0", Resources(cpus, 0)),)))
        locations[f"v{number}-0"] = running_on(node)
    for number in (6, 7):
        vjobs.append(VJob(f"v{number}", (VM(f"v{number}-0", Resources(draw(st.integers(3, 4)), 0)),)))
        locations[f"v{number}-0"] = WAITING
    return Configuration(cluster, tuple(vjobs), locations)


def decide(policy: str, source: Configuration, parameters: Parameters = PARAMETERS) -> Decision:
    """Decide as if the vjobs were too many for a solver."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ruled_room, "MOST_PAIRS", 0)
        found = decide_by_rules(policy, source, parameters)
    assume(isinstance(found, Decision))
    assert isinstance(found, Decision)
    return found


def has_room(source: Configuration, placement: Mapping[str, str]) -> bool:
    used = {node.name: NOTHING for node in source.nodes}
    for vm, node in placement.items():
        used[node] += source.vm_by_name[vm].demand
    return all(node.capacity.holds(used[node.name]) for node in source.nodes)


@pytest.mark.parametrize("policy", POLICIES)
@given(source=queues())
@settings(max_examples=few(300), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_all_that_run_have_places_by_capacity_and_all_rules(policy: str, source: Configuration) -> None:
    held = set(source.homes.items())
    assume(all(holds(rule, held, source.homes) for rule in source.joint) and not source.overloaded())
    found = decide(policy, source)
    runs = {vjob.name for vjob in source.vjobs if source.state(vjob) is VJobState.RUNNING and vjob.target is None}
    assert all(found.states[name] is VJobState.RUNNING for name in runs)
    assert has_room(source, found.placement)
    assert all(holds(rule, set(found.placement.items()), source.homes) for rule in source.joint)


@pytest.mark.parametrize("policy", POLICIES)
@given(source=in_pieces().flatmap(with_rules).flatmap(timed))
@settings(max_examples=few(300), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_decision_that_asks_rules_at_once_needs_no_other_places(policy: str, source: Configuration) -> None:
    """The trial after it would mend it, and nobody would see."""
    asked, init = list[str](), RuledRoom.__init__
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RuledRoom, "__init__", lambda *about: asked.append("rules") or init(*about))
        patched.setattr(Trial, "_by_ways", _mends(asked))
        decide(policy, source)
    assert asked[:2] != ["rules", "places"]


def _mends(asked: list[str]) -> Callable[[Trial, Mapping[str, str]], Attempt]:
    once = Trial._by_ways

    def by_ways(trial: Trial, sample: Mapping[str, str]) -> Attempt:
        asked.append("places")
        return once(trial, sample)

    return by_ways


@pytest.mark.parametrize("policy", POLICIES)
@given(source=queues())
@settings(max_examples=few(200), deadline=None)
def test_a_decision_without_times_in_its_reasons_decides_the_same(policy: str, source: Configuration) -> None:
    told, untold = (decide(policy, source, Parameters(search=PARAMETERS.search, explains=each)) for each in (1, 0))
    assert (told.states, told.placement) == (untold.states, untold.placement)


@given(source=queues(), data=st.data())
@settings(max_examples=few(400), deadline=None)
def test_a_question_about_many_is_not_asked_twice_where_the_answer_is_the_same(
    source: Configuration, data: st.DataObject
) -> None:
    """One after the other, vjobs come and go in any order; the others are placed anew where they fail."""
    assume(source.joint)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(later, "_MOST_PAIRS", 0)
        once, twice = Places(Ruling(source)), _AskedTwice(Ruling(source))
        some = st.lists(st.sampled_from(source.vjobs), min_size=1, unique_by=lambda vjob: vjob.name)
        for chosen in data.draw(st.lists(some, min_size=1, max_size=6)):
            assert once.allow(chosen) is twice.allow(chosen)


class _AskedTwice(Places):
    """Places anew whatever finds no place, as if others might have other places."""

    @property
    def _has_gaps(self) -> bool:
        return True

    @_has_gaps.setter
    def _has_gaps(self, value: bool) -> None:
        """It never knows better."""
