"""Mixed queues: figure 1 of the paper, and each rule that keeps a cluster from thrashing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.parameters import ActionDuration, Parameters, SwitchDurations
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.rounds import applied
from rmsplugin.model.rules import allowing

#: Booting, suspending and resuming: 10 s each, whatever the memory.
SLOW = SwitchDurations(*[ActionDuration(10.0)] * 3)
EAGER = {"exempt_s": 0.0, "patience_s": 1e6, "durations": SLOW}


def figure_1(policy_allows_preemption: bool) -> Queue:
    """4 processors. Job 1 needs all but what runs; 2 and 3 are short and small; 4 is long, and fits until 1 starts."""
    queue = Queue(*nodes(4)).add("job0", "n1", "n2", preemptible=False, time_limit_s=100)
    queue.add("job1", vms=4, preemptible=False, time_limit_s=100)
    queue.add("job4", time_limit_s=1000, preemptible=policy_allows_preemption)
    return queue.add("job2", time_limit_s=50, preemptible=False).add("job3", time_limit_s=100, preemptible=False)


def test_rr_6929_figure_1_a_fcfs_leaves_what_the_head_cannot_use() -> None:
    assert running(figure_1(False).decide("fcfs")) == {"job0"}


def test_rr_6929_figure_1_b_easy_backfills_jobs_2_and_3() -> None:
    assert running(figure_1(False).decide("easy")) == {"job0", "job2", "job3"}


def test_rr_6929_figure_1_c_job_4_starts_sooner_without_impacting_the_first_one() -> None:
    queue = figure_1(True)
    decision = queue.decide("mixed", exempt_s=0, durations=SLOW)
    assert running(decision) == {"job0", "job4", "job2"}
    assert decision.reasons["job4"].code is ReasonCode.FILLS_HOLE
    # 100 s later job 0 and job 2 have ended, and job 1 starts in its turn: job 4 makes way.
    later = applied(queue.configuration, decision)
    gone = Queue(*queue.nodes)
    for vjob in later.vjobs:
        if vjob.name not in ("job0", "job2"):
            where = [later.locations[vm.name].node or "" for vm in vjob.vms]
            gone.add(vjob.name, *where, vms=len(vjob.vms), preemptible=vjob.preemptible, time_limit_s=vjob.time_limit_s)
    assert states(gone.decide("mixed")) == {"job1": "running", "job4": "sleeping", "job3": "waiting"}


def test_what_may_not_be_preempted_does_not_fill_such_a_hole() -> None:
    decision = figure_1(False).decide("mixed", exempt_s=0, durations=SLOW)
    assert running(decision) == {"job0", "job2", "job3"}


def hole(seconds: float, **tunables: object) -> Decision:
    """A hole on one node of two CPUs for so many seconds."""
    queue = Queue(*nodes(2, cpus=2)).add("a", "n1", cpus=2, preemptible=False, time_limit_s=seconds)
    queue.add("head", vms=2, cpus=2, preemptible=False).add("filler", cpus=2)
    return queue.decide("mixed", **{**EAGER, **tunables})


def test_a_hole_that_is_worth_less_than_the_switch_is_left() -> None:
    decision = hole(20)
    assert running(decision) == {"a"}
    assert str(decision.reasons["filler"]) == "its hole of 20 s is worth 40 CPU-seconds, the switch costs 40"
    assert running(hole(21)) == {"a", "filler"}


def test_a_sleeping_one_is_resumed_into_a_hole_by_what_its_resume_costs() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", preemptible=False, time_limit_s=20)
    queue.add("head", vms=2, preemptible=False).add("filler", "zz:n2")
    quick = SwitchDurations(run=ActionDuration(99), suspend=ActionDuration(10), resume=ActionDuration(9))
    assert "filler" in running(queue.decide("mixed", **{**EAGER, "durations": quick}))


def test_a_hole_that_ends_before_the_exemption_is_left_for_it_would_delay_the_head() -> None:
    assert running(hole(100, exempt_s=100.0)) == {"a", "filler"}
    decision = hole(100, exempt_s=101.0)
    assert running(decision) == {"a"}
    assert "exempt for 101 s" in str(decision.reasons["filler"])


def switch(limit_s: float | None = None, runs_s: float = 1e5, victim_limit_s: float | None = None) -> Queue:
    """`a` is ahead and ready, with two CPUs; `b` runs behind it on one of the two nodes."""
    queue = Queue(*nodes(2)).add("a", vms=2, state_s=0.0, time_limit_s=limit_s)
    return queue.add("b", "n1", state_s=runs_s, time_limit_s=victim_limit_s)


def test_one_that_was_just_started_is_exempt() -> None:
    decision = switch(runs_s=169).decide("mixed", exempt_s=300.0)
    assert states(decision) == {"a": "waiting", "b": "running"}
    assert str(decision.reasons["a"]).startswith("would preempt b, exempt for 131 s more")
    assert decision.reasons["b"].code is ReasonCode.EXEMPT
    assert states(switch(runs_s=300).decide("mixed", exempt_s=300.0)) == {"a": "running", "b": "sleeping"}


def test_a_switch_must_pay_for_itself() -> None:
    # one CPU more, 40 s long at most; two CPUs boot for 10 s, one is suspended and resumed for 20 s: 40 CPU-seconds
    decision = switch(limit_s=40).decide("mixed", **EAGER)
    assert states(decision) == {"a": "waiting", "b": "running"}
    assert decision.reasons["a"].code is ReasonCode.DOES_NOT_PAY
    assert "would preempt b, which gains 40 CPU-seconds in 40 s and costs 40" in str(decision.reasons["a"])
    assert states(switch(limit_s=41).decide("mixed", **EAGER)) == {"a": "running", "b": "sleeping"}


def test_a_switch_is_worth_nothing_longer_than_its_victims_would_run() -> None:
    assert states(switch(victim_limit_s=40).decide("mixed", **EAGER)) == {"a": "waiting", "b": "running"}
    assert states(switch(victim_limit_s=41).decide("mixed", **EAGER)) == {"a": "running", "b": "sleeping"}


def test_nor_longer_than_the_horizon() -> None:
    assert states(switch().decide("mixed", **EAGER, horizon_s=40)) == {"a": "waiting", "b": "running"}
    assert states(switch().decide("mixed", **EAGER, horizon_s=41)) == {"a": "running", "b": "sleeping"}


def test_a_higher_tier_preempts_whatever_it_costs_but_for_the_exemption() -> None:
    queue = Queue(*nodes(1)).add("a", priority=1, state_s=0.0).add("b", "n1", state_s=50.0)
    assert states(queue.decide("mixed", **EAGER)) == {"a": "running", "b": "sleeping"}
    assert states(queue.decide("mixed", **{**EAGER, "exempt_s": 51.0})) == {"a": "waiting", "b": "running"}
    queue.vjobs[0] = replace(queue.vjobs[0], priority=0)
    assert states(queue.decide("mixed", **EAGER)) == {"a": "waiting", "b": "running"}


def test_patience_ends_and_then_the_queue_alone_decides() -> None:
    queue = Queue(*nodes(1)).add("a", state_s=599.0).add("b", "n1", state_s=9999.0)
    waiting = queue.decide("mixed", **{**EAGER, "patience_s": 600.0})
    assert states(waiting) == {"a": "waiting", "b": "running"}
    assert str(waiting.reasons["a"]).endswith("reserved to start in at most 1 s")
    queue.vjobs[0] = replace(queue.vjobs[0], state_s=600.0)
    decision = queue.decide("mixed", **{**EAGER, "patience_s": 600.0})
    assert states(decision) == {"a": "running", "b": "sleeping"}
    assert decision.reasons["a"].code is ReasonCode.PREEMPTS
    assert decision.reasons["b"].code is ReasonCode.PREEMPTED


def test_nobody_preempts_one_ahead_of_it() -> None:
    queue = Queue(*nodes(2)).add("b", "n1", state_s=9999.0).add("a", vms=2)
    assert states(queue.decide("mixed", **EAGER)) == {"b": "running", "a": "waiting"}


def test_what_may_not_be_preempted_is_never_suspended_for_anybody() -> None:
    queue = Queue(*nodes(1)).add("a", priority=9).add("b", "n1", preemptible=False, time_limit_s=30)
    decision = queue.decide("mixed", **EAGER)
    assert states(decision) == {"a": "waiting", "b": "running"}
    assert str(decision.reasons["a"]).endswith("reserved to start in at most 30 s")


def test_the_fewest_from_the_end_of_the_queue_are_suspended() -> None:
    queue = Queue(*nodes(3)).add("a", vms=1).add("b", "n1").add("c", "n2").add("d", "n3")
    assert states(queue.decide("mixed")) == {"a": "running", "b": "running", "c": "running", "d": "sleeping"}
    wide = Queue(*nodes(4)).add("a", vms=2).add("b", "n1").add("c", "n2", "n3").add("d", "n4")
    assert states(wide.decide("mixed")) == {"a": "running", "b": "running", "c": "sleeping", "d": "running"}


def test_an_overloaded_cluster_suspends_from_the_end_of_the_queue() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", cpus=1).add("b", "n2", "n2", cpus=1).add("c", "n2", cpus=1)
    assert states(queue.decide("mixed", **EAGER)) == {"a": "running", "b": "sleeping", "c": "running"}


def test_a_present_placement_that_ffd_does_not_find_is_kept() -> None:
    queue = Queue(*nodes(2)).add("a", "n2").add("b", "n1", rules=allowing(frozenset({"n1"})))
    decision = queue.decide("mixed")
    assert states(decision) == {"a": "running", "b": "running"}
    assert decision.placement == {"a-0": "n2", "b-0": "n1"}
    assert decision.sentence == "2 of 2 vjobs run: nothing changes"


@pytest.mark.parametrize("state_s", [None, 0.0, 1e5])
def test_figure_1_settles_at_once(state_s: float | None) -> None:
    queue = figure_1(True)
    queue.vjobs = [replace(vjob, state_s=state_s) for vjob in queue.vjobs]
    decision = queue.decide("mixed", exempt_s=0, durations=SLOW)
    again = decide("mixed", applied(queue.configuration, decision), Parameters(exempt_s=0, durations=SLOW))
    assert isinstance(again, Decision)
    assert again.states == decision.states
