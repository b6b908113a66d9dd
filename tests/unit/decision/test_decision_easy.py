"""FCFS and EASY: the reference schedules job by job, by counting and on nodes; the rules one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from unit.queues import Queue, nodes, running, states
from unit.replayed import REFERENCES, by_id, counting, needs_data, on_nodes, reference, replay, trace

from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.room import NodeRoom, Room
from rmsplugin.model.elements import VJob


@needs_data
@pytest.mark.parametrize(("name", "processors"), REFERENCES)
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_the_pass_equals_the_reference_schedules_job_by_job(name: str, processors: int, policy: str) -> None:
    jobs = trace(name)
    assert by_id(jobs, replay(jobs, counting(processors, policy == "easy"))) == reference(name, policy)


@needs_data
@pytest.mark.parametrize(("name", "processors"), REFERENCES)
@pytest.mark.parametrize("policy", ["fcfs", "easy"])
def test_the_policy_on_nodes_equals_counting_on_the_first_jobs(name: str, processors: int, policy: str) -> None:
    jobs = trace(name)[:400]
    assert replay(jobs, on_nodes(processors // 4, policy)) == replay(jobs, counting(processors, policy == "easy"))


def test_fcfs_stops_at_the_first_that_does_not_fit() -> None:
    queue = Queue(*nodes(3)).add("a", "n1", "n2").add("b", vms=2).add("c")
    decision = queue.decide("fcfs")
    assert states(decision) == {"a": "running", "b": "waiting", "c": "waiting"}
    assert decision.reasons["c"].code is ReasonCode.BEHIND_HEAD
    assert "b" in str(decision.reasons["c"])


def test_what_runs_keeps_running_also_behind_the_head_and_preemptible() -> None:
    queue = Queue(*nodes(3)).add("head", vms=3).add("a", "n1", "n2", time_limit_s=100)
    for policy in ("fcfs", "easy"):
        assert states(queue.decide(policy)) == {"head": "waiting", "a": "running"}


def test_sleeping_vjobs_are_ready_too() -> None:
    decision = Queue(*nodes(2)).add("a", "zz:n1", "zz:n2").decide("fcfs")
    assert states(decision) == {"a": "running"}
    assert decision.sentence == "1 of 1 vjob runs: 1 resumes"


def hole(**candidate: float) -> Decision:
    """Three nodes: one is free, two are freed in 60 s, when the head (which needs three) starts."""
    queue = Queue(*nodes(3)).add("a", "n1", "n2", time_limit_s=100, ran_s=40, preemptible=False)
    return queue.add("head", vms=3, preemptible=False).add("c", preemptible=False, **candidate).decide("easy")


def test_one_that_ends_at_the_shadow_time_is_backfilled() -> None:
    assert running(hole(time_limit_s=60)) == {"a", "c"}


def test_one_that_ends_after_the_shadow_time_is_not() -> None:
    decision = hole(time_limit_s=61)
    assert running(decision) == {"a"}
    assert decision.reasons["c"].code is ReasonCode.WOULD_DELAY_HEAD
    assert decision.reasons["head"].code is ReasonCode.RESERVED
    assert str(decision.reasons["head"]).endswith("reserved to start in at most 60 s")


def test_what_was_used_up_of_the_limit_counts_for_sleeping_ones_too() -> None:
    queue = Queue(*nodes(3)).add("a", "n1", "n2", time_limit_s=60).add("head", vms=3)
    assert "c" in running(queue.add("c", "zz:n1", time_limit_s=100, ran_s=40).decide("easy"))


def test_what_runs_past_the_shadow_time_uses_up_the_extra() -> None:
    queue = Queue(*nodes(4)).add("a", "n1", "n2", time_limit_s=60).add("head", vms=3)
    queue.add("c", time_limit_s=900).add("d", time_limit_s=900).add("e", time_limit_s=60)
    assert running(queue.decide("easy")) == {"a", "c", "e"}


def test_vjobs_started_in_this_very_pass_count_for_the_shadow_time() -> None:
    queue = Queue(*nodes(3)).add("a", vms=2, time_limit_s=50).add("head", vms=2).add("c", time_limit_s=51)
    assert running(queue.decide("easy")) == {"a", "c"}, "extra: 3 - 2"
    queue.add("d", time_limit_s=10)
    decision = queue.decide("easy")
    assert decision.reasons["head"].numbers["shadow_s"] == 50


def test_running_vms_can_be_moved_to_make_room() -> None:
    # 2 x 1,024 MiB free in two pieces: the two that run go together, and a VM of 2,048 MiB has a node for itself.
    cluster = nodes(2, cpus=4, memory_mib=2048)
    queue = Queue(*cluster).add("a", "n1", memory_mib=1024).add("b", "n2", memory_mib=1024).add("c", memory_mib=2048)
    decision = queue.decide("easy")
    assert running(decision) == {"a", "b", "c"}
    assert decision.placement == {"a-0": "n1", "b-0": "n1", "c-0": "n2"}


def test_without_time_limits_a_head_is_delayed_by_nobody_that_never_ends_either() -> None:
    queue = Queue(*nodes(3)).add("a", "n1", "n2").add("head", vms=3).add("c").add("d", time_limit_s=9e9)
    decision = queue.decide("easy")
    assert running(decision) == {"a", "d"}
    assert decision.reasons["c"].code is ReasonCode.WOULD_DELAY_HEAD


def test_a_head_that_fits_nowhere_delays_nobody() -> None:
    decision = Queue(*nodes(3)).add("head", vms=9).add("c").decide("easy")
    assert running(decision) == {"c"}
    assert "does not fit on the empty nodes either" in str(decision.reasons["head"])


def test_one_that_has_outrun_its_limit_may_end_now() -> None:
    queue = Queue(*nodes(2)).add("a", "n1", time_limit_s=10, ran_s=20).add("head", vms=2).add("c", time_limit_s=1)
    decision = queue.decide("easy")
    assert decision.reasons["head"].numbers["shadow_s"] == 0
    assert running(decision) == {"a"}


def test_numbers_of_reasons_are_finite() -> None:
    for limit in (None, 50.0):
        queue = Queue(*nodes(3)).add("a", "n1", "n2", time_limit_s=limit).add("head", vms=3).add("c", time_limit_s=9)
        for reason in queue.decide("easy").reasons.values():
            assert all(isinstance(value, str) or math.isfinite(value) for value in reason.numbers.values())


@pytest.mark.parametrize("policy", ["fcfs", "easy", "easy-preempt", "mixed", "conservative"])
@pytest.mark.parametrize("explains", [True, False])
def test_no_start_is_reserved_that_keeps_nobody_out_unless_somebody_reads_of_it(
    policy: str, explains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing behind the head fits now."""
    asked: list[str] = []
    later = NodeRoom.later

    def counted(self: NodeRoom, items: Iterable[VJob], newest: VJob | None = None) -> Room[VJob] | None:
        asked.append("" if newest is None else newest.name)
        return later(self, items, newest)

    monkeypatch.setattr(NodeRoom, "later", counted)
    queue = Queue(*nodes(2)).add("a", "n1", "n2", time_limit_s=100, preemptible=False)
    queue.add("head", vms=2, preemptible=False).add("b", preemptible=False)
    decision = queue.decide(policy, explains=explains)
    assert states(decision) == {"a": "running", "head": "waiting", "b": "waiting"}
    assert ("head" in asked) == (explains and policy != "conservative")
    assert ("shadow_s" in decision.reasons["head"].numbers) == explains
