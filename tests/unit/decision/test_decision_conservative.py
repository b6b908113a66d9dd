"""Conservative backfilling: equal to an oracle that counts each second; on nodes as by counting; the rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.queues import Queue, nodes, running, states
from unit.replayed import CountingRoom, Scheduler, needs_data, on_nodes, replay, trace

from rmsplugin.decision.conservative import Profile
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.workload.jobs import Job


def oracle(processors: int, runs: Sequence[tuple[int, int]], waits: Sequence[tuple[int, int]]) -> list[int | None]:
    """When each job begins, None at once: second by second. Jobs are (processors, seconds); now is an instant before.

    A job whose estimate is over still runs at this instant.
    """
    horizon = sum(seconds for _, seconds in (*runs, *waits)) + 1
    now, free = processors - sum(size for size, _ in runs), [processors] * (horizon + 1)
    for size, seconds in runs:
        for second in range(seconds):
            free[second] -= size
    begins: list[int | None] = []
    for size, seconds in waits:
        if now >= size and all(left >= size for left in free[:seconds]):
            now, begin = now - size, 0
            begins.append(None)
        else:
            begin = next(t for t in range(horizon) if all(left >= size for left in free[t : t + seconds]))
            begins.append(begin)
        for second in range(begin, begin + seconds):
            free[second] -= size
    return begins


def job(number: int, processors: int, estimate_s: float) -> Job:
    return Job(number, 0.0, 1.0, processors, estimate_s, None, number)


def begins(processors: int, runs: Sequence[Job], waits: Sequence[Job]) -> list[float | None]:
    profile = Profile.of(runs, CountingRoom(processors, runs), lambda each: each.estimate_s)
    return [profile.begin_s(each, each.estimate_s) for each in waits]


shapes = st.tuples(st.integers(1, 4), st.integers(1, 6))


@settings(max_examples=few(400))
@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 6)), max_size=3), st.lists(shapes, max_size=7))
def test_each_begins_as_by_an_oracle_that_counts_each_second(
    runs: list[tuple[int, int]], waits: list[tuple[int, int]]
) -> None:
    started = [job(number, *each) for number, each in enumerate(runs)]
    ready = [job(100 + number, *each) for number, each in enumerate(waits)]
    assert begins(6, started, ready) == oracle(6, runs, waits)


def counted(processors: int) -> Scheduler:
    def starts(now: float, waiting: Sequence[Job], started: Mapping[Job, float]) -> Iterable[Job]:
        profile = Profile.of(
            list(started), CountingRoom(processors, started), lambda each: started[each] + each.estimate_s - now
        )
        return [each for each in waiting if profile.begin_s(each, each.estimate_s) is None]

    return starts


@needs_data
@pytest.mark.parametrize(("name", "processors"), [("kth_sp2_5k", 100), ("sdsc_sp2_5k", 128)])
def test_the_policy_on_nodes_equals_counting_on_the_first_jobs(name: str, processors: int) -> None:
    jobs = trace(name)[:150]
    assert replay(jobs, on_nodes(processors // 4, "conservative")) == replay(jobs, counted(processors))


def hole(**candidate: float) -> Decision:
    """Four nodes: one is free; in 60 s the first that waits starts on three, and 100 s later the second on four."""
    queue = Queue(*nodes(4)).add("a", "n1", "n2", "n3", time_limit_s=100, ran_s=40)
    queue.add("first", vms=3, time_limit_s=100).add("second", vms=4, time_limit_s=500)
    return queue.add("c", **candidate).decide("conservative")


def test_one_that_ends_before_all_ahead_of_it_begin_passes() -> None:
    assert running(hole(time_limit_s=160)) == {"a", "c"}


def test_one_that_would_delay_the_second_of_the_queue_does_not_though_easy_would_let_it() -> None:
    decision = hole(time_limit_s=161)
    assert states(decision) == {"a": "running", "first": "waiting", "second": "waiting", "c": "waiting"}
    assert str(decision.reasons["second"]).endswith("reserved to start in at most 160 s")
    assert str(decision.reasons["c"]).startswith("fits now, but not beside those ahead of it for as long as it may run")
    queue = Queue(*nodes(4)).add("a", "n1", "n2", "n3", time_limit_s=100, ran_s=40)
    queue.add("first", vms=3, time_limit_s=100).add("second", vms=4, time_limit_s=500).add("c", time_limit_s=161)
    assert "c" in running(queue.decide("easy"))


def test_nothing_that_runs_is_suspended() -> None:
    queue = Queue(*nodes(2)).add("head", vms=2, priority=9).add("a", "n1")
    assert states(queue.decide("conservative")) == {"head": "waiting", "a": "running"}


def test_one_that_never_ends_does_not_delay_one_that_waits_for_another_that_never_ends() -> None:
    queue = Queue(*nodes(3)).add("a", "n1", "n2").add("head", vms=3, time_limit_s=50)
    decision = queue.add("short", time_limit_s=10).add("endless").decide("conservative")
    assert states(decision) == {"a": "running", "head": "waiting", "short": "running", "endless": "waiting"}
    assert decision.reasons["head"].code is ReasonCode.NO_ROOM
    queue = Queue(*nodes(3)).add("a", "n1", "n2").add("head", vms=3, time_limit_s=50)
    assert states(queue.add("endless").decide("conservative"))["endless"] == "waiting"


def test_what_fits_on_no_empty_cluster_holds_nobody_up() -> None:
    decision = Queue(*nodes(2)).add("huge", vms=3).add("endless").decide("conservative")
    assert states(decision) == {"huge": "waiting", "endless": "running"}
    assert begins(4, [], [job(1, 9, math.inf), job(2, 4, math.inf)]) == [math.inf, None]
