"""`rmsplugin prefer` on a minicluster: what an operator prefers is done, outlives the engine, and is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import BY_QUEUE, configured
from e2e.queued import WHOLE, nothing_left, wait_reason, wait_rooms
from e2e.rooms import count, explain, finish, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


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
    """On a node for one: the last runs and the head sleeps, then the other way round; then the queue decides."""
    wait_rooms(cluster)
    here = (*WHOLE, "--exclude=" + ",".join(cluster.nodes[1:]))
    head = count(cluster, *here)
    wait_number(cluster, head)
    late = count(cluster, *here, "--nice=9000")
    wait_reason(cluster, late, "needs")

    refused = cluster.plugin("prefer", str(late), "running", user="alice")
    assert refused.code == 1 and refused.err and not shown(cluster, late)["preference"], refused

    prefer(cluster, late, "running")
    wait_state(cluster, head, "sleeping")
    assert cluster.job(head)["JobState"] == "SUSPENDED"
    wait_number(cluster, late)
    cluster.restart_engine()
    assert shown(cluster, late)["preference"] == "running"
    cluster.wait_cycle()
    assert [shown(cluster, job)["state"] for job in (head, late)] == ["sleeping", "running"]

    prefer(cluster, late, "sleeping")
    wait_state(cluster, late, "sleeping")
    wait_number(cluster, head, 2)

    prefer(cluster, late, "auto")
    finish(cluster, head)
    wait_number(cluster, late, 2)
    finish(cluster, late)
    nothing_left(cluster, [head, late])
