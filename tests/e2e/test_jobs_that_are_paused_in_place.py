"""Platform native on a real Slurm: plain jobs behind the gate are paused where they are; Slurm's books stay true."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.native_site import COUNTS, COUNTS_ON_ALL_NODES, counted_without_a_gap, read_books, true_books

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

#: All CPUs of a node.
WHOLE = ("-p", "batch", "-n", "1", "-c", "2", "--mem=300", "-t", "20")
ALL_NODES = ("-p", "urgent", "-N", "3", "--ntasks-per-node=2", "--mem=300", "-t", "20")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes of two CPUs, three of which are native. RMSPLUGIN_E2E_NATIVE_DIR names one that is up already."""
    kept = os.environ.get("RMSPLUGIN_E2E_NATIVE_DIR")
    if kept:
        yield Cluster(Path(kept))
        return
    site = Cluster(Path("/var/tmp") / f"rmsplugin-e2e-native-{os.getpid()}-{secrets.token_hex(2)}")
    try:
        result = site.manage("up", "--native", "--nodes", "4", "--cycle-s", "3", "--watch-s", "1")
        assert result.code == 0, result.err
        yield site
    finally:
        site.manage("down")


@pytest.fixture(autouse=True)
def clean(cluster: Cluster) -> Iterator[None]:
    """No job outlives the test that submitted it."""
    yield
    if cluster.ask("/v1/status") is None:
        cluster.restart_engine()
    cluster.run("scancel", "--user", "alice")
    queue = ("squeue", "-h", "-u", "alice")
    cluster.wait("an empty queue", lambda: not cluster.ok(*queue).strip(), 90, lambda: cluster.ok(*queue))


def run(cluster: Cluster, script: str, *options: str) -> int:
    """A job that has begun to count."""
    job = cluster.sbatch(script, *options)
    wait_counting(cluster, job)
    return job


def wait_counting(cluster: Cluster, job: int, beyond: int = 0) -> None:
    cluster.wait(
        f"job {job} to count beyond {beyond}",
        lambda: counted_without_a_gap(cluster, job) > beyond,
        120,
        lambda: cluster.describe(job),
    )


def stands_still(cluster: Cluster, job: int) -> int:
    """How far a job has counted that does not count on."""
    time.sleep(2.5)  # slurmstepd stops processes in two steps, two seconds apart
    before = counted_without_a_gap(cluster, job)
    time.sleep(1)
    assert counted_without_a_gap(cluster, job) == before
    return before


def test_a_job_of_a_higher_tier_pauses_others_which_go_on_where_they_were(cluster: Cluster) -> None:
    with true_books(cluster):
        two_nodes = run(cluster, COUNTS_ON_ALL_NODES, "-p", "batch", "-N", "2", "--ntasks-per-node=2", "--mem=300")
        one_node = run(cluster, COUNTS, *WHOLE)
        urgent = run(cluster, COUNTS_ON_ALL_NODES, *ALL_NODES)
        for job in (two_nodes, one_node):
            cluster.wait_job(job, "SUSPENDED")
            cluster.wait_vjob(job, "paused")
        reached = {job: stands_still(cluster, job) for job in (two_nodes, one_node)}
        cluster.ok("scancel", str(urgent))
        for job, count in reached.items():
            cluster.wait_vjob(job, "running")
            wait_counting(cluster, job, beyond=count)
    rows = cluster.sacct(two_nodes, "State,Suspended")
    assert rows[0]["Suspended"] != "00:00:00"


def test_an_engine_killed_while_it_pauses_and_continues_leaves_nothing_behind(cluster: Cluster) -> None:
    with true_books(cluster):
        jobs = [run(cluster, COUNTS, *WHOLE) for _ in range(3)]
        urgent = cluster.sbatch(COUNTS_ON_ALL_NODES, *ALL_NODES)

        def one_is_suspended() -> bool:
            books = read_books(cluster)
            return books is not None and "SUSPENDED" in [books.states.get(str(job)) for job in jobs]

        cluster.wait("the first pause", one_is_suspended, 120, lambda: cluster.describe(urgent), every_s=0.02)
        cluster.kill("head", "engine")
        cluster.restart_engine()
        wait_counting(cluster, urgent)
        for job in jobs:
            cluster.wait_vjob(job, "paused")
        cluster.ok("scancel", str(urgent))
        cluster.wait(
            "the first to go on",
            lambda: not one_is_suspended() or any(cluster.job(job)["JobState"] == "RUNNING" for job in jobs),
            120,
            every_s=0.02,
        )
        cluster.kill("head", "engine")
        cluster.restart_engine()
        for job in jobs:
            cluster.wait_vjob(job, "running")
            wait_counting(cluster, job, beyond=counted_without_a_gap(cluster, job))


def test_jobs_go_on_while_the_engine_is_dead_and_others_wait(cluster: Cluster) -> None:
    job = run(cluster, COUNTS, *WHOLE)
    cluster.kill("head", "engine")
    waiting = cluster.sbatch(COUNTS, *WHOLE)
    wait_counting(cluster, job, beyond=counted_without_a_gap(cluster, job) + 10)
    assert cluster.job(waiting)["JobState"] == "PENDING"
    cluster.restart_engine()
    wait_counting(cluster, waiting)
    assert cluster.wait_vjob(job, "running")["state"] == "running"


def test_a_paused_job_that_is_cancelled_leaves_nothing(cluster: Cluster) -> None:
    with true_books(cluster):
        paused = run(cluster, COUNTS, *WHOLE, "-w", "n1")
        urgent = run(cluster, COUNTS_ON_ALL_NODES, *ALL_NODES)
        cluster.wait_vjob(paused, "paused")
        cluster.ok("scancel", str(paused), user="alice")
        assert cluster.wait_job(paused)["JobState"] == "CANCELLED"
        cluster.wait_vjob(paused, "terminated")
        wait_counting(cluster, urgent, beyond=counted_without_a_gap(cluster, urgent))


@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_requeued_job_waits_behind_the_gate_and_begins_anew(cluster: Cluster, state: str) -> None:
    with true_books(cluster):
        job = run(cluster, COUNTS, *WHOLE, "-w", "n1")
        urgent = 0
        if state == "paused":
            urgent = run(cluster, COUNTS_ON_ALL_NODES, *ALL_NODES)
            cluster.wait_vjob(job, "paused")
        cluster.ok("scontrol", "requeue", str(job))
        if urgent:
            cluster.wait_vjob(job, "waiting")
            assert "vjobgate" in cluster.job(job)["Licenses"]
            cluster.ok("scancel", str(urgent))
        cluster.wait(
            "a second run",
            lambda: cluster.job(job)["Restarts"] == "1" and cluster.job(job)["JobState"] == "RUNNING",
            240,
            lambda: cluster.describe(job),
        )
        cluster.wait_vjob(job, "running")
        wait_counting(cluster, job)


def test_elements_of_an_array_get_their_turns(cluster: Cluster) -> None:
    with true_books(cluster):
        options = ("-p", "batch", "-n", "1", "-c", "2", "--mem=300", "-a", "1-5", "-t", "5")
        job = cluster.sbatch("#!/bin/sh\nsleep 2\necho done\n", *options)
        rows = cluster.accounted(job, "JobID", jobs=5)
        assert {row["State"] for row in rows} == {"COMPLETED"}


def test_a_slurmctld_that_forgets_a_pause_is_told_again(cluster: Cluster) -> None:
    job = run(cluster, COUNTS, *WHOLE, "-w", "n1")
    cluster.wait_saved(cluster.job(job)["JobName"])
    urgent = run(cluster, COUNTS_ON_ALL_NODES, *ALL_NODES)
    cluster.wait_saved(cluster.job(urgent)["JobName"])
    cluster.wait_vjob(job, "paused")
    cluster.kill("head", "slurmctld")
    cluster.start("head", "slurmctld")
    cluster.wait_job(job, "SUSPENDED")
    stands_still(cluster, job)
    cluster.ok("scancel", str(urgent))
    cluster.wait_vjob(job, "running")
    wait_counting(cluster, job, beyond=counted_without_a_gap(cluster, job))


def test_a_paused_job_on_a_node_that_drains_goes_on_and_the_node_gets_empty(cluster: Cluster) -> None:
    job = run(cluster, COUNTS, *WHOLE, "-w", "n1")
    urgent = run(cluster, COUNTS_ON_ALL_NODES, *ALL_NODES)
    cluster.wait_vjob(job, "paused")
    cluster.ok("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    try:
        reached = stands_still(cluster, job)
        cluster.ok("scancel", str(urgent))
        wait_counting(cluster, job, beyond=reached)
    finally:
        cluster.ok("scontrol", "update", "NodeName=n1", "State=RESUME")


def test_a_drain_ends_when_no_job_is_left_on_the_node(cluster: Cluster) -> None:
    job = run(cluster, COUNTS, *WHOLE, "-w", "n1")
    try:
        begun = cluster.run("rmsplugin", "drain", "n1", "--reason", "test", "--timeout", "10")
        assert (begun.code, "n1: 1 VM left" in begun.err) == (1, True), begun
        cluster.ok("scancel", str(job))
        assert "no VM is left" in cluster.ok("rmsplugin", "drain", "n1", "--reason", "test", "--timeout", "60")
        assert "none" in cluster.ok("rmsplugin", "nodes", "n1", "--format=room")
    finally:
        cluster.ok("rmsplugin", "undrain", "n1", "--timeout", "60")


def test_a_job_that_another_hand_starts_is_counted_with_as_it_is(cluster: Cluster) -> None:
    """Nothing that has run is thrown away; the next switch pauses it as any other."""
    cluster.kill("head", "engine")
    job = cluster.sbatch(COUNTS, *WHOLE)
    cluster.ok("scontrol", "update", f"JobId={job}", "Licenses=")
    cluster.wait_job(job, "CONFIGURING", "RUNNING")
    cluster.restart_engine()
    cluster.wait_vjob(job, "running")
    urgent = run(cluster, COUNTS_ON_ALL_NODES, *ALL_NODES)
    cluster.wait_vjob(job, "paused")
    reached = stands_still(cluster, job)
    cluster.ok("scancel", str(urgent))
    wait_counting(cluster, job, beyond=reached)


def test_jobs_of_other_partitions_are_none_of_the_engines_business(cluster: Cluster) -> None:
    job = cluster.sbatch(COUNTS, "-p", "plain", "-n", "1", "-c", "2")
    wait_counting(cluster, job)
    assert cluster.vjob(job) is None
    assert cluster.job(job)["NodeList"] == "n4"
    assert cluster.job(job)["Licenses"] == "(null)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-N", "2", "-n", "3"), "cannot be the same number on each of 2 nodes"),
        (("--exclusive",), "--exclusive"),
        (("--mem=0",), "--mem=0"),
        (("-n", "3"), "no node has 3 CPUs"),
    ],
)
def test_what_cannot_be_counted_is_refused_at_once(cluster: Cluster, options: tuple[str, ...], words: str) -> None:
    result = cluster.submit(COUNTS, "-p", "batch", *options)
    assert result.code != 0
    assert words in result.err
