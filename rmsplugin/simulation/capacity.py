"""Capacity: how many equal processors a cluster has for a workload, memory included; and which jobs never fit.

Nodes are equal, and all VMs have one CPU. Memory can be counted in processors where it is never what is short (no VM
has more than its CPU's share of a node), and where all VMs have the same: a node then hosts so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmsplugin.errors import WorkloadError
from rmsplugin.workload.faults import FaultCode, Faults
from rmsplugin.workload.jobs import Job


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal nodes.

    Attributes:
        nodes: how many, at least 1.
        cpus_per_node: at least 1.
        memory_per_node_mib: None where memory is not looked at.
        memory_per_vm_mib: of VMs whose memory the trace does not tell; None: their CPU's share of the node.
    """

    nodes: int
    cpus_per_node: int
    memory_per_node_mib: int | None = None
    memory_per_vm_mib: int | None = None

    @property
    def cpus(self) -> int:
        """Of all nodes."""
        return self.nodes * self.cpus_per_node

    def vm_memory_mib(self, job: Job) -> int:
        """What each VM of a job needs; 0 where memory is not looked at."""
        if self.memory_per_node_mib is None:
            return 0
        if job.memory_mib is not None:
            return job.memory_mib
        share_mib = self.memory_per_node_mib // self.cpus_per_node
        return share_mib if self.memory_per_vm_mib is None else self.memory_per_vm_mib


def fitting(jobs: Sequence[Job], cluster: Cluster, faults: Faults) -> tuple[list[Job], int]:
    """The jobs that fit on the empty cluster, in their order, and the number of VMs that it hosts.

    Args:
        jobs: of the workload.
        cluster: that they run on.
        faults: those that do not fit are added there.

    Raises:
        WorkloadError: memory is short and VMs need different amounts of it, which processors cannot stand for.
    """
    node_mib = cluster.memory_per_node_mib
    vms_per_node = cluster.cpus_per_node
    if node_mib is not None:
        jobs = _without_large_vms(jobs, cluster, node_mib, faults)
        vms_per_node = _vms_per_node({cluster.vm_memory_mib(job) for job in jobs}, cluster, node_mib)
    vms = cluster.nodes * vms_per_node
    fit = []
    for job in jobs:
        if job.processors <= vms:
            fit.append(job)
            continue
        room = f"{vms} processors" if vms == cluster.cpus else f"room for {vms} VMs with that much memory"
        message = f"job {job.job_id} needs {job.processors} processors, and the cluster has {room}"
        faults.add(job.line, FaultCode.TOO_LARGE, message)
    return fit, vms


def _without_large_vms(jobs: Sequence[Job], cluster: Cluster, node_mib: int, faults: Faults) -> list[Job]:
    fit = []
    for job in jobs:
        vm_mib = cluster.vm_memory_mib(job)
        if vm_mib <= node_mib:
            fit.append(job)
        else:
            message = f"a VM of job {job.job_id} needs {vm_mib} MiB, and a node has {node_mib}"
            faults.add(job.line, FaultCode.TOO_LARGE, message)
    return fit


def _vms_per_node(amounts_mib: set[int], cluster: Cluster, node_mib: int) -> int:
    largest_mib = max(amounts_mib, default=0)
    if largest_mib * cluster.cpus_per_node <= node_mib:
        return cluster.cpus_per_node
    if len(amounts_mib) == 1:
        return node_mib // largest_mib
    raise WorkloadError(
        f"VMs need {min(amounts_mib)} to {largest_mib} MiB, more than a CPU's share of a node "
        f"({node_mib // cluster.cpus_per_node} MiB), and fcfs and easy count equal processors; "
        "give more --memory-per-node, or leave it out: then memory is not looked at"
    )
