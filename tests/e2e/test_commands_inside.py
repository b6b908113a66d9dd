"""Slurm's clients called inside the VMs of a job (issue 12, 2)."""

from __future__ import annotations

import re

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
    assert cluster.accounted(job, "JobID")[0]["State"].startswith("CANCELLED")


# Slurm's client prints into a pipe, and keeps back less than a line of this length.
WATCH = """#!/bin/sh
squeue -j "$SLURM_JOB_ID" -i 1 -o '%i %4096u' &
until [ -e stop ]; do sleep 0.5; done
kill $!; echo; sleep 3; ls /run/rmsplugin/job/commands
"""
DATE = re.compile(r"\w{3} \w{3} [ \d]\d (\d\d:\d\d:\d\d) \d{4}")


@pytest.mark.long
def test_what_a_command_prints_while_it_runs_comes_once_across_a_suspend_and_a_migration(cluster: Cluster) -> None:
    stop = cluster.home() / "stop"
    stop.unlink(missing_ok=True)
    job = cluster.sbatch(WATCH, "-n", "1", "-t", "10")

    def times() -> list[str]:
        """When squeue has looked, by the lines that it begins with, of which no part may be missing."""
        lines = [line.rstrip() for line in cluster.lines(job)]
        looks = [DATE.fullmatch(line) for line in lines if line not in ("", "JOBID USER", f"{job} alice", "wake")]
        return [look[1] if look else "no date" for look in looks[:-1]]

    def more() -> None:
        number = len(times())
        cluster.wait("more lines", lambda: len(times()) > number + 2, 120)

    more()
    for word in ("suspend", "resume", "migrate"):
        done = cluster.plugin(word, str(job))
        assert done.code == 0, done.err
        if word != "suspend":
            more()
    stop.touch()
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    assert times() == sorted(set(times())), "each came once"
    assert "no date" not in times()
    assert cluster.lines(job)[-1] == "wake", "it ended with its reader"
