"""Elastic rooms: vjobs fill idle nodes, native jobs have theirs back in time, and nothing is lost (issue 7, 6.a, 6.g)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.rooms import (
    Log,
    Machine,
    Watch,
    count,
    engine_killed,
    explain,
    finish,
    held,
    host_of,
    native,
    native_runs,
    rooms,
    wait_held,
    wait_number,
)

pytestmark = pytest.mark.e2e

GRACE_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from minicluster("elastic", "--fronts", "2", "--grace-s", str(GRACE_S))


@pytest.fixture(autouse=True)
def watch(cluster: Cluster, clean: None) -> Iterator[Watch]:
    """Whatever a test does: no VM is on a node without a room, nor beside more than the node has."""
    with Watch(cluster) as watch:
        yield watch
    watch.check()


def spread(cluster: Cluster, *options: tuple[str, ...]) -> list[int]:
    """Counting vjobs, each on a node of its own, that have printed something."""
    jobs = []
    taken: list[str] = []
    for more in options:
        jobs.append(count(cluster, *more, *(["-x", ",".join(taken)] if taken else [])))
        wait_number(cluster, jobs[-1])
        taken.append(host_of(cluster, jobs[-1]))
    assert len(set(taken)) == len(options)
    return jobs


def test_idle_nodes_are_given_to_native_jobs_in_time_and_vjobs_move_or_sleep_and_finish(cluster: Cluster) -> None:
    wait_held(cluster)
    small, other, large = spread(cluster, (), (), ("-c", "2"))
    assert held(cluster) == set(cluster.nodes)
    states = cluster.ok("sinfo", "-h", "-N", "-p", "plain", "-o", "%T").split()
    assert states == ["allocated"] * 3, "Slurm sees that VMs have the nodes"
    first_node, middle, last_node = (host_of(cluster, job) for job in (small, other, large))

    first = native(cluster, "--exclusive", "--mem=2048", "-w", first_node)
    assert native_runs(cluster, first, 2 * GRACE_S) <= GRACE_S
    assert first_node not in {guest.node for guest in Machine(cluster).guests()}
    assert host_of(cluster, small) == middle, "it went on where there was room"
    assert "migrated" in cluster.events(small)
    assert cluster.job(small)["JobState"] == "RUNNING"
    wait_number(cluster, small)

    second = native(cluster, "--exclusive", "--mem=2048", "-w", last_node)
    assert native_runs(cluster, second, 2 * GRACE_S) <= GRACE_S
    assert {guest.node for guest in Machine(cluster).guests()} == {middle}
    assert cluster.vjob(large)["state"] == "sleeping", "there is no room for it"
    assert cluster.job(large)["JobState"] == "SUSPENDED"
    wait_number(cluster, small)

    cluster.ok("scancel", str(first), str(second), user="bob")
    wait_number(cluster, large)
    finish(cluster, small, other, large)
    wait_held(cluster)
    states = cluster.ok("sinfo", "-h", "-N", "-p", "plain", "-o", "%T").split()
    assert states == ["idle"] * 3, "what nobody needs is given back"


def test_the_engine_is_killed_at_each_step_of_acquiring_and_giving_back(cluster: Cluster) -> None:
    log = Log(cluster, "slurmctld")
    wait_held(cluster)
    job = count(cluster)
    with engine_killed(cluster, "a room to be requested", lambda: log.search(r"submit_batch_job.* uid=|partition=vmh")):
        [room] = rooms(cluster).values()
    wait_number(cluster, job)
    assert list(rooms(cluster).values())[0].job_id == room.job_id, "the room that it found is its own"
    home = host_of(cluster, job)

    # While the VM leaves, and once it has left but Slurm was not told yet.
    taken = native(cluster, "--exclusive", "-w", home)
    with engine_killed(cluster, "the VM to leave", lambda: leaving(cluster, job)):
        pass
    assert native_runs(cluster, taken, 2 * GRACE_S) <= GRACE_S
    wait_number(cluster, job)
    cluster.ok("scancel", str(taken), user="bob")

    home = host_of(cluster, job)
    machine = Machine(cluster)
    taken = native(cluster, "--exclusive", "-w", home)
    with engine_killed(cluster, "the VM to have left", lambda: home not in {each.node for each in machine.guests()}):
        pass
    assert native_runs(cluster, taken, 2 * GRACE_S) <= GRACE_S
    wait_number(cluster, job)
    cluster.ok("scancel", str(taken), user="bob")

    finish(cluster, job)
    log = Log(cluster, "slurmctld")
    with engine_killed(cluster, "a room to be given back", lambda: log.search(r"REQUEST_KILL_JOB|_slurm_rpc_kill_job")):
        pass
    wait_held(cluster)


def leaving(cluster: Cluster, job: int) -> bool:
    """Whether an action that takes a VM off its node is under way."""
    from e2e.rooms import ledger

    sql = "select 1 from actions where state = 'running' and kind in ('migrate', 'suspend') and vm = ?"
    return bool(ledger(cluster, sql, f"vjob{job}-0"))
