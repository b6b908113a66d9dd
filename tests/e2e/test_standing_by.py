"""Engines of one host that agree by ZooKeeper on who leads: jobs outlive the end of the one that leads."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.zookeeper_ensemble import JAR
from e2e.cluster import PROGRAM, Cluster, files_below
from e2e.engine_settings import configured
from e2e.rooms import count, ended_whole, finish, wait_number

from rmsplugin.model.epochs import FIRST_EPOCH

pytestmark = [pytest.mark.e2e, pytest.mark.long]

_ZOO = "tickTime=400\ndataDir={directory}\nclientPort=2181\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
_SERVER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@pytest.fixture
def led(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """An engine of the minicluster that one ZooKeeper server on the head has lead; the server's log."""
    settings = tmp_path / "zoo.cfg"
    settings.write_text(_ZOO.format(directory=tmp_path / "zookeeper"))
    log = tmp_path / "zookeeper.log"
    # In the head's network only: its /etc has nothing of Java's.
    guard = ("setpriv", "--pdeathsig", "KILL", *cluster.in_network_of("head"))
    java = [*guard, "java", "-Xmx64m", "-cp", str(JAR), _SERVER, str(settings)]
    with log.open("w") as said:
        server = subprocess.Popen(java, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        lines = ('coordination = "zookeeper"', 'servers = ["127.0.0.1:2181"]', "session_s = 6")
        # As long as a command may take, the next engine waits for what the one before may have begun.
        with configured(cluster, "slurm", "command_timeout_s = 5"), configured(cluster, "cluster", *lines):
            yield log
    finally:
        server.kill()
        server.wait(60)


def test_vjobs_outlive_a_leader_that_is_killed_and_the_way_back_to_one_engine(
    cluster: Cluster, led: Path, tmp_path: Path
) -> None:
    job = count(cluster)
    wait_number(cluster, job, 2)
    assert cluster.plugin("suspend", str(job)).code == 0
    assert cluster.plugin("resume", str(job)).code == 0
    first = highest_epoch(cluster)
    assert first > 1, "the number of a write of the server"
    stands_by = tmp_path / "stands_by.log"
    with stands_by.open("w") as said:
        engine = cluster.entering(str(PROGRAM), "engine", user="slurm")
        other = subprocess.Popen(engine, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    try:
        cluster.wait("an engine to stand by", lambda: "stands by" in stands_by.read_text(), 60, stands_by.read_text)
        assert cluster.plugin("migrate", str(job), "--no-wait").code == 0
        cluster.wait_action(job, "migrate")
        cluster.kill("head", "engine")
        cluster.wait("it to lead", lambda: "is up" in stands_by.read_text(), 120, stands_by.read_text)
        cluster.wait("a vjob that runs on", lambda: cluster.ask("/v1/status") is not None, 60)
        wait_number(cluster, job, 4)
        assert cluster.plugin("suspend", str(job)).code == 0
        assert cluster.plugin("resume", str(job)).code == 0
        assert highest_epoch(cluster) > first
        finish(cluster, job)
        ended_whole(cluster, job)
    finally:
        pids = cluster.run("pgrep", "-f", "rmsplugin engine").out.split()
        cluster.run("kill", *pids)
        other.wait(120)
        cluster.restart_engine()


def highest_epoch(cluster: Cluster) -> int:
    """The highest epoch that any node of the minicluster has obeyed."""
    places = [cluster.host_path(node, "/var/lib") for node in cluster.nodes]
    files = [path for place in places for path in files_below(place) if path.name == ".epoch"]
    assert files, "no node has heard an epoch"
    return max(int(path.read_text() or FIRST_EPOCH) for path in files)
