"""What users see of a batch job that runs in VMs (issue 2, 6.1 and 6.2)."""

from __future__ import annotations

import json
import sys

import pytest
from e2e.cluster import REPOSITORY, Cluster
from unit.api_forms import faults_of

pytestmark = pytest.mark.e2e


def test_output_error_arguments_environment_and_files_are_those_of_a_batch_job(cluster: Cluster) -> None:
    script = """#!/bin/sh
echo "out: $1|$2|$#|$GREETING|$(pwd)|$(id -un)|$(hostname)|$SLURM_JOB_ID|$(umask)"
echo "$PYTHONPATH|$RMSPLUGIN_CONFIG"
echo "err" >&2
printf 'made inside' > made.txt
test -e /proc/1 && grep -q QEMU /proc/cpuinfo && echo in a VM
exit 0
"""
    home = cluster.home()
    # Of no effect on the front, where they would have the wrapper run this and read that.
    (home / "sitecustomize.py").write_text("open('/home/alice/ran-on-the-front', 'w')\n")
    environment = "--export=ALL,GREETING=hello there,PYTHONPATH=/home/alice,RMSPLUGIN_CONFIG=/home/alice/own.toml"
    job = cluster.sbatch(script, environment, "-o", "split.out", "-e", "split.err", arguments=("a b", "*"))
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    assert not (home / "ran-on-the-front").exists()
    first, variables, second = (home / "split.out").read_text().splitlines()
    assert first == f"out: a b|*|2|hello there|/home/alice|alice|vjob{job}-0|{job}|0022"
    assert variables == "/home/alice|/home/alice/own.toml"
    assert second == "in a VM"
    assert (home / "split.err").read_text() == "err\n"
    assert (home / "made.txt").read_text() == "made inside"
    assert (home / "made.txt").stat().st_uid == 2001
    cluster.wait_gone(job)


def test_the_command_line_shows_the_vjobs_and_nodes_that_the_engine_knows(cluster: Cluster) -> None:
    job = cluster.sbatch("#!/bin/sh\nexit 0\n")
    cluster.wait_job(job)
    cluster.wait_gone(job)
    shown = json.loads(cluster.plugin("vjobs", "--json", str(job)).out)["vjobs"]
    assert [(each["job_id"], each["state"]) for each in shown] == [(job, "terminated")]
    shown = json.loads(cluster.plugin("nodes", "--json").out)["nodes"]
    assert [each["name"] for each in shown] == cluster.nodes
    for what in ("status", "nodes", "vjobs?ended=1", "vms", "groups", "events", "cycles", "schedule"):
        assert faults_of("GET", f"/v1/{what}", 200, cluster.ask(f"/v1/{what}")) == []
    page = cluster.ok(sys.executable, str(REPOSITORY / "docs/examples/portal.py"), user="alice").splitlines()
    assert [line.partition(":")[0] for line in page][: len(cluster.nodes)] == cluster.nodes


def test_exit_code_and_death_by_signal_reach_slurm(cluster: Cluster) -> None:
    codes = {
        cluster.sbatch("#!/bin/sh\nexit 0\n"): ("COMPLETED", "0:0"),
        cluster.sbatch("#!/bin/sh\nexit 3\n"): ("FAILED", "3:0"),
        cluster.sbatch("#!/bin/sh\nkill -USR2 $$\nsleep 9\n"): ("FAILED", "0:12"),
    }
    for job, (state, code) in codes.items():
        fields = cluster.wait_job(job)
        assert (fields["JobState"], fields["ExitCode"]) == (state, code)
        [row] = cluster.accounted(job, "ExitCode")
        assert (row["State"], row["ExitCode"]) == (state, code)


def test_every_element_of_an_array_runs_once_in_a_vm_of_its_own(cluster: Cluster) -> None:
    job = cluster.sbatch("#!/bin/sh\necho $SLURM_ARRAY_TASK_ID $(hostname)\n", "--array=1-3", "-o", "array-%a.out")
    cluster.wait("the array to end", lambda: str(job) not in cluster.ok("squeue", "-h", "-o", "%F"), 120)
    lines = [(cluster.home() / f"array-{index}.out").read_text().split() for index in (1, 2, 3)]
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert len({line[1] for line in lines}) == 3
    assert {row["State"] for row in cluster.accounted(job, "JobID", 3)} == {"COMPLETED"}


def test_a_dependent_job_starts_after_the_one_it_depends_on(cluster: Cluster) -> None:
    first = cluster.sbatch("#!/bin/sh\nsleep 4; date +%s\n")
    second = cluster.sbatch("#!/bin/sh\ndate +%s\n", f"--dependency=afterok:{first}")
    cluster.wait_job(second)
    assert int(cluster.output(first)) <= int(cluster.output(second))
    assert cluster.vjob(second)["losses"] == 0


def test_a_vjob_of_two_vms_runs_tasks_across_them_and_has_ssh_between_them(cluster: Cluster) -> None:
    script = """#!/bin/sh
srun -n 2 hostname
srun -l -n 2 sh -c 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NODEID "$1"' x 'two words'
ssh $(sed -n 2p $RMSPLUGIN_HOSTFILE) hostname
srun -n 2 sh -c 'exit $((SLURM_PROCID * 5))'
echo srun said $?
"""
    job = cluster.sbatch(script, "-N", "2", "--ntasks-per-node=1")
    assert cluster.wait_job(job)["JobState"] == "COMPLETED", cluster.output(job)
    lines = cluster.output(job).splitlines()
    assert sorted(lines[:2]) == [f"vjob{job}-0", f"vjob{job}-1"]
    assert sorted(lines[2:4]) == ["0: 0 of 2 on 0 two words", "1: 1 of 2 on 1 two words"]
    told = f"srun: error: vjob{job}-1: task 1: Exited with exit code 5"
    assert lines[4:] == [f"vjob{job}-1", told, "srun said 5"]
