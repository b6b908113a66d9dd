"""Fronts: where wrappers run. The loss of one loses no work (issue 7, 6.h)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.rooms import Machine, count, finish, last_number, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("hold", "--fronts", "2")


def on_front2(cluster: Cluster, *options: str) -> int:
    """A counting vjob whose wrapper is on front2."""
    cluster.ok("scontrol", "update", "NodeName=front1", "State=DRAIN", "Reason=test")
    try:
        job = count(cluster, *options)
        wait_number(cluster, job)
    finally:
        cluster.ok("scontrol", "update", "NodeName=front1", "State=RESUME")
    assert cluster.job(job)["BatchHost"] == "front2"
    return job


def lose(cluster: Cluster, host: str) -> None:
    """End everything that runs on a host but what the minicluster needs to start it again, as a loss of power does."""
    cluster.kill(host, "slurmd")
    for pid, words in Machine(cluster).processes(host).items():
        if not {"minicluster_lib.host_init", "/usr/sbin/munged"} & {*words}:
            with contextlib.suppress(ProcessLookupError):  # it ended with another one
                os.kill(pid, signal.SIGKILL)


def test_the_loss_of_a_front_loses_no_work_of_vjobs_that_run_or_sleep(cluster: Cluster) -> None:
    runs, sleeps = on_front2(cluster), on_front2(cluster)
    assert cluster.plugin("suspend", str(sleeps)).code == 0
    hosts = cluster.qemus(runs)
    slept_at = last_number(cluster, sleeps)
    lose(cluster, "front2")
    try:
        cluster.wait(
            "the requeue", lambda: cluster.job(runs).get("BatchHost") == "front1", 300, lambda: cluster.describe(runs)
        )
        wait_number(cluster, runs, 2)
        assert cluster.qemus(runs) == hosts, "its VM was left alone"
        assert cluster.vjob(sleeps)["state"] == "sleeping"
        resumed = cluster.plugin("resume", str(sleeps))
        assert resumed.code == 0, resumed.err
        # Its new wrapper delivers all output from the beginning: for a moment there are fewer numbers than before.
        cluster.wait(
            "more numbers", lambda: last_number(cluster, sleeps) > slept_at, 180, lambda: cluster.describe(sleeps)
        )
        assert cluster.job(sleeps)["BatchHost"] == "front1"
        finish(cluster, runs, sleeps)
    finally:
        cluster.start("front2", "slurmd")
        cluster.wait_nodes()
