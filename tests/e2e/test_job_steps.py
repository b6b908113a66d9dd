"""Steps in VMs are steps of Slurm's, and a suspend or a requeue loses none (issue 12, 3)."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest
from e2e.cluster import Cluster
from e2e.rooms import Machine

pytestmark = pytest.mark.e2e

ENDS = """#!/bin/bash
srun -n 1 true
srun -J 'a name' -n 2 sh -c 'exit 5'
srun -n 1 sh -c 'kill -9 $$'
"""
#: Counts until it has the signal, however long the machine takes for all that happens before. The signal ends its
#: `sleep`, too: what the shell says of that comes by another way than its output, and so before or after the last line.
COUNTS = """#!/bin/bash
srun -n 1 -e /dev/null bash -c '
    trap "got=1" USR1; until [ "$got" ]; do echo "count $((i += 1))"; sleep 0.5; done; echo "got <$got>"
'
"""


def steps(cluster: Cluster, job: int) -> list[list[str]]:
    """Of each step that Slurm knows of, but for the script: number, name, state, exit code, tasks."""
    lines = cluster.ok("sacct", "-nPj", str(job), "-o", "JobID,JobName,State,ExitCode,NTasks").splitlines()
    return [line.split("|") for line in lines if "." in line.split("|")[0] and ".batch" not in line]


def takes_signals(pid: int, job: int) -> bool:
    """Whether this process stands for a task of the job's step, and keeps SIGUSR1 until it is asked for."""
    with contextlib.suppress(OSError):  # it has just ended
        own = Path("/proc", str(pid))
        blocked = next(line for line in (own / "status").read_text().splitlines() if line.startswith("SigBlk:"))
        of_the_job = f"SLURM_JOB_ID={job}".encode() in (own / "environ").read_bytes().split(b"\0")
        return of_the_job and bool(int(blocked.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)
    return False


def wait_shown(cluster: Cluster, job: int) -> None:
    """Wait until Slurm shows the only step of a job, and its task has begun: to one that begins Slurm sends nothing."""
    cluster.wait("a step", lambda: f"{job}.0" in cluster.ok("squeue", "-hs", "-j", str(job), "-o", "%i"), 60)

    def begun() -> bool:
        processes = Machine(cluster).processes("head").items()  # where front1 is
        return any("shadow" in words and takes_signals(pid, job) for pid, words in processes)

    cluster.wait("its task", begun, 60)


def test_the_accounting_has_the_steps_with_their_names_and_ends(cluster: Cluster) -> None:
    job = cluster.sbatch(ENDS, "-N", "1", "-n", "2", "--mem=128")
    assert cluster.wait_job(job, timeout_s=240)["JobState"] == "FAILED"
    expected = [
        [f"{job}.0", "true", "COMPLETED", "0:0", "1"],
        [f"{job}.1", "a name", "FAILED", "5:0", "2"],
        [f"{job}.2", "sh", "CANCELLED", "0:9", "1"],
    ]
    cluster.wait("the accounting", lambda: steps(cluster, job) == expected, 20, lambda: steps(cluster, job))


@pytest.mark.parametrize("course", ["suspend", "requeue"])
def test_a_step_goes_on_after_a_suspend_and_a_requeue_and_slurms_signals_reach_it(
    cluster: Cluster, course: str
) -> None:
    job = cluster.sbatch(COUNTS, "-N", "1", "-n", "1", "--mem=128")
    cluster.wait_output(job, "count 2", timeout_s=240)
    wait_shown(cluster, job)
    if course == "suspend":
        assert cluster.plugin("suspend", str(job)).code == 0
        assert cluster.plugin("resume", str(job)).code == 0
    else:
        cluster.ok("scontrol", "requeue", str(job))
    cluster.wait_job(job, "RUNNING", timeout_s=120)
    wait_shown(cluster, job)
    cluster.ok("scancel", "-s", "USR1", str(job), user="alice")
    assert cluster.wait_job(job, timeout_s=240)["JobState"] == "COMPLETED"
    counted = [line for line in cluster.lines(job) if line.startswith("count ")]
    assert len(counted) >= 2
    assert counted == [f"count {number}" for number, _ in enumerate(counted, 1)]
    assert cluster.lines(job)[-1] == "got <1>"
    cluster.wait(
        "the accounting",
        lambda: [each[2] for each in steps(cluster, job)] == ["COMPLETED"],
        20,
        lambda: steps(cluster, job),
    )


def test_scancel_of_a_step_ends_it_and_not_the_script(cluster: Cluster) -> None:
    job = cluster.sbatch("#!/bin/bash\nsrun -n 1 sleep 300\necho code $?\n", "-N", "1", "-n", "1", "--mem=128")
    cluster.wait_job(job, "RUNNING", timeout_s=240)
    wait_shown(cluster, job)
    cluster.ok("scancel", f"{job}.0", user="alice")
    assert cluster.wait_job(job, timeout_s=60)["JobState"] == "COMPLETED"
    assert "code 137" in cluster.lines(job)
