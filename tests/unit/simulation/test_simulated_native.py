"""Workloads replayed on a platform that pauses and saves nothing: plain Slurm jobs that make way where they are."""

from __future__ import annotations

import math

import pytest

from rmsplugin.decision.parameters import Parameters
from rmsplugin.model.capabilities import NATIVE
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster
from rmsplugin.simulation.outcome import JobRun, Outcome
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.workload.jobs import Job

SIZE = Cluster(nodes=2, cpus_per_node=2, memory_per_node_mib=4096, cpus_per_vm=2)


def job(job_id: int, submit_s: float, run_s: float, processors: int = 2, memory_mib: int = 512, **more: float) -> Job:
    return Job(job_id, submit_s, run_s, processors, run_s, memory_mib=memory_mib, line=job_id, **more)  # type: ignore[arg-type]


def replayed(jobs: list[Job], policy: str = "slowdown", **changes: float) -> Outcome:
    decision = Parameters(exempt_s=0.0, pause_limit_s=math.inf)
    proposal = ProposalParameters(
        policy, decision=decision, durations=Durations(), capabilities=NATIVE, cpu_in_plan=True
    )
    return replay(jobs, SIZE, ReplayParameters(proposal, **changes))  # type: ignore[arg-type]


def states(run: JobRun) -> list[str]:
    return [str(each.state) for each in run.intervals]


def nodes(run: JobRun, state: VJobState) -> list[tuple[str, ...]]:
    return [each.nodes for each in run.intervals if each.state is state]


#: One long job on each node, and a short one that comes later.
LONG, OTHER, SHORT = job(1, 0, 7200), job(2, 0, 7200), job(3, 3600, 60)


def test_a_short_job_runs_while_a_long_one_is_paused_which_goes_on_where_it_was() -> None:
    found = replayed([LONG, OTHER, SHORT])
    short, paused = found.jobs[2], next(run for run in found.jobs if "paused" in states(run))
    assert short.start_s - SHORT.submit_s < 60
    assert states(paused)[2:7] == ["running", "pausing", "paused", "unpausing", "running"]
    assert len({*nodes(paused, VJobState.RUNNING), *nodes(paused, VJobState.PAUSED)}) == 1
    assert {kind for kind, count in found.actions().items() if count} == {"run", "pause", "unpause"}
    assert found.faults == {}


def test_nobody_is_paused_for_a_job_that_needs_the_memory_which_stays_taken() -> None:
    found = replayed([LONG, OTHER, job(3, 3600, 60, memory_mib=1900)])
    assert not any("paused" in states(run) for run in found.jobs)
    assert found.jobs[2].start_s > 7200


def test_a_job_is_as_large_as_it_asked_however_little_it_uses() -> None:
    """Slurm starts no job beside CPUs that it gave away: these use a tenth of theirs."""
    jobs = [job(number, 0, 600, 1, cpus_per_vm=1, average_cpu_s=60.0) for number in range(1, 7)]
    found = replayed(jobs, "rjsp")
    assert sorted(round(run.start_s, -2) for run in found.jobs) == [0, 0, 0, 0, 600, 600]


@pytest.mark.parametrize("policy", ["easy-preempt", "rjsp", "mixed", "slowdown"])
def test_every_job_runs_for_as_long_as_it_takes_and_moves_nowhere_whatever_fails(policy: str) -> None:
    jobs = [
        job(number, 97 * number, 31 * (number * 7 % 40 + 1), number % 4 + 1, 256 * (number % 4 + 1))
        for number in range(1, 40)
    ]
    found = replayed(jobs, policy, failure_rate=0.05, seed=3)
    assert found.faults == {}
    for run in found.jobs:
        computed = sum(each.end_s - each.begin_s for each in run.intervals if each.state is VJobState.RUNNING)
        assert computed >= run.job.run_s - 1e-6
        assert len({*nodes(run, VJobState.RUNNING), *nodes(run, VJobState.PAUSED)}) == 1
        assert not {"sleeping", "suspending", "resuming"} & {*states(run)}
