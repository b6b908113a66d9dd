"""A minicluster of two controllers goes on without the daemons of either."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.engine_settings import configured
from e2e.rooms import Machine, count, finish, have, host_of, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("hold", "--controllers", "2")


def wait_said(cluster: Cluster, words: str) -> None:
    cluster.wait(words, lambda: words in cluster.plugin("status").out, 120, lambda: cluster.plugin("status"))


def test_a_vjob_outlives_slurmctld_and_engine_of_each_controller(cluster: Cluster) -> None:
    wait_said(cluster, "stands by: front2")
    job = count(cluster)
    for host, other in (("head", "front2"), ("front2", "head")):
        wait_number(cluster, job, 8)  # a slurmctld that is killed forgets up to five seconds
        cluster.kill(host, "slurmctld")
        cluster.kill(host, "engine")
        wait_said(cluster, f" on {other}, ")
        cluster.wait("slurmctld", lambda: cluster.run("squeue", "-h", timeout_s=60).code == 0, 120)
        wait_number(cluster, job, 2)
        have(cluster, job, "suspend", "sleeping")
        have(cluster, job, "resume", "running")
        cluster.start(host, "slurmctld")
        cluster.start(host, "engine")
        cluster.wait("slurmctld to stand by", lambda: cluster.run("scontrol", "ping").out.count("is UP") == 2, 120)
        wait_said(cluster, f"stands by: {host}")
    finish(cluster, job)


def test_a_vm_that_died_is_missed_at_once_through_the_agents(cluster: Cluster) -> None:
    """With several controllers libvirt is reached through the nodes' agents, and tells by the same way."""
    wait_said(cluster, "stands by: front2")
    cluster.kill("front2", "engine")
    try:
        with configured(cluster, "engine", "cycle_s = 900"):
            job = count(cluster)
            wait_number(cluster, job, 2)
            node = host_of(cluster, job)
            for pid, words in Machine(cluster).processes(node).items():
                if words and "qemu-system" in words[0] and any(f"guest=vjob{job}-" in word for word in words):
                    os.kill(pid, signal.SIGKILL)
            lost = "the loss to be noticed"
            cluster.wait(lost, lambda: (cluster.vjob(job) or {}).get("losses") == 1, 180, lambda: cluster.describe(job))
            wait_number(cluster, job, 1)
            finish(cluster, job, losses=1)
    finally:
        cluster.start("front2", "engine")
