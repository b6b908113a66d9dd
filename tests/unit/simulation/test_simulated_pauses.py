"""Workloads replayed with vjobs that are paused: when they go on, when they are saved, and what is told of them."""

from __future__ import annotations

import math

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import JobRun, Outcome, events_of
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.jobs import Job

#: Memory of each node, and CPUs.
SIZE = Cluster(nodes=1, cpus_per_node=1, memory_per_node_mib=4096)


def job(job_id: int, submit_s: float, run_s: float, memory_mib: int = 1024) -> Job:
    return Job(job_id, submit_s, run_s, 1, estimate_s=run_s, memory_mib=memory_mib, line=job_id)


def replayed(jobs: list[Job], pause_limit_s: float = math.inf, policy: str = "slowdown", **changes: float) -> Outcome:
    decision = Parameters(exempt_s=0.0, pause_limit_s=pause_limit_s)
    proposal = ProposalParameters(policy, decision=decision, durations=Durations())
    return replay(jobs, SIZE, ReplayParameters(proposal, **changes))  # type: ignore[arg-type]


def states(run: JobRun) -> list[str]:
    return [str(each.state) for each in run.intervals]


LONG, SHORT = job(1, 0, 7200), job(2, 3600, 60)


def test_a_short_job_is_served_at_once_and_the_long_one_goes_on_when_it_has_ended() -> None:
    found = replayed([LONG, SHORT])
    long, short = found.jobs
    assert states(long) == [
        *("waiting", "starting", "running", "pausing", "paused", "unpausing", "running", "stopping"),
    ]
    # It need not wait for a pause; to save and resume the other costs as much as it needs itself.
    assert short.start_s - SHORT.submit_s < 60
    assert replayed([LONG, SHORT], 0.0).jobs[1].start_s - SHORT.submit_s > 400
    assert (found.actions()["pause"], found.actions()["unpause"], found.actions()["suspend"]) == (1, 1, 0)
    assert long.suspends == 1
    assert {event.event for event in events_of(found)} >= {"pause", "paused", "unpause"}


def test_it_ends_sooner_than_if_it_were_saved() -> None:
    ends = [replayed([LONG, SHORT], limit_s).jobs[0].end_s for limit_s in (0.0, math.inf)]
    assert ends[1] < ends[0] - Durations().suspend.s_per_mib * 1024


def test_it_is_saved_when_its_memory_is_needed_and_when_it_was_paused_for_long_enough() -> None:
    needed = replayed([LONG, job(2, 3600, 60, 4096)]).jobs[0]
    assert ("paused" in states(needed), "sleeping" in states(needed)) == (False, True)
    over = replayed([job(1, 0, 7200), job(2, 3600, 1800)], 300.0).jobs[0]
    paused = next(each for each in over.intervals if each.state is VJobState.PAUSED)
    assert paused.end_s - paused.begin_s == pytest.approx(300, abs=60)
    assert states(over)[3:7] == ["pausing", "paused", "suspending", "sleeping"]
    assert over.suspends == 1  # it has made way once


def test_one_that_is_paused_is_saved_for_another_that_needs_its_memory() -> None:
    found = replayed([LONG, job(2, 3600, 600), job(3, 4000, 30, 3584)])
    assert states(found.jobs[0])[3:6] == ["pausing", "paused", "suspending"]
    assert all("stopping" in states(run) for run in found.jobs)


@pytest.mark.parametrize("policy", ["rjsp", "mixed", "slowdown", "easy-preempt"])
@pytest.mark.parametrize("pause_limit_s", [60.0, 1800.0, math.inf])
def test_every_job_runs_for_as_long_as_it_takes_whatever_fails(policy: str, pause_limit_s: float) -> None:
    jobs = [job(number, 97 * number, 31 * (number * 7 % 40 + 1), 512 * (number % 4 + 1)) for number in range(1, 40)]
    found = replayed(jobs, pause_limit_s, policy, failure_rate=0.05, seed=3)
    for run in found.jobs:
        computed = sum(each.end_s - each.begin_s for each in run.intervals if each.state is VJobState.RUNNING)
        assert computed >= run.job.run_s - 1e-6
    assert found.faults == {}
