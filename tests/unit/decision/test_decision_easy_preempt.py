"""EASY without time limits: figure 1c of the paper, who makes way for the head of the queue, and who does not."""

from __future__ import annotations

from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.result import ReasonCode

EAGER = {"exempt_s": 0.0}


def figure_1() -> Queue:
    """4 processors, and nobody knows how long anything runs. Job 1 needs all of them."""
    queue = Queue(*nodes(4)).add("job0", "n1", "n2").add("job1", vms=4)
    return queue.add("job4").add("job2").add("job3")


def test_rr_6929_figure_1_c_whoever_fits_starts_whatever_its_time_limit() -> None:
    decision = figure_1().decide("easy-preempt")
    assert running(decision) == {"job0", "job4", "job2"}
    assert decision.reasons["job4"].code is ReasonCode.FILLS_HOLE


def test_the_head_takes_the_room_of_those_behind_it_as_soon_as_it_fits_beside_those_ahead() -> None:
    queue = Queue(*nodes(4)).add("job1", vms=4).add("job4", "n3").add("job2", "n4")
    decision = queue.decide("easy-preempt", **EAGER)
    assert states(decision) == {"job1": "running", "job4": "sleeping", "job2": "sleeping"}
    assert decision.reasons["job1"].code is ReasonCode.PREEMPTS
    assert decision.reasons["job4"].numbers == {"by": "job1"}


def test_the_last_of_the_queue_makes_way_first_and_no_more_than_needed() -> None:
    queue = Queue(*nodes(3)).add("head").add("a", "n1").add("b", "n2").add("c", "n3")
    assert running(queue.decide("easy-preempt", **EAGER)) == {"head", "a", "b"}


def test_those_behind_the_head_suspend_nobody() -> None:
    """Under rjsp the second takes the room of the last; here it waits, for it is not its turn."""
    queue = Queue(*nodes(2)).add("a", "n1").add("head", vms=2).add("second").add("last", "n2")
    assert running(queue.decide("easy-preempt", **EAGER)) == {"a", "last"}
    assert running(queue.decide("rjsp")) == {"a", "second"}


def test_who_was_started_a_moment_ago_is_not_suspended_and_the_head_is_told_when() -> None:
    queue = Queue(*nodes(1)).add("head").add("filler", "n1", state_s=100.0)
    decision = queue.decide("easy-preempt", exempt_s=300.0)
    assert running(decision) == {"filler"}
    queue = Queue(*nodes(1)).add("head").add("filler", "n1", state_s=300.0)
    assert running(queue.decide("easy-preempt", exempt_s=300.0)) == {"head"}


def test_what_may_not_be_preempted_fills_no_hole_that_the_head_needs() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", preemptible=False, time_limit_s=100.0).add("head", vms=2)
    queue.add("long", preemptible=False, time_limit_s=101.0).add("short", preemptible=False, time_limit_s=100.0)
    decision = queue.decide("easy-preempt", **EAGER)
    assert running(decision) == {"a", "short"}
    assert decision.reasons["long"].code is ReasonCode.WOULD_DELAY_HEAD


def test_sleepers_resume_in_their_turn() -> None:
    queue = Queue(*nodes(1)).add("sleeper", "zz:n1").add("later")
    assert states(queue.decide("easy-preempt")) == {"sleeper": "running", "later": "waiting"}


def test_what_finds_no_room_when_one_under_way_has_gone_is_suspended() -> None:
    queue = Queue(*nodes(1, cpus=2)).add("a", "n1").add("b", "n1").add("c", "n1")
    queue.add("gone", "n1", preemptible=False, in_transit=True, leaves=True)
    decision = queue.decide("easy-preempt")
    assert states(decision) == {"a": "running", "b": "running", "c": "sleeping", "gone": "running"}
