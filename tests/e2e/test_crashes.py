"""Whatever is killed, the job finishes and its script ran once (issue 2, 6.5)."""

from __future__ import annotations

import pytest
from e2e.cluster import ENDED, Cluster

pytestmark = pytest.mark.e2e

SCRIPT = """#!/bin/sh
echo started >> started.$SLURM_JOB_ID
i=0
while [ $i -lt {numbers} ]; do i=$((i + 1)); echo $i; sleep 1; done
"""


def finished_once(cluster: Cluster, job: int, numbers: int) -> None:
    fields = cluster.wait_job(job, timeout_s=240)
    assert fields["JobState"] == "COMPLETED", cluster.describe(job)
    assert (cluster.home() / f"started.{job}").read_text() == "started\n"
    lines = [line for line in cluster.output(job).splitlines() if line.isdecimal()]
    assert lines == [str(number) for number in range(1, numbers + 1)]
    cluster.wait_gone(job)


@pytest.mark.parametrize("action", ["run", "suspend", "resume", "migrate", "stop"])
def test_kill_of_the_engine_during(cluster: Cluster, action: str) -> None:
    numbers = 12
    job = cluster.sbatch(SCRIPT.format(numbers=numbers))
    if action == "stop":
        cluster.wait_output(job, f"^{numbers - 1}$")
    elif action != "run":
        cluster.wait_output(job, "^2$")
    if action == "suspend":
        cluster.plugin("suspend", str(job), "--no-wait")
    if action == "resume":
        assert cluster.plugin("suspend", str(job)).code == 0
        cluster.plugin("resume", str(job), "--no-wait")
    if action == "migrate":
        cluster.plugin("migrate", str(job), "--no-wait")
    cluster.wait_action(job, action)
    cluster.kill("head", "engine")
    cluster.restart_engine()
    if action == "suspend":
        cluster.wait_vjob(job, "sleeping")
        assert cluster.plugin("resume", str(job)).code == 0
    finished_once(cluster, job, numbers)


def test_kill_of_the_wrappers_slurmstepd(cluster: Cluster) -> None:
    job = cluster.sbatch(SCRIPT.format(numbers=20))
    cluster.wait_output(job, "^3$")
    host = cluster.job(job)["BatchHost"]
    pids = cluster.ok("pgrep", "-f", rf"slurmstepd: \[{job}\.batch\]", host=host).split()
    assert pids
    inside = [pid for pid in pids if cluster.run("readlink", f"/proc/{pid}/ns/net", host=host).code == 0]
    cluster.ok("kill", "-KILL", *inside, host=host)
    finished_once(cluster, job, 20)


@pytest.mark.parametrize(("host", "daemon"), [("head", "slurmctld"), ("batch", "slurmd")])
def test_kill_of_slurms(cluster: Cluster, host: str, daemon: str) -> None:
    job = cluster.sbatch(SCRIPT.format(numbers=20))
    cluster.wait_output(job, "^3$")
    where = cluster.job(job)["BatchHost"] if host == "batch" else host
    # What was saved with this name knows that the job runs: a start that was forgotten may come twice, and fail it.
    cluster.ok("scontrol", "update", f"JobId={job}", f"Name=runs-{job}")
    cluster.wait_saved(f"runs-{job}")
    cluster.kill(where, daemon)
    cluster.wait_output(job, "^12$")
    cluster.start(where, daemon)

    def ended() -> bool:
        # A killed slurmctld may forget the starts of its last five seconds. It then starts such a job once more, its
        # slurmd, where it still runs, refuses, and Slurm drains that node: native ones, too. An admin resumes it.
        for line in cluster.unable_nodes():
            if "Duplicate jobid" in line:
                cluster.ok("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
        return cluster.job(job)["JobState"] in ENDED

    cluster.wait(f"job {job} to end", ended, 240, lambda: cluster.describe(job))
    finished_once(cluster, job, 20)
