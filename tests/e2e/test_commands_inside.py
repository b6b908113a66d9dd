"""Slurm's clients called inside the VMs of a job (issue 12, 2)."""

from __future__ import annotations

import pytest
from e2e.cluster import Cluster

pytestmark = pytest.mark.e2e

# The next link of a chain of jobs is written in the VM, and lies nowhere else.
CHAIN = """#!/bin/sh
echo "in $(hostname): $1"
scontrol show hostnames
squeue -h -j "$SLURM_JOB_ID" -o '%i %T'
scontrol update JobId="$SLURM_JOB_ID" TimeLimit=77 && squeue -h -j "$SLURM_JOB_ID" -o %l
srun -n 2 -N 2 -l sh -c 'squeue -h -j "$SLURM_JOB_ID" -o %u' | sort
echo payload >/tmp/part && sbcast /tmp/part /tmp/all && srun -n 2 -N 2 -l cat /tmp/all | sort
printf 'PATH=/usr/bin:/bin\\n' >.profile
printf '#!/bin/sh -l\\necho "$PATH"; squeue -h -j "$SLURM_JOB_ID" -o %%i; srun -N 1 -n 1 hostname\\n' >login.sh
chmod +x login.sh; ./login.sh; rm .profile
printf '#!/bin/sh\\necho "next in $(hostname): $1 $LD_LIBRARY_PATH"\\n' >/tmp/next.sh
LD_LIBRARY_PATH=/l,m sbatch -p vjob -n 1 --mem=128 -o next.out /tmp/next.sh 'a  b'
scancel "$SLURM_JOB_ID"
sleep 100
echo not reached
"""


def test_a_job_looks_at_itself_changes_itself_submits_the_next_and_cancels_itself(cluster: Cluster) -> None:
    job = cluster.sbatch(CHAIN, "-N", "2", "-n", "2", arguments=("first",))
    assert cluster.wait_job(job, timeout_s=240)["JobState"] == "CANCELLED"
    vms = [f"vjob{job}-0", f"vjob{job}-1"]
    lines = cluster.output(job).splitlines()
    assert lines[:12] == [
        *(f"in {vms[0]}: first", *vms, f"{job} RUNNING", "1:17:00", "0: alice", "1: alice"),
        *("0: payload", "1: payload", "/usr/bin:/bin", str(job), vms[0]),
    ]
    [submitted] = [line for line in lines if line.startswith("Submitted batch job ")]
    following = int(submitted.split()[-1])
    assert "not reached" not in lines
    fields = cluster.wait_job(following, timeout_s=240)
    assert (fields["JobState"], fields["JobName"]) == ("COMPLETED", "next.sh")
    assert (cluster.home() / "next.out").read_text() == f"next in vjob{following}-0: a  b /l,m\n"
    cluster.wait("the accounting", lambda: cluster.sacct(job, "State")[0]["State"].startswith("CANCELLED"), 20)
