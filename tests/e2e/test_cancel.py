"""scancel at any moment leaves nothing behind (issue 2, 6.4)."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

LOOP = "#!/bin/sh\necho here\nwhile :; do sleep 1; done\n"


def test_cancelled_while_waiting(cluster: Cluster) -> None:
    # Larger than what is free, but not than what a node could host.
    blockers = [cluster.sbatch(LOOP, "-c", "2") for _ in range(3)]
    for blocker in blockers:
        cluster.wait_vjob(blocker, "starting", "running")
    job = cluster.sbatch(LOOP, "-c", "2")
    assert "needs" in cluster.wait_vjob(job, "waiting")["reason"] or cluster.vjob(job)
    cluster.ok("scancel", str(job))
    cluster.wait_gone(job)


@pytest.mark.parametrize("moment", ["starting", "running", "suspending", "sleeping", "resuming"])
def test_cancelled_while(cluster: Cluster, moment: str) -> None:
    job = cluster.sbatch(LOOP)
    if moment == "starting":
        cluster.wait_action(job, "run")
    else:
        cluster.wait_output(job, "here")
    if moment == "suspending":
        assert cluster.plugin("suspend", str(job), "--no-wait").code == 0
        cluster.wait_action(job, "suspend")
    if moment in ("sleeping", "resuming"):
        assert cluster.plugin("suspend", str(job)).code == 0
    if moment == "resuming":
        assert cluster.plugin("resume", str(job), "--no-wait").code == 0
        cluster.wait_action(job, "resume")
    cluster.ok("scancel", str(job))
    assert cluster.wait_job(job)["JobState"] == "CANCELLED"
    cluster.wait_gone(job, timeout_s=90)
