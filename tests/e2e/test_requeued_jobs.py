"""Requeues for which a script begins anew, on real Slurm: by RequeueExit, and of itself while the engine is down."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster
from e2e.slurm_conf import edited

pytestmark = pytest.mark.e2e

_EXITS = """#!/bin/bash
run=${SLURM_RESTART_COUNT:-0}; echo "run $run" >> ~/exits
[ $run != 0 ] || exit ${1:-77}
"""
_REQUEUES = """#!/bin/bash
run=${SLURM_RESTART_COUNT:-0}; echo "run $run" >> ~/requeues
[ $run != 0 ] || scontrol requeue $SLURM_JOB_ID
"""


def test_script_that_ends_with_a_code_of_requeue_exit_is_run_again(cluster: Cluster) -> None:
    with edited(cluster) as change:
        change("KillWait=5\n", "KillWait=5\nRequeueExit=77\n")
        job = cluster.sbatch(_EXITS, "--requeue", "--output=/dev/null")
        cluster.wait_job(job, "COMPLETED", timeout_s=180)
    assert (cluster.home() / "exits").read_text() == "run 0\nrun 1\n"


@pytest.mark.long
def test_script_that_ends_with_a_code_of_requeue_exit_hold_is_run_again_once_it_is_released(cluster: Cluster) -> None:
    (cluster.home() / "exits").unlink(missing_ok=True)
    with edited(cluster) as change:
        change("KillWait=5\n", "KillWait=5\nRequeueExitHold=78\n")
        job = cluster.sbatch(_EXITS, "--requeue", "--output=/dev/null", arguments=("78",))
        cluster.wait_job(job, "SPECIAL_EXIT", timeout_s=180)
        # As natively: nobody starts it before it is released, and its VM, which nothing needs any more, is gone.
        cluster.wait("its VM to be gone", lambda: not cluster.qemus(job), 60, lambda: cluster.describe(job))
        seen = cluster.wait_job(job, "SPECIAL_EXIT")
        assert (seen["Priority"], seen["Restarts"]) == ("0", "1")
        assert (cluster.home() / "exits").read_text() == "run 0\n"
        cluster.ok("scontrol", "release", str(job))
        cluster.wait_job(job, "COMPLETED", timeout_s=180)
    assert (cluster.home() / "exits").read_text() == "run 0\nrun 1\n"


@pytest.mark.long
def test_script_that_requeues_itself_is_run_again_though_slurm_starts_it_while_the_engine_is_down(
    cluster: Cluster,
) -> None:
    job = cluster.sbatch(_REQUEUES, "--requeue", "--output=/dev/null")
    cluster.wait("its requeue", lambda: cluster.job(job).get("Restarts") == "1", 90, lambda: cluster.describe(job))
    cluster.kill("head", "engine")
    try:
        again = ("scontrol", "update", f"JobId={job}", "StartTime=now", "Licenses=")
        cluster.wait(
            "its second run",
            lambda: cluster.run(*again) and cluster.job(job)["JobState"] == "RUNNING",
            120,
            lambda: str(cluster.job(job)),
        )
    finally:
        cluster.start("head", "engine")
    cluster.wait_job(job, "COMPLETED", timeout_s=180)
    first, *others = (cluster.home() / "requeues").read_text().split("\n")[:-1]
    assert first == "run 0"
    assert len(others) == 1, "it began anew, once"
