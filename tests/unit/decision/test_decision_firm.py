"""Slowdown beside vjobs that may not be preempted: nobody passes for good who makes way for nobody (0150)."""

from __future__ import annotations

import pytest
from unit.queues import Queue, nodes, running, states

from rmsplugin.decision.parameters import ActionDuration, SwitchDurations
from rmsplugin.decision.result import ReasonCode

EAGER = {"exempt_s": 0.0, "durations": SwitchDurations(*[ActionDuration(10.0)] * 3)}
FIRM = {"preemptible": False}
HOUR_S, DAY_S = 3600.0, 86400.0


def beside(*, ends_s: float = HOUR_S) -> Queue:
    """Three nodes, one of which a vjob has that is not preempted, and a preemptible one a second."""
    queue = Queue(*nodes(3)).add("r", "n1", time_limit_s=ends_s, **FIRM)
    return queue.add("other", "n2", time_limit_s=DAY_S, ran_s=HOUR_S)


def test_nobody_who_makes_way_for_nobody_passes_the_first_that_waits_and_is_in_its_way_later() -> None:
    queue = beside().add("wide", vms=3, waited_s=9 * HOUR_S, time_limit_s=HOUR_S)
    queue.add("long", waited_s=60, time_limit_s=2 * HOUR_S, **FIRM)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"r", "other"}
    assert decision.reasons["long"].code is ReasonCode.WOULD_DELAY_HEAD
    assert "leaves no room for wide to start in 3600 s" in str(decision.reasons["long"])
    assert str(decision.reasons["wide"]).endswith("room is held for it in 3600 s")


@pytest.mark.parametrize(
    "known", [{"time_limit_s": 600.0, **FIRM}, {"time_limit_s": 2 * HOUR_S}], ids=["ends in time", "can make way"]
)
def test_who_ends_in_time_and_who_can_make_way_passes_it(known: dict[str, object]) -> None:
    queue = beside().add("wide", vms=3, waited_s=9 * HOUR_S, time_limit_s=HOUR_S).add("a", waited_s=60, **known)
    assert running(queue.decide("slowdown", **EAGER)) == {"r", "other", "a"}


def test_who_fits_beside_it_then_passes_it_and_takes_that_room() -> None:
    # in an hour all six nodes are free, and it needs five
    queue = Queue(*nodes(6)).add("r", "n1", "n2", time_limit_s=HOUR_S, **FIRM)
    queue.add("wide", vms=5, waited_s=9 * HOUR_S, time_limit_s=HOUR_S)
    for name in "ab":
        queue.add(name, waited_s=60, time_limit_s=DAY_S, **FIRM)
    assert running(queue.decide("slowdown", **EAGER)) == {"r", "a"}


def test_those_that_may_not_be_preempted_have_slurms_order_among_themselves_and_the_first_has_its_room() -> None:
    queue = beside().add("wide", vms=3, waited_s=60, time_limit_s=DAY_S, **FIRM)
    queue.add("long", waited_s=9 * HOUR_S, time_limit_s=2 * HOUR_S, **FIRM)
    decision = queue.decide("slowdown", **EAGER)
    assert running(decision) == {"r", "other"}
    # that one of them waits is nothing to those that can make way
    queue.add("short", waited_s=60, time_limit_s=60)
    assert running(queue.decide("slowdown", **EAGER)) == {"r", "other", "short"}


def test_until_those_that_can_make_way_would_others_start() -> None:
    # `wide` has an expansion of 1.5: after an hour more it has 3, and `other` makes way
    queue = Queue(*nodes(2)).add("other", "n1", time_limit_s=DAY_S, ran_s=4 * HOUR_S)
    queue.add("wide", vms=2, waited_s=2400, time_limit_s=2 * HOUR_S, ran_s=3600.0)
    short = {"waited_s": 0, **FIRM}
    for limit_s, starts in ((4800, True), (4801, False)):
        tried = Queue(*queue.nodes)
        tried.vjobs, tried.locations = list(queue.vjobs), dict(queue.locations)
        found = states(tried.add("a", time_limit_s=limit_s, **short).decide("slowdown", **EAGER))
        assert (found["a"] == "running") is starts, limit_s


def test_where_nobody_may_be_preempted_it_is_slurms_order_with_easy() -> None:
    queue = Queue(*nodes(3)).add("r", "n1", time_limit_s=HOUR_S, **FIRM)
    queue.add("wide", vms=3, waited_s=60, time_limit_s=DAY_S, **FIRM)
    queue.add("long", waited_s=30 * DAY_S, time_limit_s=2 * HOUR_S, **FIRM)
    queue.add("short", waited_s=0, time_limit_s=600, **FIRM)
    decision = queue.decide("slowdown", **EAGER)
    assert (decision.policy, running(decision)) == ("slowdown", {"r", "short"})
    assert states(decision) == states(queue.decide("mixed", **EAGER)) == states(queue.decide("easy", **EAGER))
    assert decision.reasons["wide"].code is ReasonCode.RESERVED
