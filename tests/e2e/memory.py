"""Memory by observation as a whole: how many run together, the ladder, and what ends reservations (issue 11, 5).

Too long for CI: ``contrib/run-campaign memory``, with the other files ``memory_*.py``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from e2e.cluster import Cluster
from e2e.crowd import EXEMPT_S, Crowd, crowded_cluster, events, reserved, slept_s
from e2e.engine_settings import configured
from e2e.holding import EAT, HOLD, PARTITION, hold, next_phase, wait_counting, wait_demand
from e2e.queued import wait_rooms
from e2e.rooms import count, engine_killed, engine_pid, explain, finish, host_of, ledger, native, native_runs
from e2e.test_world_fails import tell, wait_node
from minicluster_lib import control_groups
from minicluster_lib.settings_file import MEMORY_OVERHEAD_MIB

NODE_MIB = 2048

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    yield from crowded_cluster()


@pytest.fixture(scope="module")
def crowd() -> Iterator[Crowd]:
    """On a cluster of its own: a crowd lasts for all tests that have it."""
    for found in crowded_cluster():
        yield Crowd(found)
        found.run("scancel", "--user", "alice")


# -- more run together -------------------------------------------------------------------------------------------------


def test_three_times_as_many_run_together_as_with_what_they_asked_for(cluster: Cluster) -> None:
    """All ask for three times what they need, and there is a node for those of each partition.

    Two that need 272 MiB at most leave room for a third one, of which it is only known that it asks for 950.
    """
    size_mib = 950
    swapped = swaps()
    requested_node, shared_node, *others = cluster.nodes
    closed = ",".join(others)
    requested = [count(cluster, f"--mem={size_mib}", "-x", f"{closed},{shared_node}") for _ in range(2)]
    shared = [hold(cluster, size_mib, 40, options=("-x", f"{closed},{requested_node}")) for _ in range(3)]
    wait_counting(cluster, *shared, requested[0])
    for job in shared:
        wait_demand(cluster, job, 1, size_mib // 3)
    wait_counting(cluster, *shared, requested[0], more=5)
    assert {host_of(cluster, job) for job in shared} == {shared_node}
    assert host_of(cluster, requested[0]) == requested_node
    assert cluster.vjob(requested[1])["state"] == "waiting", "two do not fit on a node by what they asked for"
    assert {guest_counter(cluster, job, "swap_in") for job in (*shared, requested[0])} == {0}
    cluster.ok("scancel", str(requested[1]), user="alice")
    finish(cluster, *shared, requested[0])
    assert swaps() == swapped


def swaps() -> Mapping[str, int]:
    """How many pages this machine, which all nodes are on, has swapped so far."""
    lines = (line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return {name: int(value) for name, value in lines if name in ("pswpin", "pswpout")}


def guest_counter(cluster: Cluster, job: int, name: str) -> int:
    """What the guest of a vjob's VM says of itself, by its balloon's driver."""
    told = cluster.ok("virsh", "dommemstat", f"vjob{job}-0", host=host_of(cluster, job))
    return int(dict(line.split() for line in told.splitlines() if line)[name])


# -- a user gives memory up --------------------------------------------------------------------------------------------


def test_a_job_gives_up_memory_and_has_it_back(cluster: Cluster) -> None:
    """What its guest's caches had is neither booked nor kept; its programs keep what they have."""
    job = reads_a_file(cluster)
    wait_counting(cluster, job)
    cluster.wait("caches", lambda: guest_counter(cluster, job, "disk_caches") > 300 << 10, 60)
    wait_demand(cluster, job, 275, 700)
    had_kib = guest_counter(cluster, job, "actual")
    assert cluster.plugin("resize", str(job), "--memory", "2G", user="alice").code == 1
    assert cluster.plugin("resize", str(job), "--memory", "600M", user="alice").code == 0
    most_kib = had_kib - (424 << 10)

    def given_up() -> bool:
        return guest_counter(cluster, job, "actual") <= most_kib

    cluster.wait("memory to be given up", given_up, 120, lambda: explain(cluster))
    # The guest reports each five seconds.
    cluster.wait("caches to go", lambda: guest_counter(cluster, job, "disk_caches") < 300 << 10, 60)
    wait_counting(cluster, job, more=12)  # so long ago it was resized, at least
    assert cluster.plugin("resize", str(job), "--memory", "all", user="alice").code == 0
    cluster.wait("it to come back", lambda: guest_counter(cluster, job, "actual") == had_kib, 120)
    finish(cluster, job)


# -- the ladder --------------------------------------------------------------------------------------------------------


def test_who_grows_is_helped_by_a_balloon_then_a_migration_then_a_suspension(cluster: Cluster) -> None:
    """Three others have most of a node each, so that all that happens, happens on the fourth; then one ends."""
    fillers = [count(cluster, "--mem=1340") for _ in range(3)]
    caches = reads_a_file(cluster)
    wait_counting(cluster, *fillers, caches)
    assert guest_counter(cluster, caches, "disk_caches") > 300 << 10
    had_kib = guest_counter(cluster, caches, "actual")
    grows = hold(cluster, 1120, 0, 600)
    wait_counting(cluster, grows)
    assert host_of(cluster, grows) == host_of(cluster, caches)
    less = f"vjob{caches}-0 is asked to do with"
    cluster.wait("a balloon", lambda: any(less in message for message in events(cluster, "balloon")), 60)

    def is_taken_back() -> bool:
        return guest_counter(cluster, caches, "actual") < had_kib

    cluster.wait("memory to be taken back", is_taken_back, 90, lambda: explain(cluster))
    moved, held = (len(events(cluster, kind)) for kind in ("migrated", "node-reserved"))

    finish(cluster, fillers.pop())
    next_phase(cluster, grows)
    cluster.wait("a migration", lambda: len(events(cluster, "migrated")) > moved, 180, lambda: explain(cluster))
    assert host_of(cluster, grows) != host_of(cluster, caches)
    wait_counting(cluster, *fillers, caches, grows)
    assert not any(cluster.vjob(job)["state"] == "sleeping" for job in (*fillers, caches, grows))

    last = hold(cluster, 1120, 0, 700, options=("--nice=5000",))
    wait_counting(cluster, last, more=EXEMPT_S)
    next_phase(cluster, last)
    cluster.wait_vjob(last, "sleeping", timeout_s=180)
    assert len(events(cluster, "node-reserved")) == held, "less is idle in the cluster than a node has"
    wait_counting(cluster, *fillers, caches, grows)
    finish(cluster, grows)
    wait_counting(cluster, last)
    finish(cluster, *fillers, caches, last)


def reads_a_file(cluster: Cluster) -> int:
    """Submit a vjob that needs little and has a large file in its guest's cache."""
    with (cluster.home() / "large").open("w") as file:
        file.truncate(500 << 20)
    script = HOLD.replace("i=0\n", "cat large >/dev/null\ni=0\n")
    return cluster.sbatch(script, "-p", PARTITION, "--mem=1024", "-c", "1", arguments=("275",))


# -- one that eats all it can ------------------------------------------------------------------------------------------


def test_who_eats_all_it_can_at_once_harms_nobody_and_its_node_is_relieved(cluster: Cluster) -> None:
    """It has 1,900 MiB and takes 1,350 of them at once, beside two small ones and one that has what it asked for.

    It is the last in the queue, so that it is who goes where somebody has to.
    """
    eater = cluster.sbatch(EAT, "-p", PARTITION, "--mem=1900", "-c", "1", "--nice=9000", arguments=("400",))
    wait_counting(cluster, eater)
    wait_demand(cluster, eater, 1, 400)
    home = host_of(cluster, eater)
    others = [node for node in cluster.nodes if node != home]
    firm = count(cluster, "--mem=128", "-x", ",".join(others))
    small = [hold(cluster, 400, 0) for _ in range(2)]
    wait_counting(cluster, firm, *small)
    for job in small:
        if host_of(cluster, job) != home:
            assert cluster.plugin("migrate", str(job), "--to", home).code == 0
    away = native(cluster, "--exclusive", "-w", others[0])
    native_runs(cluster, away, 180)
    together = (eater, firm, *small)
    assert {host_of(cluster, job) for job in together} == {home}
    began = time.time()

    next_phase(cluster, eater)

    def relieved() -> bool:
        return any(host_of(cluster, job) != home for job in (eater, *small))

    cluster.wait("the node to be relieved", relieved, 240, lambda: explain(cluster))
    wait_counting(cluster, firm, *small, more=3)
    assert host_of(cluster, firm) == home
    assert not slept_s(cluster, began).keys() & {str(job) for job in (firm, *small)}, "nobody sleeps for the eater"
    assert cluster.job(away)["JobState"] == "RUNNING"
    assert used_at_most_mib(cluster, home) <= NODE_MIB - 128 - MEMORY_OVERHEAD_MIB
    cluster.ok("scancel", str(away), user="bob")
    cluster.wait_vjob(eater, "running", timeout_s=240)
    wait_counting(cluster, eater)
    finish(cluster, *together)


def used_at_most_mib(cluster: Cluster, node: str) -> int:
    """The most that the observed VMs of a node ever had of its memory together, as the kernel says."""
    [top] = [path for path in control_groups.of(cluster.directory) if path.name.endswith(f"-{node}")
             and (path / "memory.max_usage_in_bytes").exists()]  # fmt: skip
    return int((top / "rmsplugin.partition/memory.max_usage_in_bytes").read_text()) >> 20


# -- what ends a reservation ------------------------------------------------------------------------------------------


def test_a_reservation_outlives_the_engine_and_ends_with_the_blocking(crowd: Crowd) -> None:
    cluster, victim = crowd.cluster, engine_pid(crowd.cluster)
    node = crowd.grow()
    before = reserved(cluster)
    told = cluster.plugin("nodes", "--json")
    assert told.code == 0, told.err
    [shown] = [each for each in json.loads(told.out)["nodes"] if each["name"] == node]
    assert (shown["reserved_for"], shown["reserved_since"]) == (before["reserved_for"], before["reserved_since"])
    assert "waits for room" in shown["reason"]
    with engine_killed(cluster, victim, "the engine to be killed", lambda: True):
        pass
    wait_counting(cluster, *crowd.others, more=5)
    after = reserved(cluster)
    assert after is not None and (after["name"], after["reserved_since"]) == (node, before["reserved_since"])
    crowd.shrink()
    assert any("nobody is blocked any more" in message for message in events(cluster, "node-released"))


def test_a_reservation_ends_when_the_node_is_lost(crowd: Crowd) -> None:
    cluster = crowd.cluster
    node = crowd.grow()
    tell(cluster, node, "STOP")
    try:
        wait_not_reserved(cluster, node)
    finally:
        tell(cluster, node, "CONT")
    wait_node(cluster, node, answers=True)
    cluster.wait_nodes()
    crowd.shrink()


def test_a_reservation_ends_when_the_node_is_drained(crowd: Crowd) -> None:
    cluster = crowd.cluster
    node = crowd.grow()
    cluster.ok("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        wait_not_reserved(cluster, node)
    finally:
        cluster.ok("scontrol", "update", f"NodeName={node}", "State=RESUME")
    cluster.wait_nodes()
    wait_rooms(cluster)
    crowd.shrink()


def wait_not_reserved(cluster: Cluster, node: str) -> None:
    """Wait until a node is reserved no more."""
    asked = "the reservation to end"
    cluster.wait(asked, lambda: node not in {row[0] for row in held(cluster)}, 120, lambda: explain(cluster))


def held(cluster: Cluster) -> list[tuple[Any, ...]]:
    """The nodes that the ledger has as reserved."""
    return ledger(cluster, "select node from reservations")


def test_without_reservations_somebody_is_suspended(crowd: Crowd) -> None:
    cluster, since = crowd.cluster, time.time()
    told = len(events(cluster, "node-reserved"))
    with configured(cluster, "decision", 'policy = "rjsp"'):
        crowd.calm()
        next_phase(cluster, crowd.large)
        jobs = (*crowd.others, crowd.large)
        cluster.wait("somebody to sleep", lambda: any(cluster.vjob(job)["state"] == "sleeping" for job in jobs), 240,
                     lambda: explain(cluster))  # fmt: skip
        assert reserved(cluster) is None
        crowd.shrink()
    assert len(events(cluster, "node-reserved")) == told
    print(f"rjsp: suspended, s: {slept_s(cluster, since)}")


def test_a_reserved_node_without_room_in_time_is_told_as_a_full_cluster_and_the_last_in_the_queue_sleeps(
    crowd: Crowd,
) -> None:
    cluster, since, limit_s = crowd.cluster, time.time(), 25
    with configured(cluster, "memory", f"reserving_s = {limit_s}"):
        crowd.calm()
        node = crowd.grow()
        cluster.wait("a full cluster", lambda: events(cluster, "cluster-full"), 120, lambda: explain(cluster))
        [message] = events(cluster, "cluster-full")
        told = re.fullmatch(rf"{node} is released: it has no room after (\d+) s; the cluster is truly full", message)
        assert told and limit_s <= int(told[1]) < 2 * limit_s, message
        cluster.wait("somebody to sleep", lambda: slept_s(cluster, since), 120, lambda: explain(cluster))
        assert len(slept_s(cluster, since)) == 1, "the others are helped by that"
        assert reserved(cluster) is None, "nobody reserves for as long again"
        crowd.shrink()
    print(f"full: {message}; suspended, s: {slept_s(cluster, since)}")


def test_a_reservation_ends_when_the_vjob_is_cancelled(crowd: Crowd) -> None:
    cluster = crowd.cluster
    crowd.grow()
    cluster.ok("scancel", str(crowd.large), user="alice")
    cluster.wait("no reservation", lambda: not reserved(cluster), 60, lambda: explain(cluster))
    crowd.new_large()
