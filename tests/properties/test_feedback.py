"""Jobs that wait for others before they are submitted: what every schedule of them has to fulfil, whatever made it."""

from __future__ import annotations

import math

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.model.durations import DEFAULTS
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.simulation.capacity import Cluster, interchangeable
from rmsplugin.simulation.feedback import Link, Links, linked_starts, links_of
from rmsplugin.simulation.parameters import ReplayParameters
from rmsplugin.simulation.replay import replay
from rmsplugin.simulation.short_way import queue_of, start_times
from rmsplugin.workload.jobs import Job


@st.composite
def linked(draw: st.DrawFn, most_processors: int, most_jobs: int) -> tuple[list[Job], Links]:
    """Jobs close together, of which many name one that stands before them."""
    jobs: list[Job] = []
    links: dict[int, Link] = {}
    submit_s = 0
    for place in range(draw(st.integers(1, most_jobs))):
        submit_s += draw(st.sampled_from((0, 0, 1, 2, 5, 20)))
        run_s = draw(st.integers(1, 30))
        estimate_s = max(1, run_s + draw(st.sampled_from((-5, 0, 10, 40))))
        size = draw(st.integers(1, most_processors))
        jobs.append(Job(place + 1, submit_s, run_s, size, estimate_s, None, place + 1))
        if place and draw(st.booleans()):
            links[place] = Link(draw(st.integers(0, place - 1)), draw(st.sampled_from((0, 1, 7, 60))))
    return jobs, links


def keeps_links(jobs: list[Job], links: Links, starts: list[float], submits: list[float]) -> None:
    """Each job is submitted when the trace says, and the one before it has ended and its user has thought."""
    for place, job in enumerate(jobs):
        link = links.get(place)
        after = -math.inf if link is None else starts[link.preceding] + jobs[link.preceding].run_s + link.think_s
        assert submits[place] == max(job.submit_s, after)
        assert starts[place] >= submits[place]


@given(linked(most_processors=8, most_jobs=40), st.booleans())
def test_the_schedule_is_that_of_jobs_submitted_at_those_times(case: tuple[list[Job], Links], backfill: bool) -> None:
    jobs, links = case
    starts, submits = linked_starts(queue_of(jobs), links, 8, backfill=backfill)
    keeps_links(jobs, links, starts, submits)
    order = sorted(range(len(jobs)), key=lambda place: (submits[place], place))
    told = [jobs[place]._replace(submit_s=submits[place]) for place in order]
    assert start_times(told, 8, backfill=backfill) == [starts[place] for place in order]


@settings(max_examples=few(40), deadline=None)
@given(linked(most_processors=6, most_jobs=12), st.sampled_from(["fcfs", "easy"]))
def test_the_full_way_keeps_them_too(case: tuple[list[Job], Links], policy: str) -> None:
    jobs, links = case
    jobs = [job._replace(memory_mib=512) for job in jobs]
    cluster = Cluster(nodes=3, cpus_per_node=4, memory_per_node_mib=2048)
    vms = interchangeable(jobs, cluster)
    assert vms is not None
    at_once = Durations.from_values(dict.fromkeys(DEFAULTS, 0.0))
    full = replay(
        jobs, cluster, ReplayParameters(ProposalParameters(policy, durations=at_once), cycle_s=0.0), links=links
    )
    assert [run.job.job_id for run in full.jobs] == [job.job_id for job in jobs]
    starts, submits = linked_starts(queue_of(jobs), links, vms, backfill=policy == "easy")
    assert [run.job.submit_s for run in full.jobs] == submits
    assert [run.start_s for run in full.jobs] == starts


def test_who_names_nobody_that_ends_before_is_not_kept_waiting() -> None:
    """Itself, one behind it in the queue, one that is not simulated: no job waits for ever."""
    jobs = [Job(number, number, 10, 1, 10, None, number) for number in (1, 2, 3, 4)]
    following = {1: (1, 5), 2: (3, 5), 3: (99, 5), 4: (2, 5), 77: (1, 5)}
    assert links_of(jobs, following) == {3: Link(1, 5)}


@pytest.mark.parametrize("backfill", [False, True])
def test_without_links_all_is_as_ever(backfill: bool) -> None:
    jobs = [Job(n, n // 2, 1 + n * 7 % 30, 1 + n * 5 % 8, 1 + n * 11 % 50, None, n) for n in range(1, 200)]
    starts, submits = linked_starts(queue_of(jobs), {}, 8, backfill=backfill)
    assert starts == start_times(jobs, 8, backfill=backfill)
    assert submits == [job.submit_s for job in jobs]
