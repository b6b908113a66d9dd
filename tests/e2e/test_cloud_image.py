"""A vjob in a real Debian that cloud-init set up: an image of kind qcow2 (issue 2, section 3)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.cluster import REPOSITORY, Cluster
from e2e.conftest import PERIODS
from e2e.rooms import ledger

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

DEBIAN = ("--export=ALL,RMSPLUGIN_IMAGE=debian",)
BASE = "/var/lib/rmsplugin/debian.qcow2"
OF_DEBIAN = f"""
[image.debian]
kind = "qcow2"
base = "{BASE}"
overhead_mib = 256
waits = true

[guest]
shm_size = "16m"
"""
# What each line of its output has to be stands below. Memory comes first: the page cache of what follows is no use.
SCRIPT = r"""#!/bin/bash
awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo
. /etc/os-release
echo "$ID $(hostname) $(id -un) $PWD $(cat /proc/1/comm)"
readlink -f "$0"
echo "$(id -gn): $(id -Gn | tr ' ' '\n' | sort | paste -sd ' ')"
touch ../proj/made-in-debian && stat -c %G ../proj/made-in-debian
echo "$SLURM_JOB_NODELIST $SLURM_NTASKS $SLURM_JOB_CPUS_PER_NODE $SLURM_MEM_PER_NODE"
cat <(echo '/dev/fd') && echo /dev/stdout >/dev/stdout
awk '$2 == "/home" { print $3, $4 }' /proc/mounts | grep -o '^nfs4 rw,nosuid,nodev'
df -k /dev/shm | awk 'END { print $2 }'
squeue -h -j "$SLURM_JOB_ID" -o '%i %u %T'
srun -n 2 -l hostname | sort
srun --mpi=pmix true 2>&1
mpirun --hostfile "$RMSPLUGIN_HOSTFILE" python3 sum.py | sort
for i in {1..8}; do echo $i; sleep 1; done
touch made-in-debian
srun -n 2 -l bash tells | sort -s -n
"""
# No two VMs may share a line of this but the last one, the clock; nor what a boot would have made.
TELLS = r"""#!/bin/bash
card=$(basename $(dirname $(ls -d /sys/class/net/*/device)))
hostname
cat /etc/machine-id /sys/class/net/$card/address /proc/sys/kernel/random/boot_id
ip -4 -o address show dev $card | awk '{ print $4 }'
head -c 16 /dev/urandom | od -An -tx1
ssh-keygen -l -f <(grep "^$(hostname) " /run/rmsplugin/etc/known_hosts | cut -d ' ' -f 2-) | cut -d ' ' -f 2
date +%s
"""
# And how many daemons, but the kernel's, still step back some seconds after the start. Then the disk is filled.
OF_SISTERS = """#!/bin/bash
srun -n 2 -l bash tells | sort -s -n
sleep 6
ps --ppid 2 -p 2 --deselect -o ni= | grep -c 19 || :
fallocate -l $(($(df --output=avail -B1 /tmp | tail -n 1) - (16 << 20))) /tmp/most
dd if=/dev/zero of=/tmp/rest bs=4k 2>/dev/null || echo full
sleep 6
echo acknowledged by now
srun -N 1 -n 1 echo step
exit 7
"""
NUMBER_OF_TELLS, ADDRESSES = 8, (2, 4)
# What is printed when the disk with the job's directory is full, and is as whole as ever.
ON_A_FULL_DISK = ["full", "acknowledged by now", "step"]
# Each process has a number that shows in the sum, and hears from the other one.
MPI_PROGRAM = """from mpi4py import MPI

world = MPI.COMM_WORLD
print(MPI.Get_processor_name(), world.allreduce(10**world.rank), flush=True)
"""


@pytest.fixture
def debian_cluster() -> Iterator[Cluster]:
    """A minicluster of two nodes whose image `debian` lies on n1 and n2."""
    built = subprocess.run(
        [str(REPOSITORY / "contrib/guest-image"), "build-debian"], capture_output=True, text=True, timeout=900
    )
    assert built.returncode == 0, built.stderr
    cluster = Cluster(Path("/var/tmp") / f"rmsplugin-debian-{os.getpid()}")
    try:
        up = cluster.manage("up", "--nodes", "2", *PERIODS)
        assert up.code == 0, up.err
        for host in cluster.status()["hosts"]:
            settings = cluster.host_path(host, "/etc/rmsplugin/rmsplugin.toml")
            text = settings.read_text() + OF_DEBIAN
            text = text.replace("[hypervisor]\n", "[hypervisor]\nboot_timeout_s = 500\n")
            settings.write_text(text.replace("[slurm]\n", "[slurm]\nprolog_wait_s = 250\n"))
            site = cluster.host_path(host, "/etc/rmsplugin/site.lua")
            site.write_text(site.read_text().replace("return {", 'return {\n  images = { "default", "debian" },'))
            if host != "head":
                shutil.copyfile(built.stdout.strip(), cluster.host_path(host, BASE))
        (cluster.directory / "shared/slurm/job_submit.lua").touch()
        cluster.kill("head", "engine")
        cluster.restart_engine()
        yield cluster
    finally:
        cluster.manage("down")


def test_a_job_runs_in_a_debian_that_cloud_init_set_up_and_survives_a_suspend(debian_cluster: Cluster) -> None:
    cluster = debian_cluster
    (cluster.home() / "sum.py").write_text(MPI_PROGRAM)
    (cluster.home() / "tells").write_text(TELLS)
    job = cluster.sbatch(SCRIPT, *DEBIAN, "--mem=512", "-N", "2", "-n", "2")
    cluster.wait_output(job, "^3$", timeout_s=600)
    cluster.wait_nodes()
    born = cluster.vjob(job)["nodes"][0]
    other = next(node for node in cluster.nodes if node != born)
    moved = cluster.plugin("migrate", str(job), "--to", other)
    assert (moved.code, "disk" in moved.err) == (1, True), "its disks are on one node only"
    assert cluster.plugin("suspend", str(job)).code == 0
    assert cluster.qemus(job) == []
    resumed = cluster.plugin("resume", str(job))
    assert resumed.code == 0, resumed.err
    assert cluster.wait_job(job)["JobState"] == "COMPLETED"
    vms = [f"vjob{job}-0", f"vjob{job}-1"]
    available, *lines = cluster.output(job).splitlines()
    lines, tells = lines[: -2 * NUMBER_OF_TELLS], lines[-2 * NUMBER_OF_TELLS :]
    assert int(available) >= 512
    assert lines == [
        f"debian {vms[0]} alice /home/alice systemd",
        f"/var/spool/slurm/d/job{job:05}/slurm_script",
        "physics: lab physics proj",
        "proj",
        f"vjob{job}-[0-1] 2 1(x2) 512",
        *("/dev/fd", "/dev/stdout"),
        "nfs4 rw,nosuid,nodev",
        "16384",
        f"{job} alice RUNNING",
        *(f"0: {vms[0]}", f"1: {vms[1]}"),
        "srun: error: --mpi=pmix is not possible inside a vjob: there is no process manager of this type. What works: "
        "mpirun --hostfile $RMSPLUGIN_HOSTFILE (Open MPI), mpirun -f $RMSPLUGIN_HOSTFILE (MPICH)",
        *(f"{vms[0]} 11", f"{vms[1]} 11"),
        *(str(number) for number in range(1, 9)),
    ]
    assert (cluster.home() / "made-in-debian").exists()
    cluster.wait_gone(job)
    _sisters_differ_and_a_full_disk_costs_no_output(cluster, tells)
    _cancel_while_it_boots(cluster)


def _sisters_differ_and_a_full_disk_costs_no_output(cluster: Cluster, tells: list[str]) -> None:
    """VMs from the templates that those of the first job have made share nothing with them, nor with each other.

    The job's directory is on the disk that its script fills in the end.
    """
    begin = float(cluster.ok("date", "+%s"))
    job = cluster.sbatch(OF_SISTERS, *DEBIAN, "--mem=512", "-N", "2", "-n", "2")
    assert cluster.wait_job(job, timeout_s=300)["ExitCode"] == "7:0", cluster.describe(job)
    assert "from a template" in cluster.events(job), cluster.events(job)
    *told, stepping_back, full, acknowledged, step = cluster.lines(job)
    assert [full, acknowledged, step] == ON_A_FULL_DISK
    assert stepping_back == "0", "daemons do so until the start is over"
    tells += told
    vms = [
        [line.partition(": ")[2] for line in tells[at : at + NUMBER_OF_TELLS]]
        for at in range(0, len(tells), NUMBER_OF_TELLS)
    ]
    assert [len(vm) for vm in vms] == [NUMBER_OF_TELLS] * 4, tells
    for at in range(NUMBER_OF_TELLS - 1):
        # Addresses come again, once their VM has ended.
        together = [vms[:2], vms[2:]] if at in ADDRESSES else [vms]
        for some in together:
            assert len({vm[at] for vm in some} - {""}) == len(some), [vm[at] for vm in some]
    for vm in vms[2:]:
        assert begin - 2 <= int(vm[-1]) <= float(cluster.ok("date", "+%s")) + 1, "its clock is its node's"
    cluster.wait_gone(job)


def _cancel_while_it_boots(cluster: Cluster) -> None:
    """Nobody waits for a boot that takes a minute: node and queue are free at once."""
    job = cluster.sbatch("#!/bin/sh\ntrue\n", "--mem=400", *DEBIAN)  # there is no template of this size
    cluster.wait("a VM that boots", lambda: cluster.qemus(job), 60)
    cluster.ok("scancel", str(job), user="alice")
    cluster.wait_gone(job)
    assert cluster.qemus(job) == []
    ran = ledger(cluster, "select count(*) from events where vjob = ? and kind = 'vjob-running'", str(job))
    assert ran == [(0,)], "its guest never came up"
