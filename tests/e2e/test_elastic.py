"""Elastic rooms: native jobs have their nodes back in time, and vjobs lose nothing (issue 7, 6.a and 6.g)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.mixed import mix
from e2e.rooms import (
    Log,
    Machine,
    Watch,
    count,
    end_room,
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

GRACE_S = 60
FILTER = "rmsplugin-guest"
#: After which a native job that waits for a node is surely forgotten, on a loaded machine too.
PATIENCE_S = 3 * GRACE_S


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # The filter that is not the default: VMs start, move, sleep and wake with it here.
    yield from minicluster("elastic", "--grace-s", str(GRACE_S), "--network-filter", FILTER)


@pytest.fixture(autouse=True)
def watch(cluster: Cluster, clean: None) -> Iterator[Watch]:
    """Whatever a test does: no VM is on a node without a room, nor are native jobs and VMs more than a node has."""
    with Watch(cluster) as watch:
        yield watch
    watch.check()


def node_states(cluster: Cluster) -> set[str]:
    return set(cluster.ok("sinfo", "-h", "-N", "-p", "plain", "-o", "%T").split())


def filter_of(cluster: Cluster, job: int) -> str:
    """The filter of libvirt's that the vjob's VM has where it runs, with its rules in the kernel there."""
    node = host_of(cluster, job)
    found = re.search("filterref filter='(.*)'", cluster.ok("virsh", "dumpxml", f"vjob{job}-0", host=node))
    assert "libvirt-I-vnet" in cluster.ok("ebtables", "-t", "nat", "-L", host=node)
    return found[1] if found else ""


def take(cluster: Cluster, node: str) -> int:
    """A native job that has the whole node; seen to have it in time."""
    job = native(cluster, "--exclusive", "--mem=2048", "-w", node)
    waited_s = native_runs(cluster, job, PATIENCE_S)
    assert waited_s <= GRACE_S, explain(cluster)
    return job


def spread(cluster: Cluster, *cpus: int) -> tuple[list[int], list[str]]:
    """Counting vjobs, each on a node of its own; returns them and their nodes once all have printed something."""
    jobs: list[int] = []
    homes: list[str] = []
    for each in cpus:
        job = count(cluster, "-c", str(each), *(["-x", ",".join(homes)] if homes else []))
        homes.append(cluster.wait(f"a node for {job}", lambda job=job: host_of(cluster, job), 120))
        jobs.append(job)
    for job in jobs:
        wait_number(cluster, job)
    return jobs, homes


def test_native_jobs_have_their_nodes_in_time_and_vjobs_move_or_sleep_and_finish(cluster: Cluster) -> None:
    wait_held(cluster)
    (small, other, large), (home, middle, last) = spread(cluster, 1, 1, 2)
    assert held(cluster) == {home, middle, last}
    assert node_states(cluster) == {"allocated"}, "Slurm sees that VMs have the nodes"
    machine = Machine(cluster)

    taken = [take(cluster, home)]
    assert {guest.node for guest in machine.guests()} == {middle, last}
    assert (host_of(cluster, small), cluster.job(small)["JobState"]) == (middle, "RUNNING")
    assert "migrated" in cluster.events(small)
    assert "vjob-sleeping" not in cluster.events(small)
    wait_number(cluster, small)
    assert filter_of(cluster, small) == FILTER, "it came there by a migration"

    taken.append(take(cluster, last))
    assert {guest.node for guest in machine.guests()} == {middle}
    assert cluster.vjob(large)["state"] == "sleeping", "there is no room for it anywhere"
    assert cluster.job(large)["JobState"] == "SUSPENDED"
    wait_number(cluster, small)
    assert [cluster.job(job)["JobState"] for job in taken] == ["RUNNING"] * 2

    cluster.ok("scancel", *map(str, taken), user="bob")
    wait_number(cluster, large)
    assert filter_of(cluster, large) == FILTER, "it woke there"
    finish(cluster, small, other, large)
    wait_held(cluster)
    # What nobody needs is given back.
    cluster.wait("idle nodes", lambda: node_states(cluster) == {"idle"}, 60, lambda: node_states(cluster))


def test_the_engine_is_killed_at_each_step_of_acquiring_and_giving_back(cluster: Cluster) -> None:
    wait_held(cluster)
    machine, victim = Machine(cluster), engine_pid(cluster)
    job = count(cluster)
    log = Log(cluster, "slurmctld")
    with engine_killed(cluster, victim, "a room to be requested", lambda: log.search("submit_batch_job: JobId=")):
        [room] = rooms(cluster).values()
    wait_number(cluster, job)
    assert [each.job_id for each in rooms(cluster).values()] == [room.job_id], "it knows the room as its own"

    home, victim = host_of(cluster, job), engine_pid(cluster)
    taken = native(cluster, "--exclusive", "-w", home)
    with engine_killed(cluster, victim, "the VM to begin to leave", lambda: is_leaving(cluster, job)):
        pass
    native_runs(cluster, taken, PATIENCE_S)
    wait_number(cluster, job)
    cluster.ok("scancel", str(taken), user="bob")

    home, victim = host_of(cluster, job), engine_pid(cluster)
    taken = native(cluster, "--exclusive", "-w", home)
    with engine_killed(cluster, victim, "the VM to be gone", lambda: all(vm.node != home for vm in machine.guests())):
        pass
    native_runs(cluster, taken, PATIENCE_S)
    wait_number(cluster, job)
    cluster.ok("scancel", str(taken), user="bob")

    [last] = rooms(cluster).values()
    victim, completed = engine_pid(cluster), rf"_job_complete: JobId={last.job_id} WEXITSTATUS 0"
    log = Log(cluster, "slurmctld")
    finish(cluster, job)
    with engine_killed(cluster, victim, "a room to be given back", lambda: log.search(completed)):
        pass
    wait_held(cluster)


def test_a_room_is_ended_by_its_node_and_by_nobody_while_a_vm_is_there(cluster: Cluster) -> None:
    wait_held(cluster)
    job = count(cluster)
    wait_number(cluster, job)
    home = host_of(cluster, job)
    room = rooms(cluster)[home].job_id
    assert end_room(cluster, home, room) == {"vms": [f"vjob{job}-0"], "ended": False}
    wait_number(cluster, job, 2)
    assert rooms(cluster)[home].job_id == room
    finish(cluster, job)
    wait_held(cluster)
    [ended] = cluster.accounted(room, "ExitCode")
    assert (ended["State"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    assert f"room {room} on {home}: nothing runs there" in cluster.plugin("events", "-n", "30").out
    epilog = {"node": home, "hook": "epilog", "problem": "", "ended": []}
    cluster.wait("the epilog", lambda: epilog in room_reports(cluster, room), PATIENCE_S, lambda: explain(cluster))


@pytest.mark.long
def test_native_jobs_and_vjobs_mixed_at_random_share_nodes_and_never_their_memory(cluster: Cluster) -> None:
    outcome = mix(cluster, natives=6, vjobs=6, seed=7)
    assert outcome.looks_at_both > 0, "they did share nodes"
    assert outcome.rooms["room-requested"] > 0


def is_leaving(cluster: Cluster, job: int) -> bool:
    """Whether an action that takes the VM of a vjob off its node is under way."""
    sql = "select 1 from actions where state = 'running' and kind in ('migrate', 'suspend') and vm = ?"
    return bool(ledger(cluster, sql, f"vjob{job}-0"))
