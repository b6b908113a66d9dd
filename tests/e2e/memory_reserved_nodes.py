"""A node is reserved for a vjob that has outgrown its own, takes it, and small ones flow on elsewhere (issue 11, 5).

Too long for CI: ``contrib/run-campaign memory``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.crowd import Crowd, crowded_cluster, events, reserved, slept_s
from e2e.holding import hold, wait_counting
from e2e.rooms import explain, finish, host_of, last_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from crowded_cluster()


def test_a_reserved_node_takes_who_has_outgrown_its_own_and_small_ones_flow_on_elsewhere(cluster: Cluster) -> None:
    crowd, since = Crowd(cluster), time.time()
    node = crowd.grow()
    source = host_of(cluster, crowd.large)
    small = [hold(cluster, 400, 0) for _ in range(2)]
    wait_counting(cluster, *small)
    assert node not in {host_of(cluster, job) for job in small}, explain(cluster)
    there = next(job for job in crowd.others if host_of(cluster, job) == node)
    crowd.others.remove(there)
    finish(cluster, there)
    cluster.wait("the large one to come", lambda: host_of(cluster, crowd.large) == node, 180, lambda: explain(cluster))
    assert source != node
    wait_counting(cluster, crowd.large, *crowd.others, *small)
    shown = reserved(cluster)
    assert shown is not None and shown["guests"] == [f"vjob{crowd.large}-0"]
    print(f"mixed: suspended, s: {slept_s(cluster, since)}; reserved: {events(cluster, 'node-reserved')[-2:]}")
    assert not slept_s(cluster, since)
    finish(cluster, crowd.large)
    cluster.wait("the release", lambda: not reserved(cluster), 60, lambda: explain(cluster))
    assert events(cluster, "node-released")[-1].endswith("have ended")
    finish(cluster, *crowd.others, *small)
    assert all(last_number(cluster, job) > 0 for job in small)
