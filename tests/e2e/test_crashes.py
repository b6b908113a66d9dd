"""Whatever is killed, the job finishes and its script ran once (issue 2, 6.5)."""

from __future__ import annotations

import pytest
from e2e.cluster import ENDED, Cluster
from e2e.rooms import COUNT, count, ended_whole, finish, wait_number

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("action", ["run", "suspend", "resume", "migrate", "stop"])
def test_kill_of_the_engine_during(cluster: Cluster, action: str) -> None:
    job = count(cluster)
    if action != "run":
        wait_number(cluster, job, 2)
    if action == "suspend":
        cluster.plugin("suspend", str(job), "--no-wait")
    if action == "resume":
        assert cluster.plugin("suspend", str(job)).code == 0
        cluster.plugin("resume", str(job), "--no-wait")
    if action == "migrate":
        cluster.plugin("migrate", str(job), "--no-wait")
    if action == "stop":
        cluster.ok("scancel", "--batch", "--signal=USR1", str(job), user="alice")
    cluster.wait_action(job, action)
    cluster.kill("head", "engine")
    cluster.restart_engine()
    if action == "suspend":
        cluster.wait_still(job, "sleeping")
        assert cluster.plugin("resume", str(job)).code == 0
    if action == "stop":
        ended_whole(cluster, job)
    else:
        wait_number(cluster, job, 2)
        finish(cluster, job)
    cluster.wait_gone(job)


def test_kill_of_the_wrappers_slurmstepd(cluster: Cluster) -> None:
    job = cluster.sbatch(COUNT, arguments=("20",))
    wait_number(cluster, job, 3)
    host = cluster.job(job)["BatchHost"]
    pids = cluster.ok("pgrep", "-f", rf"slurmstepd: \[{job}\.batch\]", host=host).split()
    assert pids
    inside = [pid for pid in pids if cluster.run("readlink", f"/proc/{pid}/ns/net", host=host).code == 0]
    cluster.ok("kill", "-KILL", *inside, host=host)
    ended_whole(cluster, job)
    cluster.wait_gone(job)


@pytest.mark.parametrize(("host", "daemon"), [("head", "slurmctld"), ("batch", "slurmd")])
def test_kill_of_slurms(cluster: Cluster, host: str, daemon: str) -> None:
    job = count(cluster)
    wait_number(cluster, job, 3)
    where = cluster.job(job)["BatchHost"] if host == "batch" else host
    # What was saved with this name knows that the job runs: a start that was forgotten may come twice, and fail it.
    cluster.ok("scontrol", "update", f"JobId={job}", f"Name=runs-{job}")
    cluster.wait_saved(f"runs-{job}")
    cluster.kill(where, daemon)
    wait_number(cluster, job, 8)
    cluster.start(where, daemon)

    def ended() -> bool:
        # A killed slurmctld may forget the starts of its last five seconds. It then starts such a job once more, its
        # slurmd, where it still runs, refuses, and Slurm drains that node: native ones, too. An admin resumes it.
        for line in cluster.unable_nodes():
            if "Duplicate jobid" in line:
                cluster.ok("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
        # Said until it is heard: what a daemon that has just begun was told may be lost.
        cluster.run("scancel", "--batch", "--signal=USR1", str(job), user="alice")
        return cluster.job(job)["JobState"] in ENDED

    cluster.wait("Slurm to answer", lambda: cluster.run("sinfo").code == 0, 120)
    cluster.wait(f"job {job} to end", ended, 240, lambda: cluster.describe(job))
    ended_whole(cluster, job)
    cluster.wait_gone(job)


@pytest.mark.long
def test_a_wrapper_whose_front_never_heard_the_resume_goes_on_without_a_requeue(cluster: Cluster) -> None:
    job = count(cluster)
    wait_number(cluster, job, 3)
    assert cluster.plugin("suspend", str(job)).code == 0
    cluster.kill("head", "slurmd")
    assert cluster.plugin("resume", str(job)).code == 0
    assert cluster.job(job)["JobState"] == "RUNNING"
    # slurmctld goes on trying for some seconds: a slurmd that is back at once is told after all.
    state = ("sinfo", "-h", "-n", "front1", "-o", "%t")
    cluster.wait("slurmctld to give it up", lambda: "*" in cluster.ok(*state), 150, lambda: cluster.ok(*state))
    cluster.start("head", "slurmd")
    cluster.wait("the wrapper to be told once more", lambda: "stands-still" in cluster.events(job), 60)
    wait_number(cluster, job, 3)
    finish(cluster, job)
    assert cluster.job(job)["Restarts"] == "0"
