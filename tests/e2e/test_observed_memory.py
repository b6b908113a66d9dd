"""Memory by observation: VMs take of their nodes what they are seen to need, and may outgrow them (issue 11, 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.conftest import minicluster
from e2e.holding import HOLD, PARTITION, hold, next_phase, wait_counting, wait_demand
from e2e.queued import wait_rooms
from e2e.rooms import count, explain, finish, host_of, ledger

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

#: PreemptExemptTime of the minicluster.
EXEMPT_S = 10


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four nodes: with three, whoever finds no place does after a migration or two."""
    options = ("--observed-memory", "--nodes", "4", "--cpus", "8", "--demand-window-s", "10")
    for found in minicluster("hold", *options):
        wait_rooms(found)
        yield found


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


# -- the ladder --------------------------------------------------------------------------------------------------------


def test_who_grows_is_helped_by_a_balloon_then_a_migration_then_a_suspension(cluster: Cluster) -> None:
    """Three others have most of a node each, so that all that happens, happens on the fourth; then one ends."""
    fillers = [count(cluster, "--mem=1340") for _ in range(3)]
    caches = reads_a_file(cluster)
    wait_counting(cluster, *fillers, caches)
    cached_kib = guest_counter(cluster, caches, "disk_caches")
    assert cached_kib > 300 << 10
    grows = hold(cluster, 1120, 0, 600)
    wait_counting(cluster, grows)
    assert host_of(cluster, grows) == host_of(cluster, caches)
    less = f"vjob{caches}-0 is asked to do with"
    cluster.wait("a balloon", lambda: any(less in message for message in kinds(cluster, "balloon")), 60)

    def is_taken_back() -> bool:
        return guest_counter(cluster, caches, "disk_caches") < cached_kib - (64 << 10)

    cluster.wait("caches to be taken back", is_taken_back, 90, lambda: explain(cluster))
    moved, held = (len(kinds(cluster, kind)) for kind in ("migrated", "node-reserved"))

    finish(cluster, fillers.pop())
    next_phase(cluster, grows)
    cluster.wait("a migration", lambda: len(kinds(cluster, "migrated")) > moved, 180, lambda: explain(cluster))
    assert host_of(cluster, grows) != host_of(cluster, caches)
    wait_counting(cluster, *fillers, caches, grows)
    assert not any(cluster.vjob(job)["state"] == "sleeping" for job in (*fillers, caches, grows))

    last = hold(cluster, 1120, 0, 700, options=("--nice=5000",))
    wait_counting(cluster, last, more=EXEMPT_S)
    next_phase(cluster, last)
    cluster.wait_vjob(last, "sleeping", timeout_s=180)
    assert len(kinds(cluster, "node-reserved")) == held, "less is idle in the cluster than a node has"
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


def kinds(cluster: Cluster, kind: str) -> list[str]:
    """Messages of the events of a kind."""
    return [message for (message,) in ledger(cluster, "select message from events where kind = ? order by id", kind)]
