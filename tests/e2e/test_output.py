"""More output than a VM has memory, through whatever happens to it on the way."""

from __future__ import annotations

import time

import pytest
from e2e.cluster import Cluster

# Without KVM, on a busy machine, a megabyte may take a second or two.
pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

LINES = 11_000_000  # 88 MB
SCRIPT = f"#!/bin/sh\nseq 1 {LINES}\n"


def test_much_output_through_a_small_vm_across_a_suspend_and_a_migration(cluster: Cluster) -> None:
    job = cluster.sbatch(SCRIPT, "--open-mode=append")
    path = cluster.home() / f"slurm-{job}.out"

    def delivered() -> int:
        return path.stat().st_size if path.exists() else 0

    def wait_for(size: int) -> None:
        cluster.wait(
            f"{size} bytes of output",
            lambda: delivered() >= size,
            400,
            lambda: f"{delivered()} {cluster.describe(job)}",
        )

    wait_for(15_000_000)
    suspended = cluster.plugin("suspend", str(job))
    assert suspended.code == 0, suspended.err
    time.sleep(2)
    assert cluster.plugin("resume", str(job)).code == 0
    wait_for(40_000_000)
    [node] = set(cluster.qemus(job))
    target = next(name for name in cluster.nodes if name != node)
    migrated = cluster.plugin("migrate", str(job), "--to", target)
    assert migrated.code == 0, migrated.err
    assert cluster.wait_job(job, timeout_s=600)["JobState"] == "COMPLETED"
    expected = 1
    with path.open("rb") as file:
        for line in file:
            assert line == b"%d\n" % expected, f"line {expected}"
            expected += 1
    assert expected == LINES + 1
