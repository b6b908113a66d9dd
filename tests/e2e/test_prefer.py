"""`rmsplugin prefer` on a minicluster: what an operator prefers is done, outlives the engine, and is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import BY_QUEUE, configured
from e2e.queued import WHOLE, nothing_left, wait_reason, wait_rooms
from e2e.rooms import count, explain, finish, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def by_queue(cluster: Cluster) -> Iterator[None]:
    """The engine decides in the order of the queue."""
    with configured(cluster, *BY_QUEUE):
        yield


def prefer(cluster: Cluster, job: int, state: str) -> None:
    told = cluster.plugin("prefer", str(job), state)
    assert (told.code, told.err) == (0, ""), told
    assert shown(cluster, job)["preference"] == ("" if state == "auto" else state)


def shown(cluster: Cluster, job: int) -> dict[str, Any]:
    vjob = cluster.vjob(job)
    assert vjob is not None, cluster.describe(job)
    return vjob


def wait_state(cluster: Cluster, job: int, state: str) -> None:
    cluster.wait(
        f"vjob {job} to be {state}", lambda: shown(cluster, job)["state"] == state, 180, lambda: explain(cluster)
    )


def test_what_an_operator_prefers_is_done_and_the_scripts_miss_nothing(cluster: Cluster) -> None:
    """On as many nodes as there are vjobs ahead of it, the last one runs, the first sleeps; then the queue decides."""
    wait_rooms(cluster)
    jobs = [count(cluster, *WHOLE, f"--nice={1000 * place}") for place, _ in enumerate(cluster.nodes)]
    for job in jobs:
        wait_number(cluster, job)
    late = count(cluster, *WHOLE, "--nice=9000")
    wait_reason(cluster, late, "needs")

    refused = cluster.plugin("prefer", str(late), "running", user="alice")
    assert refused.code == 1 and refused.err and not shown(cluster, late)["preference"], refused

    prefer(cluster, late, "running")
    wait_number(cluster, late)
    wait_state(cluster, jobs[-1], "sleeping")

    prefer(cluster, jobs[0], "sleeping")
    wait_state(cluster, jobs[0], "sleeping")
    assert cluster.job(jobs[0])["JobState"] == "SUSPENDED"
    wait_state(cluster, jobs[-1], "running")
    cluster.restart_engine()
    assert [shown(cluster, job)["preference"] for job in (jobs[0], late)] == ["sleeping", "running"]
    cluster.wait_cycle()
    assert shown(cluster, jobs[0])["state"] == "sleeping"

    prefer(cluster, jobs[0], "auto")
    prefer(cluster, late, "auto")
    wait_number(cluster, jobs[0], 2)
    wait_state(cluster, late, "sleeping")

    finish(cluster, *jobs)
    wait_number(cluster, late, 2)
    finish(cluster, late)
    nothing_left(cluster, [*jobs, late])
