"""The short way of the simulator makes the schedules of the policies that decide in the engine."""

from __future__ import annotations

import heapq
from random import Random

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.replayed import counting
from unit.replayed import replay as replay_passes

from rmsplugin.model.durations import DEFAULTS
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster, fitting, interchangeable
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.releases import Releases
from rmsplugin.simulation.replay import replay
from rmsplugin.simulation.short_way import start_times
from rmsplugin.workload.faults import Faults
from rmsplugin.workload.jobs import Job


@st.composite
def workloads(draw: st.DrawFn, most_processors: int, most_jobs: int) -> list[Job]:
    """Jobs so close together that the queue is long, with equal instants, wrong estimates, and runs of 0 s."""
    jobs = []
    submit_s = 0
    for line in range(1, draw(st.integers(1, most_jobs)) + 1):
        submit_s += draw(st.sampled_from((0, 0, 1, 2, 5, 20)))
        run_s = draw(st.integers(0, 30))
        # Users ask for too much; the limit is not kept to everywhere, so a job may also outrun it.
        estimate_s = max(1, run_s + draw(st.sampled_from((-5, 0, 0, 1, 10, 40))))
        jobs.append(Job(line, submit_s, run_s, draw(st.integers(1, most_processors)), estimate_s, None, line))
    return jobs


@given(workloads(most_processors=8, most_jobs=40), st.booleans())
def test_the_short_way_equals_the_pass_of_the_policies(jobs: list[Job], backfill: bool) -> None:
    assert start_times(jobs, 8, backfill=backfill) == replay_passes(jobs, counting(8, backfill))


@pytest.mark.parametrize("backfill", [True, False])
def test_the_short_way_equals_the_pass_on_crowded_clusters(backfill: bool) -> None:
    """What Hypothesis seldom makes: queues that stay long, in which many could be backfilled, and few may be."""
    for seed in range(60):
        random = Random(seed)
        jobs = []
        for line in range(1, 61):
            run_s = random.randint(0, 30)
            estimate_s = max(1, run_s + random.choice((-5, 0, 5, 30)))
            jobs.append(Job(line, line * 3, run_s, random.choice((1, 1, 1, 2, 3, 5, 8)), estimate_s, None, line))
        assert start_times(jobs, 8, backfill=backfill) == replay_passes(jobs, counting(8, backfill)), seed


@pytest.mark.parametrize("backfill", [True, False])
def test_the_short_way_equals_the_pass_where_hundreds_wait(backfill: bool) -> None:
    """Lanes are rebuilt with jobs that left from their middle, releases fill more than one bucket."""
    random = Random(7)
    sizes = [1] * 20 + [2, 3, 5, 8, 700]
    jobs = []
    for line in range(1, 1501):
        run_s = random.randint(1, 400)
        estimate_s = random.choice((run_s, run_s * 3, 400, run_s + random.randint(0, 99)))
        jobs.append(Job(line, line // 30, run_s, random.choice(sizes), estimate_s, None, line))
    assert start_times(jobs, 900, backfill=backfill) == replay_passes(jobs, counting(900, backfill))


@settings(max_examples=few(40), deadline=None)
@given(workloads(most_processors=6, most_jobs=12), st.sampled_from(["fcfs", "easy"]), st.sampled_from([0, 512, 800]))
def test_the_short_way_equals_the_full_way_where_nothing_takes_time(
    jobs: list[Job], policy: str, memory_mib: int
) -> None:
    """The full way: a VM for each processor, on nodes of 4 CPUs and 1,600 MiB, which host 4, 3 or 2 of them.

    No job outruns its limit: the full way expects all that have done so to end now, the short way each at its own
    estimate, as the reference schedules have it. (Seen: two such jobs, and a head that starts a second later.)
    """
    jobs = [job._replace(memory_mib=memory_mib, estimate_s=max(job.estimate_s, job.run_s)) for job in jobs]
    cluster = Cluster(nodes=3, cpus_per_node=4, memory_per_node_mib=1600)
    jobs = fitting(jobs, cluster, Faults())
    at_once = Durations.from_values(dict.fromkeys(DEFAULTS, 0.0))
    parameters = ReplayParameters(ProposalParameters(policy, durations=at_once), cycle_s=0.0)
    full = replay(jobs, cluster, parameters)
    vms = interchangeable(jobs, cluster)
    assert vms is not None
    assert start_times(jobs, vms, backfill=policy == "easy") == [run.start_s for run in full.jobs]
    assert [run.end_s for run in full.jobs] == [run.start_s + run.job.run_s for run in full.jobs]


@given(workloads(most_processors=8, most_jobs=40), st.booleans())
def test_no_processor_is_given_away_twice_and_nobody_starts_before_it_is_submitted(
    jobs: list[Job], backfill: bool
) -> None:
    started = start_times(jobs, 8, backfill=backfill)
    ends: list[tuple[float, int]] = []
    used = 0
    for job, start_s in sorted(zip(jobs, started, strict=True), key=lambda pair: pair[1]):
        assert start_s >= job.submit_s
        while ends and ends[0][0] <= start_s:
            used -= heapq.heappop(ends)[1]
        used += job.processors
        assert used <= 8
        heapq.heappush(ends, (start_s + job.run_s, job.processors))
    if not backfill:
        assert started == sorted(started)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4)), min_size=1, max_size=60), st.randoms(), st.data())
def test_releases_are_those_of_a_sorted_list(pairs: list[tuple[int, int]], random: Random, data: st.DataObject) -> None:
    releases = Releases(largest_bucket=4)
    for job, (end_s, processors) in enumerate(pairs):
        releases.add(end_s, job, processors)
    gone = random.sample(range(len(pairs)), len(pairs) // 2)
    for job in gone:
        releases.remove(pairs[job][0], job, pairs[job][1])
    left = [pair for job, pair in enumerate(pairs) if job not in gone]
    missing = data.draw(st.integers(1, sum(processors for _, processors in left)))
    freed = {by_s: sum(processors for end_s, processors in left if end_s <= by_s) for by_s in range(51)}
    shadow_s = min(by_s for by_s, processors in freed.items() if processors >= missing)
    assert releases.shadow(missing) == (shadow_s, freed[shadow_s] - missing)
