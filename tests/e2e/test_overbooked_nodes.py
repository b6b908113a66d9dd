"""A partition whose CPUs are overbooked: twice as many VMs as CPUs compute on a node, are switched, and end well."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster
from e2e.engine_settings import configured
from e2e.rooms import HOSTS_PARTITION, count, explain, finish, have, wait_held, wait_number

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

PATIENCE_S = 180
RATIO = 2


def booked(cluster: Cluster, node: str) -> tuple[int, int]:
    """The CPUs of a node that Slurm has given away, and those that it has."""
    fields = dict(
        word.split("=", 1) for word in cluster.ok("scontrol", "show", "node", node).split() if word.startswith("CPU")
    )
    return int(fields["CPUAlloc"]), int(fields["CPUTot"])


def test_twice_as_many_vms_as_cpus_compute_on_a_node_and_are_switched(cluster: Cluster, clean: None) -> None:
    wait_held(cluster, *cluster.nodes, timeout_s=PATIENCE_S)
    node = cluster.nodes[0]
    _, cpus = booked(cluster, node)
    with configured(cluster, "partition.vjob", f"cpu_overbooking = {RATIO}.0"):
        jobs = [count(cluster, "-w", node) for _ in range(RATIO * cpus)]
        for job in jobs:
            wait_number(cluster, job, timeout_s=2 * PATIENCE_S)
        assert all(len(cluster.qemus(job, node)) == 1 for job in jobs), explain(cluster)

        # Slurm's books: the room has the node's CPUs, once, and each job has those that it asked for, on its front.
        assert booked(cluster, node) == (cpus, cpus), explain(cluster)
        rooms = cluster.ok("squeue", "-h", "-a", "-t", "R", "-p", HOSTS_PARTITION, "-w", node, "-o", "%C").split()
        assert rooms == [str(cpus)]
        assert all(cluster.job(job)["NumCPUs"] == "1" for job in jobs)

        # The node is full by the ratio: one more waits, and runs when another is saved.
        late = count(cluster, "-w", node)
        cluster.wait_vjob(late, "waiting", timeout_s=PATIENCE_S)
        for job in jobs:
            wait_number(cluster, job, 3)
        assert cluster.job(late)["JobState"] == "PENDING", explain(cluster)
        have(cluster, jobs[0], "suspend", "sleeping")
        wait_number(cluster, late, timeout_s=2 * PATIENCE_S)
        assert cluster.job(jobs[0])["JobState"] == "SUSPENDED"
        for job in jobs[1:]:
            wait_number(cluster, job, 2)
        assert booked(cluster, node) == (cpus, cpus)

        # It goes on in the place of one that has ended.
        finish(cluster, jobs[1])
        have(cluster, jobs[0], "resume", "running")
        wait_number(cluster, jobs[0], 2, timeout_s=2 * PATIENCE_S)
        rest = [jobs[0], *jobs[2:], late]
        finish(cluster, *rest)
    for job in (*jobs, late):
        [told] = cluster.accounted(job, "State,AllocCPUS,Suspended")
        assert (told["State"], told["AllocCPUS"]) == ("COMPLETED", "1"), told
        assert (told["Suspended"] > "00:00:00") is (job == jobs[0]), told
    assert booked(cluster, node) == (cpus, cpus), "the room is there as before"
