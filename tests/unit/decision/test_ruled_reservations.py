"""Room is held for a vjob that a rule about VMs beside each other keeps out, for the time when it does so no more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision import later
from rmsplugin.decision.later import Places, Ruling
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState, VJob
from rmsplugin.model.given_rules import given_rules
from rmsplugin.model.joint import Capacity, Gather, Joint, Root, Spread
from rmsplugin.model.resources import Resources
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.ruled_sums import RuledSums
from rmsplugin.packing.search import Search

RESERVING = ("easy", "easy-preempt", "mixed", "conservative")


def decide(policy: str, queue: Queue, *rules: Joint) -> Decision:
    source = queue.configuration
    vjobs = given_rules(source.vjobs, [(rule, rule.names) for rule in rules])
    found = decide_by_rules(policy, Configuration(source.nodes, tuple(vjobs), source.locations), Parameters())
    assert isinstance(found, Decision)
    return found


def at_most(most: int, *vms: str, on: int = 2) -> Capacity:
    """So many of these run, on all nodes together."""
    return Capacity(frozenset(f"n{number}" for number in range(1, on + 1)), frozenset(vms), most, label="few")


def licensed(c_limit_s: float | None, **more: Any) -> Queue:
    """On two nodes of two CPUs ``a`` has the licence, ``b`` waits for it, and ``c`` fits and needs three CPUs."""
    queue = Queue(*nodes(2, cpus=2)).add("a", "n1", time_limit_s=1000, ran_s=900, preemptible=False)
    queue.add("b", vms=2, time_limit_s=500, preemptible=False)
    return queue.add("c", vms=3, time_limit_s=c_limit_s, preemptible=False, **more)


@pytest.mark.parametrize("policy", RESERVING)
def test_a_start_is_reserved_for_a_vjob_that_waits_for_a_rule(policy: str) -> None:
    found = decide(policy, licensed(None), at_most(2, "a-0", "b-0", "b-1"))
    assert states(found) == {"a": "running", "b": "waiting", "c": "waiting"}
    reason = found.reasons["b"]
    assert reason.code is ReasonCode.RULE and reason.numbers["shadow_s"] == 100
    assert reason.sentence.startswith("needs 2 CPUs and 0 MiB in 2 VMs; 1 node with room for b-1, but rule few: ")
    assert reason.sentence.endswith(" bars it from 1; reserved to start in at most 100 s")


@pytest.mark.parametrize("policy", RESERVING)
def test_one_starts_at_the_time_that_it_was_promised(policy: str) -> None:
    """When ``w`` has ended, ``head`` has room beside all where they are; First Fit has them in its way even then."""
    limits_s = {"y": 500, "z": 600, "x": 700, "w": 100}
    cpus, where = {"y": 1, "z": 2, "x": 3, "w": 1}, {"y": "n1", "z": "n2", "x": "n1", "w": "n2"}

    def decided(after_s: float) -> Decision:
        queue = Queue(*nodes(2, cpus=4))
        for name, limit_s in limits_s.items():
            if limit_s > after_s:
                queue.add(name, where[name], cpus=cpus[name], time_limit_s=limit_s)
        return decide(policy, queue.add("head", cpus=2, time_limit_s=50), Gather(frozenset({"head-0"})))

    promised_s = decided(0.0).reasons["head"].numbers["shadow_s"]
    assert isinstance(promised_s, float | int)
    assert states(decided(promised_s))["head"] == "running"


@pytest.mark.parametrize("policy", RESERVING)
def test_others_pass_it_if_they_have_ended_by_then(policy: str) -> None:
    found = decide(policy, licensed(100), at_most(2, "a-0", "b-0", "b-1"))
    assert states(found) == {"a": "running", "b": "waiting", "c": "running"}


@pytest.mark.parametrize("policy", ["rjsp", "fcfs", "slowdown"])
def test_others_pass_it_under_policies_that_reserve_nothing_for_it(policy: str) -> None:
    found = decide(policy, licensed(None), at_most(2, "a-0", "b-0", "b-1"))
    assert states(found)["c"] == "running" and "shadow_s" not in found.reasons["b"].numbers


@pytest.mark.parametrize("policy", RESERVING)
def test_no_room_is_held_for_one_that_its_rule_keeps_out_for_ever(policy: str) -> None:
    found = decide(policy, licensed(None), at_most(1, "b-0", "b-1"))
    assert states(found) == {"a": "running", "b": "waiting", "c": "running"}
    assert "shadow_s" not in found.reasons["b"].numbers


@pytest.mark.parametrize("policy", ["easy", "mixed", "conservative"])
def test_one_that_waits_for_room_is_promised_it_where_its_rule_allows(policy: str) -> None:
    """``a`` ends first, and leaves two CPUs on one node; a spread needs two nodes, and ``b`` ends later."""
    queue = Queue(*nodes(2, cpus=2)).add("a", "n1", "n1", time_limit_s=100, preemptible=False)
    queue.add("b", "n2", "n2", time_limit_s=300, preemptible=False).add("c", vms=2, preemptible=False)
    assert decide(policy, queue).reasons["c"].numbers["shadow_s"] == 100
    apart, stays = Spread(frozenset({"c-0", "c-1"})), Root(frozenset({"b-0", "b-1"}))
    assert decide(policy, queue, apart).reasons["c"].numbers["shadow_s"] == 100  # one VM of b migrates
    assert decide(policy, queue, apart, stays).reasons["c"].numbers["shadow_s"] == 300


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_nobody_starts_who_would_be_in_the_way_of_its_rule(policy: str) -> None:
    """There is room for ``late`` beside the head at its time; but not on the one node where the head has to be."""
    queue = Queue(*nodes(2, cpus=3)).add("with", "n1", preemptible=False)
    queue.add("a", "n1", time_limit_s=100, preemptible=False).add("head", vms=2, time_limit_s=50, preemptible=False)
    queue.add("beside", "n2", preemptible=False).add("late", vms=1, preemptible=False, cpus=1)
    rules = [Gather(frozenset({"with-0", "head-0", "head-1"})), Gather(frozenset({"with-0", "late-0"}))]
    found = decide(policy, queue, *rules)
    assert found.reasons["head"].numbers["shadow_s"] == 100
    assert states(found)["late"] == "waiting"


@pytest.mark.parametrize("policy", ["easy", "mixed"])
def test_of_many_that_end_it_is_the_first_one_that_matters(policy: str) -> None:
    queue = Queue(*nodes(40, cpus=4))
    names = [f"r{number}" for number in range(100)]
    for number, name in enumerate(names):
        queue.add(name, f"n{number % 40 + 1}", time_limit_s=100 + number, preemptible=False)
    queue.add("head", vms=3, time_limit_s=500, preemptible=False)
    rule = at_most(60, *(f"{name}-0" for name in names), "head-0", "head-1", "head-2", on=40)
    assert decide(policy, queue, rule).reasons["head"].numbers["shadow_s"] == 100 + 42  # then 57 of 100 are left


@pytest.mark.parametrize("policy", ["mixed", "easy-preempt"])
def test_no_start_is_promised_as_if_others_made_way_for_a_rule(policy: str) -> None:
    """``low`` may be suspended at once; but nobody is for a rule, so that its end counts."""
    queue = Queue(*nodes(2, cpus=2)).add("first", "n1", time_limit_s=700, preemptible=False)
    queue.add("head", vms=2, time_limit_s=50, priority=2, preemptible=False)
    queue.add("low", "n2", time_limit_s=900, priority=1)
    found = decide(policy, queue, at_most(2, "first-0", "head-0", "head-1", "low-0"))
    assert states(found)["low"] == "running"
    assert found.reasons["head"].numbers["shadow_s"] == 900


@pytest.mark.parametrize(("checks", "programs"), [(0, 0), (10, 1)])
def test_a_reservation_asks_a_program_only_where_a_decision_may_check(
    checks: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three VMs on two nodes, of which no two may be together: First Fit finds nothing, at any time."""
    asked: list[int] = []
    monkeypatch.setattr(later, "solve", lambda items, *_: asked.append(len(items)))
    monkeypatch.setattr(RuledSums, "refuse", lambda self, vms: False)
    queue = Queue(*nodes(2, cpus=4)).add("a", "n1", time_limit_s=1000, preemptible=False)
    queue.add("b", vms=3, time_limit_s=500, preemptible=False)
    source = queue.configuration
    vjobs = given_rules(source.vjobs, [(Spread(frozenset({"b-0", "b-1", "b-2"})), ("b-0", "b-1", "b-2"))])
    ruled = Configuration(source.nodes, tuple(vjobs), source.locations)
    parameters = Parameters(exact_checks=checks)
    decide_by_rules("easy", ruled, parameters)
    assert bool(asked) == bool(programs)


def test_a_reservation_asks_no_program_once_its_limit_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(later, "solve", lambda items, *_: asked.append(len(items)))
    monkeypatch.setattr(RuledSums, "refuse", lambda self, vms: False)
    source = Queue(*nodes(2, cpus=4)).add("b", vms=3).configuration
    vjobs = given_rules(source.vjobs, [(Spread(frozenset({"b-0", "b-1", "b-2"})), ("b-0", "b-1", "b-2"))])
    ruled = Configuration(source.nodes, tuple(vjobs), source.locations)
    spent = Budget(Search(deterministic_limit=1.0))
    spent.charge_run(1.0, 0.0)
    for budget, programs in ((spent, 0), (Budget(Search(deterministic_limit=1.0)), 1)):
        assert not Ruling(ruled, budget).passing.allow(ruled.vjobs)
        assert len(asked) == programs


def test_who_is_given_a_time_is_placed_beside_those_who_are_there_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """From one time to the next nobody is taken from where he is, whoever runs then."""
    taken: list[str] = []
    monkeypatch.setattr(Places, "_give_back", lambda self, name: taken.append(name))
    queue = Queue(*nodes(4, cpus=2))
    for number in range(1, 5):
        queue.add(f"r{number}", f"n{number}", cpus=2, time_limit_s=100 * number, preemptible=False)
    for number in range(1, 5):
        queue.add(f"w{number}", cpus=2, vms=1, time_limit_s=1000, preemptible=False)
    rule = at_most(4, *(f"{letter}{number}-0" for letter in "rw" for number in range(1, 5)), on=4)
    found = decide("conservative", queue, rule)
    assert [found.reasons[f"w{number}"].numbers["shadow_s"] for number in range(1, 5)] == [100, 200, 300, 400]
    assert not taken


def test_of_vjobs_that_are_alike_one_is_refused_by_search_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """``other`` is there until 250 s, and ``holder`` has the licence until 300 s."""
    refused: list[list[str]] = []
    allow = Places.allow

    def seen(places: Places, members: Iterable[VJob]) -> bool:
        known = list(members)
        found = allow(places, known)
        if not found:
            refused.append(sorted(vjob.name for vjob in known))
        return found

    monkeypatch.setattr(Places, "allow", seen)
    queue = Queue(*nodes(3, cpus=2)).add("holder", "n1", cpus=2, time_limit_s=300, preemptible=False)
    queue.add("short", "n2", cpus=2, time_limit_s=100, preemptible=False)
    queue.add("other", "n3", cpus=2, time_limit_s=250, preemptible=False)
    waiting = [f"w{number}" for number in range(1, 5)]
    for name in waiting:
        queue.add(name, vms=1, cpus=1, time_limit_s=500, preemptible=False)
    rule = at_most(1, "holder-0", *(f"{name}-0" for name in waiting), on=3)
    found = decide("conservative", queue, rule)
    assert [found.reasons[name].numbers["shadow_s"] for name in waiting] == [300, 800, 1300, 1800]
    assert [names for names in refused if "other" in names] == [["holder", "other", "w1"]]


def test_those_that_came_before_others_went_are_placed_closer_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """``a`` and ``b`` come to one node, ``c`` and ``d`` to the other. Without ``b`` and ``d`` one is free for ``e``."""
    monkeypatch.setattr(later, "_MOST_PAIRS", 0)
    queue = Queue(*nodes(2, cpus=2)).add("a").add("b").add("c").add("d").add("e", cpus=2)
    a, b, c, d, e = queue.configuration.vjobs
    places = Places(Ruling(queue.configuration))
    assert places.allow([a, b, c, d])
    assert not places.allow([a, b, c, e])
    assert places.allow([a, c, e])


@pytest.mark.parametrize("policy", RESERVING)
def test_no_start_is_promised_as_if_those_on_a_node_that_drains_stayed_there(policy: str) -> None:
    """``leaves`` has to go to the first node. So ``head`` has no room there when ``short`` ends."""
    queue = Queue(*nodes(1, cpus=3), Node("n2", Resources(3, 4096), NodeState.DRAINING))
    queue.add("short", "n1", time_limit_s=100, preemptible=False)
    queue.add("leaves", "n2", cpus=2, time_limit_s=500, preemptible=False).add("head", cpus=2, preemptible=False)
    rule = Spread(frozenset({"short-0", "head-0"}))
    assert decide(policy, queue, rule).reasons["head"].numbers["shadow_s"] == 500
