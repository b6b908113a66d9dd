"""Rooms on dedicated hosts: drained, reserved, found, strange, and what their epilog ends (issue 7, 6.f and 6.g)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from e2e.cluster import Cluster
from e2e.rooms import (
    HOSTS_PARTITION,
    Log,
    Machine,
    Watch,
    count,
    ended_whole,
    engine_killed,
    engine_pid,
    explain,
    finish,
    held,
    host_of,
    ledger,
    native,
    native_runs,
    room_reports,
    rooms,
    wait_held,
    wait_number,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

NODES = ("n1", "n2", "n3")
PATIENCE_S = 180
GRACE_S = 60


@pytest.fixture(autouse=True)
def watch(cluster: Cluster, clean: None) -> Iterator[Watch]:
    """A test begins and ends with all nodes held; meanwhile no VM is on a node without a room."""
    wait_held(cluster, *NODES, timeout_s=PATIENCE_S)
    with Watch(cluster) as watch:
        yield watch
    watch.check()
    wait_held(cluster, *NODES, timeout_s=PATIENCE_S)


def running(cluster: Cluster, *options: str) -> tuple[int, str]:
    """A counting vjob and its node."""
    job = count(cluster, *options)
    wait_number(cluster, job)
    return job, host_of(cluster, job)


def state_of(cluster: Cluster, node: str) -> str:
    return cluster.ok("sinfo", "-h", "-n", node, "-p", "plain", "-o", "%T").strip()


def job_ids(cluster: Cluster) -> dict[str, int]:
    return {node: room.job_id for node, room in rooms(cluster).items()}


def test_a_drained_node_is_evacuated_and_becomes_drained_and_is_held_again_when_it_is_resumed(cluster: Cluster) -> None:
    job, home = running(cluster)
    cluster.ok("scontrol", "update", f"NodeName={home}", "State=DRAIN", "Reason=new disk")
    try:
        cluster.wait(
            f"{home} to be drained",
            lambda: state_of(cluster, home) == "drained",
            PATIENCE_S,
            lambda: explain(cluster),
        )
        assert home not in {guest.node for guest in Machine(cluster).guests()}
        wait_number(cluster, job, 2)
        assert cluster.job(job)["JobState"] == "RUNNING"
        assert host_of(cluster, job) not in ("", home)
        assert home not in rooms(cluster)
        [line] = [line for line in cluster.plugin("nodes").out.splitlines() if line.startswith(home)]
        assert "new disk" in line
    finally:
        cluster.ok("scontrol", "update", f"NodeName={home}", "State=RESUME")
    wait_held(cluster, *NODES)
    finish(cluster, job)


@pytest.mark.long
def test_a_native_job_takes_a_node_in_the_middle_of_a_switch_and_every_vjob_finishes_whole(cluster: Cluster) -> None:
    low = [count(cluster, "-c", "2", f"--nice={1000 * place}") for place, _ in enumerate(NODES)]
    for job in low:
        wait_number(cluster, job)
    urgent = count(cluster, "-c", "2", "-N", "2", "-p", "urgent")
    take_and_give_back(cluster, under_way(cluster, "suspend"))
    wait_number(cluster, urgent, timeout_s=2 * PATIENCE_S)

    # Now those that made way come back.
    cluster.ok("scancel", "--batch", "--signal=USR1", str(urgent), user="alice")
    take_and_give_back(cluster, under_way(cluster, "resume"))
    ended_whole(cluster, urgent)
    for job in low:
        wait_number(cluster, job, 2)
    finish(cluster, *low)


def under_way(cluster: Cluster, kind: str) -> str:
    """Wait until a VM is being suspended or resumed; returns the node of one."""
    sql = "select coalesce(nullif(destination, ''), source) from actions where state = 'running' and kind = ?"
    [node, *_] = cluster.wait(
        f"a VM to {kind}", lambda: ledger(cluster, sql, kind), PATIENCE_S, lambda: explain(cluster), every_s=0.02
    )[0]
    return str(node)


def take_and_give_back(cluster: Cluster, node: str) -> None:
    """A native job that has a whole node for a moment; seen to have it before Slurm would have killed the room."""
    job = native(cluster, "--exclusive", "-w", node)
    waited_s = native_runs(cluster, job, PATIENCE_S)
    assert waited_s <= GRACE_S, explain(cluster)
    assert node not in {guest.node for guest in Machine(cluster).guests()}
    cluster.ok("scancel", str(job), user="bob")


def test_a_maintenance_reservation_has_its_node_free_before_it_begins(cluster: Cluster) -> None:
    job, home = running(cluster)
    names = ["upgrade"]
    reserve(cluster, "upgrade", home, "now+3minutes")
    try:
        start = begins(cluster, "upgrade")
        cluster.wait(
            f"{home} to be given back",
            lambda: home not in held(cluster),
            PATIENCE_S,
            lambda: explain(cluster),
        )
        assert time.time() < start
        assert home not in {guest.node for guest in Machine(cluster).guests()}
        wait_number(cluster, job, 2)
        assert host_of(cluster, job) not in ("", home)

        # The next room there waits until the reservation is over, for it cannot be short enough.
        waits = cluster.wait("a room to wait", lambda: rooms(cluster).get(home), 120, lambda: explain(cluster))
        assert waits.state == "PENDING"
        # One on a node whose reservation is farther away ends before that begins.
        [other] = {*NODES} - {home, host_of(cluster, job)}
        names.append("later")
        reserve(cluster, "later", other, "now+45minutes")
        before = rooms(cluster)[other].job_id
        cluster.ok("scancel", str(before))
        again = cluster.wait(
            f"a new room on {other}",
            lambda: (room := rooms(cluster).get(other)) and room.job_id != before and room.state == "RUNNING" and room,
            PATIENCE_S,
            lambda: explain(cluster),
        )
        assert moment(cluster.job(again.job_id)["EndTime"]) <= begins(cluster, "later")
        assert rooms(cluster)[home] == waits
    finally:
        for name in names:
            cluster.ok("scontrol", "delete", f"ReservationName={name}")
    wait_held(cluster, *NODES)
    finish(cluster, job)


def reserve(cluster: Cluster, name: str, node: str, start: str) -> None:
    what = (f"ReservationName={name}", f"Nodes={node}", f"StartTime={start}", "Duration=30", "Users=root")
    cluster.ok("scontrol", "create", "reservation", *what, "Flags=MAINT,IGNORE_JOBS")


def begins(cluster: Cluster, reservation: str) -> float:
    text = cluster.ok("scontrol", "show", "reservation", reservation)
    return moment(re.findall(r"StartTime=(\S+)", text)[0])


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def as_slurm(cluster: Cluster, *options: str, name: str = "rmsplugin-room") -> int:
    words = ("sbatch", "--parsable", "-J", name, "--exclusive", "-t", "60", "-o", "/dev/null", *options)
    return int(cluster.ok(*words, "--chdir=/", "--wrap", "exec sleep 3600", user="slurm"))


def test_rooms_that_are_found_are_adopted_and_strange_ones_are_ended(cluster: Cluster) -> None:
    cluster.kill("head", "engine")
    before = job_ids(cluster)
    cluster.ok("scancel", str(before["n2"]))
    cluster.wait("n2 to be free", lambda: state_of(cluster, "n2") == "idle", 60)
    found = as_slurm(cluster, "-p", HOSTS_PARTITION, "-w", "n2")
    strange = [
        as_slurm(cluster, "-p", HOSTS_PARTITION, "-w", "n2"),  # one too many
        as_slurm(cluster, "-p", HOSTS_PARTITION),  # of no node
        as_slurm(cluster, "-p", "plain", "-w", "n3", "--begin=now+1hour"),  # in no hosts partition
    ]
    another = as_slurm(cluster, "-p", "plain", "--begin=now+1hour", name="backup")
    cluster.restart_engine()
    for job in strange:
        assert cluster.wait_job(job)["JobState"] == "CANCELLED"
    assert job_ids(wait(cluster)) == {**before, "n2": found}
    assert cluster.job(another)["JobState"] == "PENDING", "jobs of SlurmUser that are no rooms are its own affair"
    cluster.ok("scancel", str(another))


def wait(cluster: Cluster) -> Cluster:
    wait_held(cluster, *NODES)
    return cluster


def test_slurmctld_is_restarted_and_the_engine_killed_and_rooms_and_vjobs_live_on(cluster: Cluster) -> None:
    job, home = running(cluster)
    before = job_ids(cluster)
    assert cluster.manage("stop", "head", "slurmctld").code == 0
    cluster.kill("head", "engine")
    cluster.start("head", "engine")  # it comes up while Slurm does not answer
    printed = wait_number(cluster, job, 2)
    cluster.start("head", "slurmctld")
    cluster.wait("Slurm to answer", lambda: cluster.run("squeue", "-h").code == 0, 60)
    cluster.wait("the engine to answer", lambda: cluster.ask("/v1/status"), 60)
    cluster.wait_nodes()
    assert wait_number(cluster, job) > printed
    assert job_ids(wait(cluster)) == before
    assert host_of(cluster, job) == home
    finish(cluster, job)


def test_the_engine_is_killed_while_a_room_waits_for_a_native_job(cluster: Cluster) -> None:
    job, home = running(cluster)
    submissions = Log(cluster, "slurmctld")
    taken = native(cluster, "--exclusive", "-w", home)
    native_runs(cluster, taken, PATIENCE_S)
    wait_number(cluster, job)
    assert "migrated" in cluster.events(job)
    pid, another = engine_pid(cluster), rf"submit_batch_job: JobId=(?!{taken}\b)"
    with engine_killed(cluster, pid, "a room to wait", lambda: submissions.search(another)):
        waits = rooms(cluster)[home]
        assert waits.state == "PENDING"
    log = Log(cluster, "engine")
    cluster.ok("scancel", str(taken), user="bob")
    wait_held(cluster, *NODES)
    assert rooms(cluster)[home].job_id == waits.job_id, log.search("(?s).*")
    finish(cluster, job)


def test_what_the_epilog_of_a_room_ends_is_told_and_its_vjob_starts_again(cluster: Cluster) -> None:
    job, home = running(cluster)
    room = rooms(cluster)[home].job_id
    cluster.ok("scancel", str(room), user="slurm")
    cluster.wait("the loss", lambda: losses(cluster, job) == 1, PATIENCE_S, lambda: cluster.describe(job))
    vm = f"vjob{job}-0"

    def said() -> list[dict[str, object]]:
        """By the epilog, which tells what it has ended: the engine may have missed the VM before."""
        return [each for each in room_reports(cluster, room) if each["hook"] == "epilog"]

    cluster.wait("what the epilog tells", said, PATIENCE_S, lambda: explain(cluster))
    assert said() == [{"node": home, "hook": "epilog", "problem": "", "ended": [vm]}]
    assert f"room {room} on {home} ended {vm}" in cluster.events(job)
    assert re.search(rf"lost: .*{vm}", cluster.events(job))
    printed_again(cluster, job)


def test_the_epilog_ends_vms_also_while_the_engine_is_dead_and_the_vjob_starts_again(cluster: Cluster) -> None:
    job, home = running(cluster)
    room = rooms(cluster)[home].job_id
    cluster.kill("head", "engine")
    cluster.ok("scancel", str(room), user="slurm")
    cluster.wait("the node to be free", lambda: state_of(cluster, home) == "idle", PATIENCE_S)
    assert cluster.qemus(job) == []
    cluster.restart_engine()
    cluster.wait("the loss", lambda: losses(cluster, job) == 1, PATIENCE_S, lambda: cluster.describe(job))
    printed_again(cluster, job)


def losses(cluster: Cluster, job: int) -> int:
    return int(ledger(cluster, "select losses from vjobs where job_id = ?", job)[0][0])


def printed_again(cluster: Cluster, job: int) -> None:
    """See that a vjob whose state was lost runs a second time, from its beginning to its end."""
    starts = cluster.home() / f"started.{job}"
    cluster.wait("a second start", lambda: starts.read_text() == "started\n" * 2, PATIENCE_S, lambda: explain(cluster))
    wait_number(cluster, job)
    cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    ended_whole(cluster, job, losses=1)
