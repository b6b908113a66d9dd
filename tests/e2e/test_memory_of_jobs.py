"""Memory is what was asked for, and what a job's processes used is told (issue 12, 5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

#: Says what is available, then writes so many MiB into memory: files in memory cannot be dropped either.
FILLS = """#!/bin/sh
awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo
dd if=/dev/zero of=/dev/shm/filled bs=1M count=$(($1 / 2)) 2>/dev/null &&
    dd if=/dev/zero of=/tmp/filled bs=1M count=$(($1 / 2)) 2>/dev/null && echo "holds $(($1 / 2 * 2))"
"""
#: Holds 80 MiB in one process for 3 s, computes for 5 s of its own CPU time, and writes 10 MiB.
COMPUTES = """#!/bin/sh
MALLOC_MMAP_THRESHOLD_=65536 awk '
    BEGIN { mib = "0123456789abcdef"; while (length(mib) < 1048576) mib = mib mib
            for (i = 0; i < 80; i++) held[i] = mib i
            system("sleep 3") }'
while read -r _ _ _ _ _ _ _ _ _ _ _ _ _ user _ </proc/self/stat; [ "$user" -lt 500 ]; do
    i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); done
done
dd if=/dev/zero of=written bs=1M count=10 2>/dev/null
exit 3
"""


def usage(cluster: Cluster, job: int) -> dict[str, Any]:
    """What `rmsplugin usage` tells a vjob's user."""
    told = cluster.plugin("usage", str(job), "--json", user="alice")
    assert told.code == 0, told.err
    (found,) = json.loads(told.out)["usage"]
    assert isinstance(found, dict)
    return found


def nearly_all(mib: int) -> int:
    """Of a request; an even number of MiB."""
    return mib * 9 // 20 * 2


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("no_new_templates")
def test_a_job_can_use_what_it_asked_for_and_is_told_what_it_used(cluster: Cluster) -> None:
    asked_mib = (16, 512)
    jobs = {mib: cluster.sbatch(FILLS, f"--mem={mib}", arguments=(str(nearly_all(mib)),)) for mib in asked_mib}
    computes = cluster.sbatch(COMPUTES, "--mem=130")
    for mib, job in jobs.items():
        assert cluster.wait_job(job, timeout_s=600)["JobState"] == "COMPLETED", cluster.describe(job)
        available, holds = cluster.output(job).splitlines()
        assert int(available) >= mib
        assert holds == f"holds {nearly_all(mib)}"
    assert cluster.wait_job(computes, timeout_s=600)["JobState"] == "FAILED"
    cluster.wait_gone(computes)
    found = usage(cluster, computes)
    assert (found["state"], found["exit_code"]) == ("FAILED", 3)
    assert 79 <= found["memory_used_mib"] <= 100
    assert 5 <= found["cpu_s"] <= found["elapsed_s"]
    assert 10 <= found["written_mib"] <= 11
    seff = cluster.plugin("usage", str(computes), user="alice").out
    assert "State: FAILED (exit code 3)\n" in seff
    assert f"Memory Utilized: {found['memory_used_mib']:.2f} MB\n" in seff
    others = cluster.plugin("usage", str(computes), user="bob")
    assert (others.code, "belongs to alice" in others.err) == (1, True)
