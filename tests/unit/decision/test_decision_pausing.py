"""Which vjobs that make way keep their memory, and which are saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.policies import POLICIES, decide
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    paused_on,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

R, P, S, W = VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING, VJobState.WAITING

#: A vjob that makes way may keep its memory for an hour; the time that a vjob has run exempts none.
AN_HOUR = Parameters(pause_limit_s=3600.0, exempt_s=0.0)


def job(name: str, memory_mib: int = 512, vms: int = 1, cpus: float = 1) -> VJob:
    return VJob(name, tuple(VM(f"{name}{i}", Resources(cpus, memory_mib)) for i in range(vms)))


def cluster(places: Mapping[VJob, Location | tuple[Location, ...]], nodes: Mapping[str, int]) -> Configuration:
    """Nodes of one CPU by memory; the queue, and where each vjob is."""
    found: dict[str, Location] = {}
    for vjob, at in places.items():
        each = at if isinstance(at, tuple) else (at,) * len(vjob.vms)
        found |= {vm.name: where for vm, where in zip(vjob.vms, each, strict=True)}
    return Configuration(
        tuple(Node(name, Resources(1, memory)) for name, memory in nodes.items()), tuple(places), found
    )


def decided(source: Configuration, parameters: Parameters = AN_HOUR, policy: str = "rjsp") -> dict[str, VJobState]:
    """The states; and whatever comes of them is right."""
    decision = decide_with_pauses(policy, source, parameters)
    assert isinstance(decision, Decision), decision
    found = propose(source, ProposalParameters(policy, decision=parameters))
    assert isinstance(found, Proposal), found
    assert check(source, found) == []
    assert found.decision.states == decision.states
    return dict(decision.states)


def test_who_makes_way_keeps_its_memory_where_there_is_enough() -> None:
    source = cluster({job("head"): WAITING, job("long"): running_on("n")}, {"n": 1024})
    assert decided(source) == {"head": R, "long": P}
    found = decide_with_pauses("rjsp", source, AN_HOUR)
    assert isinstance(found, Decision)
    assert found.reasons["long"].sentence.endswith("; it keeps its memory meanwhile")
    assert found.sentence == "1 of 2 vjobs run: 1 starts, 1 is paused"


def test_and_is_saved_where_its_memory_is_needed() -> None:
    source = cluster({job("head", 600): WAITING, job("long"): running_on("n")}, {"n": 1024})
    assert decided(source) == {"head": R, "long": S}
    found = decide_with_pauses("rjsp", source, AN_HOUR)
    assert isinstance(found, Decision)
    assert found.reasons["long"].sentence.endswith("; it is saved: its memory is needed")


def test_nobody_is_paused_where_the_limit_is_nothing_and_every_policy_decides_as_ever() -> None:
    source = cluster({job("head"): WAITING, job("long"): running_on("n")}, {"n": 1024})
    for policy in POLICIES:
        assert decide_with_pauses(policy, source, Parameters()) == decide(policy, source, Parameters())


def test_and_who_is_paused_is_saved_then() -> None:
    source = cluster({job("head"): running_on("n"), job("long"): paused_on("n")}, {"n": 1024})
    assert decided(source, Parameters()) == {"head": R, "long": S}


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "mixed", "easy-preempt"])
def test_with_nothing_changed_nothing_is_done(policy: str) -> None:
    source = cluster({job("head"): running_on("n"), replace(job("long"), state_s=60.0): paused_on("n")}, {"n": 1024})
    assert decided(source, policy=policy) == {"head": R, "long": P}


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "mixed", "easy-preempt", "easy", "fcfs"])
def test_who_is_paused_goes_on_when_there_are_cpus_again(policy: str) -> None:
    source = cluster({replace(job("long"), state_s=60.0): paused_on("n")}, {"n": 1024})
    assert decided(source, policy=policy) == {"long": R}


@pytest.mark.parametrize(("state_s", "state"), [(3599.0, P), (3600.0, S), (None, S)])
def test_one_is_paused_for_no_longer_than_the_limit(state_s: float | None, state: VJobState) -> None:
    source = cluster({job("head"): running_on("n"), replace(job("long"), state_s=state_s): paused_on("n")}, {"n": 1024})
    assert decided(source)["long"] is state
    assert decided(source, replace(AN_HOUR, pause_limit_s=math.inf))["long"] is P


def test_one_whose_node_leaves_is_saved() -> None:
    nodes = (Node("n", Resources(1, 1024), NodeState.DRAINING), Node("m", Resources(1, 1024)))
    head, long = job("head"), job("long")
    source = Configuration(nodes, (head, long), {"head0": running_on("m"), "long0": paused_on("n")})
    assert decided(source) == {"head": R, "long": S}


def test_the_head_of_the_queue_keeps_its_memory_before_those_behind_it() -> None:
    first, second = replace(job("b"), state_s=0.0), replace(job("c"), state_s=0.0)
    source = cluster({job("head"): WAITING, first: paused_on("n"), second: paused_on("n")}, {"n": 1024})
    assert decided(source) == {"head": R, "b": P, "c": S}


def test_one_behind_it_keeps_its_memory_where_only_that_of_the_one_ahead_is_needed() -> None:
    first, second = replace(job("b", 1024), state_s=0.0), replace(job("c", 512), state_s=0.0)
    places = {job("head", 1024): WAITING, job("runs"): running_on("m"), first: paused_on("n"), second: paused_on("m")}
    assert decided(cluster(places, {"n": 1024, "m": 1024})) == {"head": R, "runs": R, "b": S, "c": P}


def test_all_vms_of_a_vjob_are_paused_or_all_are_saved() -> None:
    long = job("long", vms=2)
    places = {job("head", 600, 1): WAITING, long: (running_on("n"), running_on("m"))}
    assert decided(cluster(places, {"n": 1024, "m": 1024})) == {"head": R, "long": S}


@pytest.mark.parametrize(("memory_mib", "state"), [(256, S), (768, P)])
def test_others_move_for_a_paused_one_only_if_that_is_less_than_it_has(memory_mib: int, state: VJobState) -> None:
    """The head of the queue needs all that is free on n beside it; one that runs there could leave instead."""
    long, runs, head = replace(job("long", memory_mib, cpus=2), state_s=0.0), job("runs", 512), job("head", 1024)
    nodes = (Node("n", Resources(2, 1536 + memory_mib - 256)), Node("m", Resources(1, 512)))
    nodes = (*nodes, Node("full", Resources(0, 0)))
    places = {"runs0": running_on("n"), "head0": WAITING, "long0": paused_on("n")}
    source = Configuration(nodes, (runs, replace(head, rules=allowing(frozenset({"n"}))), long), places)
    assert decided(source)["long"] is state


def test_a_target_keeps_one_paused_whatever_the_limit_and_is_refused_where_its_memory_is_needed() -> None:
    fixed = replace(job("long"), target=P)
    places = {fixed: running_on("n"), job("head"): WAITING}
    assert decided(cluster(places, {"n": 1024}), Parameters()) == {"long": P, "head": R}
    must = replace(job("must", 600), target=R)
    found = decide_with_pauses("rjsp", cluster({fixed: paused_on("n"), must: WAITING}, {"n": 1024}), AN_HOUR)
    assert isinstance(found, Infeasible)
    assert found.explanation == "vjob 'long' cannot stay paused, as its target demands: others need its memory"


def test_a_target_to_sleep_saves() -> None:
    fixed = replace(job("long"), target=S)
    assert decided(cluster({fixed: paused_on("n")}, {"n": 1024})) == {"long": S}


def test_one_of_which_a_part_is_saved_already_is_saved() -> None:
    long = replace(job("long", vms=2), state_s=0.0)
    source = cluster({job("head"): running_on("n"), long: (paused_on("n"), sleeping_on("n"))}, {"n": 1024})
    assert decided(source) == {"head": R, "long": S}


def test_a_lost_one_that_is_paused_begins_anew() -> None:
    lost = replace(job("long", vms=2), lost=True)
    source = cluster({lost: (paused_on("n"), WAITING)}, {"n": 1024})
    assert decided(source) == {"long": W}


def test_what_a_switch_costs_is_a_pause_as_long_as_nobody_has_to_be_saved() -> None:
    """To save and resume 64 GiB takes more than an hour and a half: no short vjob is worth that."""
    long = replace(job("long", 65536), time_limit_s=86400.0, ran_s=7200.0)
    short = replace(job("short"), time_limit_s=60.0, waited_s=300.0)
    places: dict[VJob, Location | tuple[Location, ...]] = {long: running_on("n"), short: WAITING}
    assert decided(cluster(places, {"n": 131072}), policy="slowdown") == {"long": P, "short": R}
    assert decided(cluster(places, {"n": 65536 + 256}), policy="slowdown") == {"long": R, "short": W}
    assert decided(cluster(places, {"n": 131072}), Parameters(exempt_s=0.0), "slowdown") == {"long": R, "short": W}
