"""A vjob in a real Debian that cloud-init set up: an image of kind qcow2 (issue 2, section 3)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e import common_templates
from e2e.cluster import REPOSITORY, Cluster
from e2e.conftest import PERIODS
from e2e.rooms import ledger

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

DEBIAN = ("--export=ALL,RMSPLUGIN_IMAGE=debian",)
MEMORY_MIB = 512
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
# No two VMs may share a line of this but the last one, the clock; nor what a boot would have made.
TELLS = r"""#!/bin/bash
card=$(basename $(dirname $(ls -d /sys/class/net/*/device)))
hostname
cat /etc/machine-id /sys/class/net/$card/address /proc/sys/kernel/random/boot_id
ip -4 -o address show dev $card | awk '{ print $4 }'
ssh-keygen -l -f <(grep "^$(hostname) " /run/rmsplugin/etc/known_hosts | cut -d ' ' -f 2-) | cut -d ' ' -f 2
head -c 16 /dev/urandom | od -An -tx1
date +%s
"""
NUMBER_OF_TELLS, ADDRESSES, DRAWN = 8, (2, 4), 6
#: The event of a job whose VM has made a template.
MADE = "start from it"
# The first job: of its VM the template is made. It tells how many daemons, but the kernel's, still step back some
# seconds after the start. Then the disk is filled.
OF_THE_FIRST = """#!/bin/bash
srun -n 1 -l bash tells
sleep 6
ps --ppid 2 -p 2 --deselect -o ni= | grep -c 19 || :
fallocate -l $(($(df --output=avail -B1 /tmp | tail -n 1) - (16 << 20))) /tmp/most
dd if=/dev/zero of=/tmp/rest bs=4k 2>/dev/null || echo full
sleep 6
echo acknowledged by now
srun -N 1 -n 1 echo step
exit 7
"""
# What is printed when the disk with the job's directory is full, and is as whole as ever.
ON_A_FULL_DISK = ["full", "acknowledged by now", "step"]
# The second job: its VMs are sisters of the first one's. What each line of its output has to be stands below. Memory
# comes first: the page cache of what follows is no use.
OF_SISTERS = r"""#!/bin/bash
awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo
srun -n 2 -l bash tells | sort -s -n
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
ps --ppid 2 -p 2 --deselect -o ni= | grep -c 19 || :
for i in {1..8}; do echo $i; sleep 1; done
touch made-in-debian
srun -n 2 -l bash tells | sort -s -n
"""
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
                # Of one age on all nodes, as it is where one file is given to each: by that a template knows its image.
                shutil.copy2(built.stdout.strip(), cluster.host_path(host, BASE))
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
    first = _a_first_vm_boots_and_a_full_disk_costs_no_output(cluster)
    # A boot takes a minute of CPU time, which the other node is spared.
    common_templates.exchange(
        cluster.directory / "templates", [cluster.host_path(node, common_templates.OF_A_NODE) for node in cluster.nodes]
    )
    _sisters_differ_and_survive_a_suspend(cluster, first)
    _cancel_while_it_boots(cluster)


def _a_first_vm_boots_and_a_full_disk_costs_no_output(cluster: Cluster) -> list[str]:
    """The first VM boots, and makes the template of all others; returns what it tells.

    The job's directory is on the disk that its script fills in the end.
    """
    begin = float(cluster.ok("date", "+%s"))
    job = cluster.sbatch(OF_THE_FIRST, *DEBIAN, f"--mem={MEMORY_MIB}", "-N", "1", "-n", "1")
    assert cluster.wait_job(job, timeout_s=600)["ExitCode"] == "7:0", cluster.describe(job)
    assert MADE in cluster.events(job), cluster.events(job)
    *told, stepping_back, full, acknowledged, step = cluster.lines(job)
    assert [full, acknowledged, step] == ON_A_FULL_DISK
    assert stepping_back == "0", "daemons do so until the start is over"
    (tells,) = _by_vm(told)
    assert _is_of_now(cluster, tells, begin)
    cluster.wait_gone(job)
    return tells


def _by_vm(lines: list[str]) -> list[list[str]]:
    """What each VM told."""
    vms = [
        [line.partition(": ")[2] for line in lines[at : at + NUMBER_OF_TELLS]]
        for at in range(0, len(lines), NUMBER_OF_TELLS)
    ]
    assert all(len(vm) == NUMBER_OF_TELLS for vm in vms), lines
    return vms


def _is_of_now(cluster: Cluster, tells: list[str], begin: float) -> bool:
    """Whether the VM's clock is its node's."""
    return begin - 2 <= int(tells[-1]) <= float(cluster.ok("date", "+%s")) + 1


def _sisters_differ_and_survive_a_suspend(cluster: Cluster, first: list[str]) -> None:
    """VMs from the template that the first one has made share nothing with it, nor with each other."""
    begin = float(cluster.ok("date", "+%s"))
    job = cluster.sbatch(OF_SISTERS, *DEBIAN, f"--mem={MEMORY_MIB}", "-N", "2", "-n", "2")
    cluster.wait_output(job, "^3$", timeout_s=300)
    assert "from a template" in cluster.events(job) and MADE not in cluster.events(job), cluster.events(job)
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
    of_all = 2 * NUMBER_OF_TELLS
    at_first, lines, in_the_end = lines[:of_all], lines[of_all:-of_all], lines[-of_all:]
    assert int(available) >= MEMORY_MIB
    assert lines == [
        f"debian {vms[0]} alice /home/alice systemd",
        f"/var/spool/slurm/d/job{job:05}/slurm_script",
        "physics: lab physics proj",
        "proj",
        f"vjob{job}-[0-1] 2 1(x2) {MEMORY_MIB}",
        *("/dev/fd", "/dev/stdout"),
        "nfs4 rw,nosuid,nodev",
        "16384",
        f"{job} alice RUNNING",
        *(f"0: {vms[0]}", f"1: {vms[1]}"),
        "srun: error: --mpi=pmix is not possible inside a vjob: there is no process manager of this type. What works: "
        "mpirun --hostfile $RMSPLUGIN_HOSTFILE (Open MPI), mpirun -f $RMSPLUGIN_HOSTFILE (MPICH)",
        *(f"{vms[0]} 11", f"{vms[1]} 11"),
        "0",
        *(str(number) for number in range(1, 9)),
    ]
    assert (cluster.home() / "made-in-debian").exists()
    cluster.wait_gone(job)
    started, resumed_vms = _by_vm(at_first), _by_vm(in_the_end)
    for at in range(NUMBER_OF_TELLS - 1):
        # Addresses come again, once their VM has ended.
        together = [started] if at in ADDRESSES else [[first, *started]]
        for some in together:
            assert len({vm[at] for vm in some} - {""}) == len(some), [vm[at] for vm in some]
    assert [vm[:DRAWN] for vm in resumed_vms] == [vm[:DRAWN] for vm in started], "a resumed VM is who it was"
    drawn = [vm[DRAWN] for vm in (first, *started, *resumed_vms)]
    assert len(set(drawn)) == len(drawn), drawn
    assert all(_is_of_now(cluster, vm, begin) for vm in (*started, *resumed_vms))


def _cancel_while_it_boots(cluster: Cluster) -> None:
    """Nobody waits for a boot that takes a minute: node and queue are free at once."""
    job = cluster.sbatch("#!/bin/sh\ntrue\n", "--mem=400", *DEBIAN)  # there is no template of this size
    cluster.wait("a VM that boots", lambda: cluster.qemus(job), 60)
    cluster.ok("scancel", str(job), user="alice")
    cluster.wait_gone(job)
    assert cluster.qemus(job) == []
    ran = ledger(cluster, "select count(*) from events where vjob = ? and kind = 'vjob-running'", str(job))
    assert ran == [(0,)], "its guest never came up"
