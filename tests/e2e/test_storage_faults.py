"""Stores that are full, states that are corrupt, and homes that are not served (issue 2, 6.7)."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from e2e.cluster import Cluster
from e2e.rooms import count, finish, wait_number

pytestmark = pytest.mark.e2e

_COUNTS = """
table inet asked_for_homes {
  chain input {
    type filter hook input priority -200
    tcp dport 2049 tcp flags & (syn | ack) == syn counter
  }
}
"""


@contextlib.contextmanager
def saving_raw(cluster: Cluster, node: str) -> Iterator[None]:
    """A node whose libvirtd does not compress states: Debian 12's may crash when a compressed save fails (0016)."""
    path = cluster.host_path(node, "/etc/libvirt/qemu.conf")
    before = path.read_text()

    def use(text: str) -> None:
        path.write_text(text)
        cluster.kill(node, "libvirtd")
        cluster.start(node, "libvirtd")
        cluster.wait("libvirtd", lambda: cluster.run("virsh", "-c", "qemu:///system", "list", host=node).code == 0, 60)

    use(re.sub("^save_image_format = .*$", 'save_image_format = "raw"', before, flags=re.MULTILINE))
    try:
        yield
    finally:
        use(before)


@contextlib.contextmanager
def small_store(cluster: Cluster, node: str, store: str) -> Iterator[None]:
    """A node on whose store a state has no room, and which lacks the store's marker."""
    cluster.ok("mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", store, host=node)
    try:
        yield
    finally:
        cluster.ok("umount", store, host=node)


def test_a_failed_save_leaves_the_job_running_and_says_why(cluster: Cluster) -> None:
    job = count(cluster)
    wait_number(cluster, job, 3)
    store = "/var/lib/rmsplugin/store"
    for action in ("suspend", "resume"):  # so that the store is set up
        assert cluster.plugin(action, str(job)).code == 0
    node = cluster.vjob(job)["nodes"][0]
    marker = cluster.ok("cat", f"{store}/.rmsplugin-store", host=node)
    with saving_raw(cluster, node), small_store(cluster, node, store):
        result = cluster.plugin("suspend", str(job))
        assert (result.code, "is it mounted?" in result.err) == (1, True)
        cluster.ok("sh", "-c", f"umask 077; echo {marker.strip()} >{store}/.rmsplugin-store", host=node)
        result = cluster.plugin("suspend", str(job))
        assert result.code == 1
        assert "space" in result.err
        assert "Traceback" not in result.err
        assert cluster.vjob(job)["state"] == "running"
        assert cluster.job(job)["JobState"] == "RUNNING"
        assert cluster.qemus(job) == [node]
        assert cluster.ok("ls", store, host=node) == ""
    finish(cluster, job)  # by a signal: the wrapper goes on, although the suspend was followed by the resume at once
    assert "space" in cluster.plugin("events", "--vjob", str(job)).out


@contextlib.contextmanager
def hanging_store(cluster: Cluster, node: str, store: str) -> Iterator[None]:
    """A node whose store's marker nobody can read: who opens a pipe waits for one that writes into it."""
    marker = f"{store}/.rmsplugin-store"
    cluster.ok("sh", "-c", f"mv {marker} {store}/kept && mkfifo {marker}", host=node)
    try:
        yield
    finally:
        # Opened for both, it waits for nobody; whoever still waits goes on.
        cluster.ok("sh", "-c", f"exec 3<>{marker}; mv {store}/kept {marker}", host=node)


@pytest.mark.long
def test_a_save_on_a_store_that_hangs_leaves_the_job_running_and_is_an_outage(cluster: Cluster) -> None:
    job = count(cluster)
    wait_number(cluster, job)
    for action in ("suspend", "resume"):  # so that the store is set up
        assert cluster.plugin(action, str(job)).code == 0
    node = cluster.vjob(job)["nodes"][0]

    def said(kind: str) -> bool:
        return f"the store of saved states on {node}" in cluster.plugin("events", "--kind", kind).out

    with hanging_store(cluster, node, "/var/lib/rmsplugin/store"):
        result = cluster.plugin("suspend", str(job))
        assert (result.code, "did not end in time" in result.err) == (1, True), result
        assert cluster.qemus(job) == [node]
        wait_number(cluster, job, 2)
        cluster.wait("the begin of the outage", lambda: said("store-silent"), 60)
        assert not said("store-answers")
    cluster.wait("the end of the outage", lambda: said("store-answers"), 120)
    for action in ("suspend", "resume"):
        assert cluster.plugin(action, str(job)).code == 0
    finish(cluster, job)


def test_a_corrupt_state_is_never_restored_and_its_job_begins_again(cluster: Cluster) -> None:
    neighbour, job = count(cluster), count(cluster)
    wait_number(cluster, job, 3)
    node = cluster.vjob(job)["nodes"][0]
    assert cluster.plugin("suspend", str(job)).code == 0
    path = cluster.host_path(node, f"/var/lib/rmsplugin/store/vjob{job}-0.state")
    with path.open("r+b") as state:
        state.seek(path.stat().st_size // 2)
        state.write(b"corrupt" * 100)
    result = cluster.plugin("resume", str(job))
    assert result.code == 1
    assert "lost" in result.err
    starts = cluster.home() / f"started.{job}"
    cluster.wait("a second start", lambda: starts.read_text() == "started\n" * 2, 180, lambda: cluster.describe(job))
    wait_number(cluster, job)
    finish(cluster, job, losses=1)
    finish(cluster, neighbour)
    events = cluster.plugin("events", "--vjob", str(job)).out
    assert "state-lost" in events


@contextlib.contextmanager
def counted_tries(cluster: Cluster) -> Iterator[Callable[[], int]]:
    """In the block it can be asked how often somebody has asked the NFS server for a connection."""
    nft = [*cluster.in_network_of("head"), "nft"]
    subprocess.run([*nft, "-f", "-"], input=_COUNTS, text=True, check=True, timeout=60)

    def tries() -> int:
        words = [*nft, "list", "table", "inet", "asked_for_homes"]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        return int(re.findall(r"packets (\d+)", said)[0])

    try:
        yield tries
    finally:
        subprocess.run([*nft, "delete", "table", "inet", "asked_for_homes"], check=True, timeout=60)


def test_a_start_waits_for_an_nfs_server_that_refuses_connections(cluster: Cluster) -> None:
    """Seen: with the server killed, the job was requeued and started again each 6 to 14 s."""
    with counted_tries(cluster) as tries:
        cluster.manage("kill", "head", "nfs")
        try:
            job = cluster.sbatch("#!/bin/sh\necho hello\n", "-c", "1", "--mem=96")
            cluster.wait("the VM to ask again", lambda: tries() >= 3, 120, lambda: cluster.describe(job))
        finally:
            cluster.manage("start", "head", "nfs")
    ended = cluster.wait_job(job, timeout_s=120)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "0"), cluster.describe(job)
    assert cluster.output(job) == "hello\n"
