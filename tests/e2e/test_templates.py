"""VMs that start from a template: they are like booted ones, and two of them share nothing but the image."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

#: What no two machines may share, one a line; then the clock.
_TELLS = """#!/bin/sh
hostname
cat /sys/class/net/eth0/address
ip -4 -o address show dev eth0 | awk '{ print $4 }'
cat /proc/sys/kernel/random/boot_id
head -c 16 /dev/urandom | md5sum
awk '{ print $3 }' /run/rmsplugin/etc/known_hosts
date +%s
"""


def drop_templates(cluster: Cluster) -> None:
    for node in cluster.nodes:
        cluster.ok("sh", "-c", "rm -f /var/lib/rmsplugin/templates/*", host=node)


def make_one(cluster: Cluster) -> None:
    """Have a template on the node of all jobs here."""
    drop_templates(cluster)
    job = submit(cluster, "#!/bin/sh\nexit 0\n")
    assert cluster.wait_job(job, timeout_s=300)["JobState"] == "COMPLETED"
    cluster.wait_gone(job)


def submit(cluster: Cluster, script: str) -> int:
    """Submit a job whose VM goes to one node, whichever nodes others leave at that moment."""
    return cluster.sbatch(script, "-w", cluster.nodes[0])


def told(cluster: Cluster, job: int) -> list[str]:
    """What the job said, once it is over."""
    assert cluster.wait_job(job, timeout_s=300)["JobState"] == "COMPLETED", cluster.describe(job)
    return cluster.lines(job)


def test_sisters_from_one_template_share_nothing_that_tells_machines_apart(cluster: Cluster) -> None:
    make_one(cluster)
    begin = float(cluster.ok("date", "+%s"))
    sisters = [submit(cluster, _TELLS) for _ in range(2)]
    first, second = (told(cluster, job) for job in sisters)
    end = float(cluster.ok("date", "+%s"))
    for job in sisters:
        assert "from a template" in cluster.events(job), cluster.events(job)
    assert len(first) == len(second) >= 7
    for mine, others in zip(first[:-1], second[:-1], strict=True):
        assert mine and mine != others
    for lines in (first, second):
        assert begin - 2 <= int(lines[-1]) <= end + 1, "its clock is that of its node, not that of the template"


def test_a_template_that_qemu_refuses_is_dropped_and_the_job_runs_all_the_same(cluster: Cluster) -> None:
    make_one(cluster)
    for node in cluster.nodes:
        cluster.run("sh", "-c", "truncate -s -9M /var/lib/rmsplugin/templates/*.state", host=node)
    job = submit(cluster, "#!/bin/sh\necho ran\n")
    assert told(cluster, job) == ["ran"]
    events = cluster.events(job)
    assert f"vjob{job}-0 is booted" in events and "from a template" not in events
    # Slurm may have started it already, for its VM was to be up in a moment: it does not run while that boots.
    assert cluster.job(job).get("Restarts", "0") in ("0", "1"), cluster.describe(job)
    drop_templates(cluster)
