"""Rules are asked as each vjob is chosen, where those that run obey them: one decision is enough, and none is worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision import ruled, ruled_room
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.decision.ruled_trial import Trial
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Root, Spread
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ruled_fit import obeys

POLICIES = ("fcfs", "easy", "conservative")


def with_rules(queue: Queue, *rules: Joint) -> Configuration:
    source = queue.configuration
    vjobs = given_rules(source.vjobs, [(rule, rule.names) for rule in rules])
    return Configuration(source.nodes, tuple(vjobs), source.locations)


def spread(*vms: str) -> Spread:
    return Spread(frozenset(vms), label="far")


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Configuration], Decision]:
    """Decide as if the vjobs were too many for a solver, in one round; no further one is needed."""
    monkeypatch.setattr(ruled_room, "MOST_PAIRS", 0)

    def decided(policy: str, source: Configuration) -> Decision:
        asked: list[str] = []
        once = ruled.decide_with_pauses
        with monkeypatch.context() as patched:
            patched.setattr(ruled, "decide_with_pauses", lambda *about: asked.append("") or once(*about))
            patched.setattr(Trial, "_by_ways", lambda self, sample: pytest.fail("places were looked for once more"))
            found = decide_by_rules(policy, source, Parameters())
        assert isinstance(found, Decision) and len(asked) == 1
        assert obeys(source.concerning, source.homes, found.placement)
        return found

    return decided


Decide = Callable[[str, Configuration], Decision]


def two_are_kept_out() -> Configuration:
    """On two nodes with room for all, ``b`` and ``c`` may not be beside ``a`` and ``z``; ``d`` may."""
    queue = Queue(*nodes(2, cpus=9)).add("a", "n1", time_limit_s=100).add("z", "n2", time_limit_s=300)
    queue.add("b", time_limit_s=50).add("c", time_limit_s=60).add("d", time_limit_s=40)
    return with_rules(queue, spread("a-0", "z-0", "b-0"), spread("a-0", "z-0", "c-0"))


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_whoever_rules_keep_out_is_refused_in_its_turn_and_others_come(policy: str, decide: Decide) -> None:
    found = decide(policy, two_are_kept_out())
    assert states(found) == {"a": "running", "z": "running", "b": "waiting", "c": "waiting", "d": "running"}
    reason = found.reasons["b"]
    assert reason.code is ReasonCode.RULE and reason.numbers["shadow_s"] == 100
    assert reason.sentence.startswith("needs 1 CPU and 0 MiB in 1 VM; 2 nodes with room for b-0, but rule far: ")
    assert reason.sentence.endswith(" bars it from 2; reserved to start in at most 100 s")
    assert found.reasons["c"].code is ReasonCode.RULE


def test_nobody_passes_one_that_rules_keep_out_where_none_may_pass(decide: Decide) -> None:
    found = decide("fcfs", two_are_kept_out())
    assert found.reasons["b"].code is ReasonCode.RULE and found.reasons["d"].code is ReasonCode.BEHIND_HEAD


def test_those_that_would_delay_another_leave_their_places_to_those_behind(decide: Decide) -> None:
    """``head`` needs both nodes in 100 s. Two that last longer leave the one free CPU to ``c``."""
    queue = Queue(*nodes(2, cpus=2)).add("a", "n1", time_limit_s=100).add("b", "n1", "n2", time_limit_s=100)
    queue.add("head", vms=2, cpus=2, time_limit_s=50).add("long", time_limit_s=900).add("longer", time_limit_s=990)
    found = decide("easy", with_rules(queue.add("c", time_limit_s=90), spread("b-0", "b-1")))
    assert {found.reasons[name].code for name in ("long", "longer")} == {ReasonCode.WOULD_DELAY_HEAD}
    assert states(found)["c"] == "running" and found.placement["c-0"] == "n2"


def in_pieces(*limits_s: float) -> Queue:
    """Two nodes of two CPUs have one CPU free each; ``wide`` needs both on one node."""
    queue = Queue(*nodes(2, cpus=2)).add("a", "n1", time_limit_s=100).add("b", "n2", time_limit_s=200)
    return queue.add("wide", cpus=2, time_limit_s=300)


@pytest.mark.parametrize("policy", POLICIES)
def test_those_that_run_move_together_for_one_that_needs_a_node(policy: str, decide: Decide) -> None:
    found = decide(policy, with_rules(in_pieces(), Gather(frozenset({"wide-0"}))))
    assert states(found)["wide"] == "running"
    assert found.placement["a-0"] == found.placement["b-0"] != found.placement["wide-0"]


@pytest.mark.parametrize("rule", [spread("a-0", "b-0"), Lonely(frozenset({"b-0"}))])
@pytest.mark.parametrize("policy", POLICIES)
def test_those_that_run_stay_apart_where_a_rule_says_so(policy: str, rule: Joint, decide: Decide) -> None:
    found = decide(policy, with_rules(in_pieces(), rule))
    assert states(found)["wide"] == "waiting" and found.reasons["wide"].code is ReasonCode.RULE
    assert (found.placement["a-0"], found.placement["b-0"]) == ("n1", "n2")


def test_one_that_does_not_migrate_has_its_place_before_those_that_move(decide: Decide) -> None:
    """First Fit has ``a`` and ``c`` on the first node. But ``r`` stays there, so that ``c`` goes to the second one."""
    queue = Queue(*nodes(3, cpus=3)).add("a", "n2", time_limit_s=100).add("c", "n3", cpus=2, time_limit_s=100)
    queue.add("r", "n1", time_limit_s=100).add("wide", cpus=3, time_limit_s=100)
    found = decide("easy", with_rules(queue, Root(frozenset({"r-0"}))))
    assert found.placement == {"a-0": "n1", "c-0": "n2", "r-0": "n1", "wide-0": "n3"}


@pytest.mark.parametrize(
    "rules", [(Capacity(frozenset({"n1"}), frozenset({"a-0", "b-0"}), 1),), (spread("b-0", "c-0"),)]
)
def test_whoever_a_rule_bars_from_where_first_fit_has_it_goes_to_another_node(
    rules: Sequence[Joint], decide: Decide
) -> None:
    """Three nodes have a CPU free each. First Fit has ``a``, ``b`` and ``c`` on the first two, against the rule."""
    queue = Queue(*nodes(3, cpus=3)).add("a", "n1", time_limit_s=100).add("b", "n2", cpus=2, time_limit_s=100)
    queue.add("c", "n3", cpus=1, time_limit_s=100).add("wide", cpus=3, time_limit_s=100)
    assert states(decide("easy", with_rules(queue, *rules)))["wide"] == "running"


@pytest.mark.parametrize("policy", POLICIES)
def test_strangers_move_from_the_node_of_one_that_is_alone_and_does_not_migrate(policy: str, decide: Decide) -> None:
    """Three nodes have a CPU free each. First Fit has ``b`` beside ``a``, which stays, and has to be alone."""
    queue = Queue(*nodes(3, cpus=2)).add("a", "n1", time_limit_s=100).add("b", "n2", time_limit_s=100)
    queue.add("c", "n3", time_limit_s=100).add("wide", cpus=2, time_limit_s=100)
    found = decide(policy, with_rules(queue, Root(frozenset({"a-0"})), Lonely(frozenset({"a-0"}))))
    assert found.placement == {"a-0": "n1", "b-0": "n2", "c-0": "n2", "wide-0": "n3"}


def test_those_that_move_host_on_no_more_nodes_than_may(decide: Decide) -> None:
    """First Fit has ``a`` and ``c`` on the first two nodes; but ``r`` stays on the third, and two may host VMs."""
    queue = Queue(*nodes(3, cpus=4)).add("a", "n1", cpus=3, time_limit_s=100).add("c", "n3", cpus=2, time_limit_s=100)
    queue.add("r", "n3", time_limit_s=100).add("two", cpus=2, time_limit_s=100)
    rules = Root(frozenset({"r-0"})), Online(frozenset({"n1", "n2", "n3"}), 2)
    found = decide("easy", with_rules(queue, *rules))
    assert found.placement == {"a-0": "n3", "r-0": "n3", "c-0": "n2", "two-0": "n2"}


def test_those_on_a_node_that_drains_are_placed_beside_those_that_stay(decide: Decide) -> None:
    queue = Queue(*nodes(2, cpus=3), Node("n3", Resources(3, 4096), NodeState.DRAINING))
    queue.add("a", "n1").add("leaves", "n3").add("b", time_limit_s=50)
    found = decide("easy", with_rules(queue, spread("a-0", "leaves-0", "b-0")))
    assert found.placement == {"a-0": "n1", "leaves-0": "n2"} and found.reasons["b"].code is ReasonCode.RULE


@pytest.mark.parametrize("checks", [0, 1])
def test_after_the_decision_rules_are_asked_where_those_that_run_break_them(
    checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ruled_room, "MOST_PAIRS", 0)
    monkeypatch.setattr(ruled_room, "RuledRoom", lambda *_: pytest.fail("they have no sound place"))
    queue = Queue(*nodes(2, cpus=4)).add("a", "n1").add("b", "n1").add("c", time_limit_s=50)
    found = decide_by_rules("easy", with_rules(queue, spread("a-0", "b-0")), Parameters(exact_checks=checks))
    assert isinstance(found, Decision) and states(found)["c"] == "running"
    assert {found.placement["a-0"], found.placement["b-0"]} == {"n1", "n2"}
