"""An administrator's preference about one vjob: obeyed by each policy where it can be, with a sentence where not."""

from __future__ import annotations

import pytest
from unit.queues import Queue, nodes, states

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.policies import POLICIES, decide
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.model.policy_names import STATIC
from rmsplugin.model.vjob import VJobState

RUNS, RESTS = VJobState.RUNNING, VJobState.SLEEPING
SWITCHING = sorted(set(POLICIES) - set(STATIC))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_running_vjob_that_should_not_run_makes_way_and_a_waiting_one_does_not_start(policy: str) -> None:
    queue = Queue(*nodes(3)).add("a", "n1", preference=RESTS).add("b", preference=RESTS).add("c", "n2")
    decision = queue.add("d", "zz:n3", preference=RESTS).decide(policy)
    assert states(decision) == {"a": "sleeping", "b": "waiting", "c": "running", "d": "sleeping"}
    for name in "abd":
        assert decision.reasons[name].code is ReasonCode.PREFERRED
        assert str(decision.reasons[name]) == "an administrator prefers that it does not run"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_room_of_a_vjob_that_should_not_run_goes_to_others(policy: str) -> None:
    decision = Queue(*nodes(1)).add("a", "n1", preference=RESTS).add("b").decide(policy)
    assert states(decision) == {"a": "sleeping", "b": "running"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_vjob_that_should_run_is_first_among_those_that_wait(policy: str) -> None:
    decision = Queue(*nodes(1)).add("a").add("b", preference=RUNS).decide(policy)
    assert states(decision) == {"a": "waiting", "b": "running"}
    assert str(decision.reasons["b"]) == "an administrator prefers that it runs"


@pytest.mark.parametrize("policy", SWITCHING)
def test_others_make_way_for_a_vjob_that_should_run(policy: str) -> None:
    queue = Queue(*nodes(1)).add("a", "n1", state_s=1e4, time_limit_s=9e4).add("b", preference=RUNS)
    assert states(queue.decide(policy)) == {"a": "sleeping", "b": "running"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_running_vjob_that_should_run_makes_way_for_nobody(policy: str) -> None:
    queue = Queue(*nodes(1)).add("high", priority=9, waited_s=1e6, time_limit_s=60.0)
    queue.add("a", "n1", state_s=1e6, preference=RUNS)
    assert states(queue.decide(policy)) == {"high": "waiting", "a": "running"}


@pytest.mark.parametrize("policy", POLICIES)
def test_those_that_must_run_come_first_and_the_sentence_says_so(policy: str) -> None:
    queue = Queue(*nodes(1)).add("a", preference=RUNS).add("b", "n1", preemptible=False).add("c")
    decision = queue.decide(policy)
    assert states(decision) == {"a": "waiting", "b": "running", "c": "waiting"}
    assert decision.reasons["b"].code is not ReasonCode.RESERVED_IN_PLACE
    assert str(decision.reasons["a"]).endswith(
        "an administrator prefers that it runs, and those that must run leave no room for that"
    )


@pytest.mark.parametrize("policy", POLICIES)
def test_of_several_that_should_run_as_many_as_fit_do(policy: str) -> None:
    queue = Queue(*nodes(2)).add("large", vms=3, preference=RUNS).add("b", preference=RUNS)
    queue.add("c", "n1", preemptible=False).add("d", preference=RUNS)
    decision = queue.decide(policy)
    assert states(decision) == {"large": "waiting", "b": "running", "c": "running", "d": "waiting"}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_vjob_that_may_not_be_suspended_runs_on_and_its_reason_says_what_is_preferred(policy: str) -> None:
    decision = Queue(*nodes(1)).add("a", "n1", preemptible=False, preference=RESTS).decide(policy)
    assert states(decision) == {"a": "running"}
    assert str(decision.reasons["a"]).endswith("prefers that it does not run, but it may not be suspended")


def test_a_preference_is_no_reason_to_suspend_what_was_started_just_now() -> None:
    queue = Queue(*nodes(1)).add("a", "n1", state_s=10.0).add("b", preference=RUNS)
    assert states(queue.decide("mixed")) == {"a": "running", "b": "waiting"}


def test_what_should_not_run_is_suspended_also_just_after_its_start() -> None:
    assert states(Queue(*nodes(1)).add("a", "n1", state_s=10.0, preference=RESTS).decide("mixed")) == {"a": "sleeping"}


def test_what_should_not_run_is_paused_first_where_the_site_pauses() -> None:
    parameters = Parameters(pause_limit_s=600.0)
    decision = decide_with_pauses("mixed", Queue(*nodes(1)).add("a", "n1", preference=RESTS).configuration, parameters)
    assert isinstance(decision, Decision)
    assert states(decision) == {"a": "paused"}


@pytest.mark.parametrize("policy", SWITCHING)
def test_nobody_waits_for_the_room_of_a_vjob_under_way_in_favour_of_a_preference(policy: str) -> None:
    """While others share CPUs until one in transit has gone, a vjob that should run is not placed on top of them."""
    queue = Queue(*nodes(1, cpus=2)).add("a", "n1", cpus=1).add("b", "n1", cpus=1)
    queue.add("gone", "n1", cpus=1, preemptible=False, in_transit=True, leaves=True).add("c", preference=RUNS)
    decision = decide(policy, queue.configuration, Parameters())
    assert isinstance(decision, Decision)
    running = [name for name, state in decision.states.items() if state is RUNS]
    assert "c" not in running or len(running) <= 2
