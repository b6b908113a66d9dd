"""munged ends on a controller that is a front, too: its vjobs go on at the other front, with whole output."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.cluster import PROGRAM, Cluster
from e2e.conftest import minicluster
from e2e.rooms import Machine, count, finish, last_number, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("hold", "--controllers", "2")


def on_front2(cluster: Cluster, *options: str) -> int:
    """A counting vjob whose wrapper is on front2."""
    cluster.ok("scontrol", "update", "NodeName=front1", "State=DRAIN", "Reason=test")
    try:
        job = count(cluster, *options)
        wait_number(cluster, job, 3)
    finally:
        cluster.ok("scontrol", "update", "NodeName=front1", "State=RESUME")
    assert cluster.job(job)["BatchHost"] == "front2"
    return job


def wrappers(cluster: Cluster, host: str) -> list[int]:
    """The processes on a front that run a vjob."""
    return [pid for pid, words in Machine(cluster).processes(host).items() if {"attach"} <= {*words}]


def status(cluster: Cluster, host: str = "head") -> str:
    told = cluster.run(str(PROGRAM), "status", host=host)
    return told.out + told.err


def wait_said(cluster: Cluster, words: str, host: str = "head") -> None:
    cluster.wait(words, lambda: words in status(cluster, host), 120, lambda: status(cluster, host))


def munge_comes_back(cluster: Cluster) -> None:
    cluster.start("front2", "munged")
    cluster.run("scontrol", "update", "NodeName=front2", "State=RESUME")
    cluster.wait_nodes()
    cluster.wait("no wrapper of a former run", lambda: not wrappers(cluster, "front2"), 120)


@pytest.mark.parametrize("mode", ["truncate", "append"])
def test_the_output_of_a_vjob_is_whole_though_its_wrapper_outlived_its_run(cluster: Cluster, mode: str) -> None:
    """Seen: the wrapper before wrote 55 56 57 and so on into the file that Slurm had emptied for the next run."""
    wait_said(cluster, "stands by: front2")
    job = on_front2(cluster, f"--open-mode={mode}")
    hosts = cluster.qemus(job)
    cluster.kill("front2", "munged")
    # As slurmctld does by itself after SlurmdTimeout, once it has noticed.
    cluster.ok("scontrol", "update", "NodeName=front2", "State=DOWN", "Reason=test")
    try:
        what = "the next run"
        cluster.wait(what, lambda: cluster.job(job).get("BatchHost") == "front1", 300, lambda: cluster.describe(job))
        assert wrappers(cluster, "front2"), "nobody could tell the wrapper before to end"
        began_at = last_number(cluster, job)
        what = "more numbers"
        cluster.wait(what, lambda: last_number(cluster, job) > began_at + 15, 180, lambda: cluster.describe(job))
        assert cluster.qemus(job) == hosts, "its VM was left alone"
        assert "did not answer" not in status(cluster), "nobody waits for the slurmctld there"
        finish(cluster, job)
        assert wrappers(cluster, "front2")
    finally:
        munge_comes_back(cluster)
    wait_said(cluster, "stands by: front2")


def leads(cluster: Cluster, host: str) -> bool:
    told = status(cluster)
    return f" on {host}, " in told and "leads with epoch" in told


def test_nothing_is_lost_where_munge_ends_on_the_controller_that_leads(cluster: Cluster) -> None:
    """Longer than a wrapper may be silent; then the lead goes to the other controller, though munge is still dead."""
    wait_said(cluster, "stands by: front2")
    cluster.ok("scontrol", "update", "NodeName=front2", "State=DRAIN", "Reason=test")
    runs, sleeps = count(cluster), count(cluster)
    wait_number(cluster, runs, 3)
    wait_number(cluster, sleeps, 3)
    assert cluster.plugin("suspend", str(sleeps)).code == 0
    assert cluster.plugin("handover", "--to", "front2").code == 0
    cluster.wait("front2 to lead", lambda: leads(cluster, "front2"), 120, lambda: status(cluster))
    wait_said(cluster, "stands by: head")
    hosts = cluster.qemus(runs)
    cluster.kill("front2", "munged")
    try:
        wait_said(cluster, "munge", host="front2")
        wait_said(cluster, "Until it can, nobody counts as silent", host="front2")
        wait_number(cluster, runs, 45)
        refused = cluster.plugin("resume", str(sleeps), "--no-wait")
        assert refused.code == 1 and "munge may not run on its host" in refused.err, refused.out + refused.err
        for job in (runs, sleeps):
            assert cluster.job(job)["Restarts"] == "0", cluster.describe(job)
        assert cluster.qemus(runs) == hosts and cluster.qemus(sleeps) == []

        handed = cluster.run(str(PROGRAM), "handover", "--to", "head", host="front2")
        assert handed.code == 1 and "cannot be asked from here" in handed.err, handed.out + handed.err
        cluster.wait("the head to lead", lambda: leads(cluster, "head"), 120, lambda: status(cluster))
        wait_number(cluster, runs, 3)
        assert cluster.plugin("resume", str(sleeps)).code == 0
        assert cluster.plugin("suspend", str(runs)).code == 0
        assert cluster.plugin("resume", str(runs)).code == 0
        finish(cluster, runs, sleeps)
    finally:
        munge_comes_back(cluster)
    wait_said(cluster, "stands by: front2")
