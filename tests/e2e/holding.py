"""Vjobs that hold memory, more or less in each phase, and print a number each second: losses and order are seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from e2e.cluster import Cluster
from e2e.rooms import wait_number

PARTITION = "shared"

#: Counts as ``rooms.COUNT`` does, once so many MiB are held as the first argument says; USR2: the next argument counts.
#: Strings of 1 MiB are mapped one by one, so that what is given up goes back to the guest; `delete` gives nothing up.
HOLD = """#!/bin/sh
trap 'enough=1' USR1
trap 'shift' USR2
echo started >> started.$SLURM_JOB_ID
mkfifo /tmp/amounts
MALLOC_MMAP_THRESHOLD_=65536 awk '
    BEGIN { mib = "0123456789abcdef"; while (length(mib) < 1048576) mib = mib mib }
    { while (held < $2) hold[++held] = mib; while (held > $2) hold[held--] = ""; print $1; fflush() }
' < /tmp/amounts &
exec 3> /tmp/amounts
i=0
while [ -z "$enough" ]; do i=$((i + 1)); echo $i $1 >&3; sleep 1; done
exec 3>&-
wait
echo counted to $i
"""

#: Counts until it is signalled, and takes half of its guest's memory and as many MiB more as the first argument says as
#: fast as the guest's kernel can write zeros, once it is told to.
EAT = """#!/bin/sh
trap 'enough=1' USR1
trap 'hungry=1' USR2
echo started >> started.$SLURM_JOB_ID
i=0
while [ -z "$enough" ]; do
    i=$((i + 1)); echo $i
    if [ -n "$hungry" ]; then
        hungry=
        dd if=/dev/zero of=/dev/shm/eaten bs=8M 2>/dev/null &
        dd if=/dev/zero of=/tmp/eaten bs=1M count=$1 2>/dev/null &
    fi
    sleep 1
done
echo counted to $i
"""


@dataclass(frozen=True)
class Memory:
    """What ``rmsplugin vms`` says of a vjob's one VM, in MiB."""

    node: str
    size_mib: int
    demand_mib: int


def hold(cluster: Cluster, size_mib: int, *phases_mib: int, options: Sequence[str] = ()) -> int:
    """Submit a vjob of one VM that asks for a size and holds so much of it in each phase."""
    words = ("-p", PARTITION, f"--mem={size_mib}", "-c", "1", *options)
    return cluster.sbatch(HOLD, *words, arguments=tuple(str(each) for each in phases_mib))


def next_phase(cluster: Cluster, *jobs: int) -> None:
    """Have vjobs hold as much as their next phase says."""
    cluster.ok("scancel", "--batch", "--signal=USR2", *map(str, jobs), user="alice")


def memory(cluster: Cluster) -> Mapping[int, Memory]:
    """What is known of the VMs that run, by job."""
    vms = (cluster.ask("/v1/vms") or {"vms": []})["vms"]
    return {
        int(each["vjob"]): Memory(each["node"], each["memory_mib"], each["memory_demand_mib"] or each["memory_mib"])
        for each in vms
        if each["node"]
    }


def wait_counting(cluster: Cluster, *jobs: int, more: int = 1) -> None:
    """Wait until all of them count."""
    for job in jobs:
        wait_number(cluster, job, more, timeout_s=150)


def wait_demand(cluster: Cluster, job: int, least_mib: int, most_mib: int) -> None:
    """Wait until a vjob is seen to need an amount in these bounds."""

    def there() -> bool:
        found = memory(cluster).get(job)
        return found is not None and least_mib <= found.demand_mib <= most_mib

    cluster.wait(f"{job} to need {least_mib} to {most_mib} MiB", there, 120, lambda: memory(cluster))
