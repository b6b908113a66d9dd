"""Capacity: the number of equal processors that a cluster has for a workload, memory included; and jobs that never fit.

Nodes are equal, and so are the CPUs of all VMs but those of a ledger's jobs. Processors can stand for memory in two
cases: memory is never short (no VM has more than its CPUs' share of a node), or all VMs have the same memory, so that
each node hosts a fixed number of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rmsplugin.model.overbooking import overbooked
from rmsplugin.workload.activity import Activity, Phase
from rmsplugin.workload.faults import FaultCode, Faults
from rmsplugin.workload.jobs import Job

#: Stands for all partitions that are not named.
EVERYWHERE = "*"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal nodes.

    Attributes:
        nodes: how many, at least 1.
        cpus_per_node: CPUs of each node, at least 1.
        memory_per_node_mib: memory of each node; None where memory is not looked at.
        memory_per_vm_mib: memory of VMs for which the trace tells none; None: their CPUs' share of the node.
        cpus_per_vm: CPUs of each VM, at least 1, at most those of a node.
        cpu_overbooking: by partition, CPUs of VMs for each CPU of a node, as ``overbooked`` has them; that of
            ``EVERYWHERE`` holds for all others.
    """

    nodes: int
    cpus_per_node: int
    memory_per_node_mib: int | None = None
    memory_per_vm_mib: int | None = None
    cpus_per_vm: int = 1
    cpu_overbooking: Mapping[str, float] = field(default_factory=dict)

    @property
    def cpus(self) -> int:
        """The CPUs of all nodes."""
        return self.nodes * self.cpus_per_node

    @property
    def node_names(self) -> list[str]:
        """The nodes' names, in their order: n1, n2, ..., each with as many digits as the last one."""
        return [f"n{number:0{len(str(self.nodes))}}" for number in range(1, self.nodes + 1)]

    def vm_memory_mib(self, job: Job) -> int:
        """The memory that each VM of a job needs; 0 where memory is not looked at."""
        if self.memory_per_node_mib is None:
            return 0
        if job.memory_mib is not None:
            return job.memory_mib * (self.cpus_per_vm if job.cpus_per_vm is None else 1)
        share_mib = int(self.memory_per_node_mib * self.booked_of(job) + 1e-6) // self.cpus_per_node
        return share_mib if self.memory_per_vm_mib is None else self.memory_per_vm_mib

    def vm_used_mib(self, job: Job) -> int:
        """The memory that each VM of a job uses when it runs; all of its memory where the trace does not tell."""
        size_mib = self.vm_memory_mib(job)
        if job.used_mib is None:
            return size_mib
        return min(size_mib, job.used_mib * (self.cpus_per_vm if job.cpus_per_vm is None else 1))

    def vms_of(self, job: Job) -> int:
        """The number of VMs of a job."""
        return -(-job.processors // self.vcpus_of(job))

    def vcpus_of(self, job: Job) -> int:
        """The number of CPUs of each VM of a job."""
        return job.cpus_per_vm or self.cpus_per_vm

    def booked_of(self, job: Job) -> float:
        """The CPUs that are booked for each VM of a job."""
        ratio = self.cpu_overbooking.get(job.partition, self.cpu_overbooking.get(EVERYWHERE, 1.0))
        return float(self.vcpus_of(job)) if ratio == 1 else overbooked(self.vcpus_of(job), ratio)

    def vm_cpus(self, job: Job) -> float:
        """The CPUs that each VM of a job uses: by the trace's average CPU time, else all that it requested."""
        if job.average_cpu_s is None or job.run_s <= 0:
            return float(self.vcpus_of(job))
        return max(0.01, round(self.vcpus_of(job) * min(1.0, job.average_cpu_s / job.run_s), 2))

    def activity_of(self, job: Job, known: Mapping[int, Activity]) -> Activity:
        """The activity of a job's VMs: as is known, by job id, else ``vm_cpus`` all the time."""
        return known.get(job.job_id) or (Phase(job.run_s, (self.vm_cpus(job),)),)

    def room_for(self, vm_mib: int, cpus: float) -> int:
        """The number of VMs with so much memory, and for which so many CPUs are booked, that the empty nodes host."""
        by_cpus = 100 * self.cpus_per_node // round(100 * cpus)
        if self.memory_per_node_mib is None or not vm_mib:
            return self.nodes * by_cpus
        return self.nodes * min(by_cpus, self.memory_per_node_mib // vm_mib)


def fitting(jobs: Sequence[Job], cluster: Cluster, faults: Faults, most_mib: int | None = None) -> list[Job]:
    """The jobs that fit on the empty cluster, in their order.

    Args:
        jobs: the jobs of the workload.
        cluster: the cluster that they run on.
        faults: a list to which the jobs that do not fit are added.
        most_mib: VMs are planned up to so much of a node, and a larger VM has a node to itself; None: all of the node.
    """
    node_mib = cluster.memory_per_node_mib
    planned = cluster if most_mib is None else replace(cluster, memory_per_node_mib=most_mib)
    fit = []
    for job in jobs:
        vm_mib = cluster.vm_memory_mib(job)
        if node_mib is not None and vm_mib > node_mib:
            message = f"a VM of job {job.job_id} needs {vm_mib} MiB, and a node has {node_mib}"
            faults.add(job.line, FaultCode.TOO_LARGE, message)
            continue
        vcpus, booked = cluster.vcpus_of(job), cluster.booked_of(job)
        if booked < vcpus > cluster.cpus_per_node:  # it would share CPUs with itself
            message = f"a VM of job {job.job_id} has {vcpus} CPUs, and a node has {cluster.cpus_per_node}"
            faults.add(job.line, FaultCode.TOO_LARGE, message)
            continue
        taken_mib = vm_mib if most_mib is None else min(vm_mib, most_mib)
        if cluster.vms_of(job) > (vms := planned.room_for(taken_mib, booked)):
            room = f"room for {vms} VMs with that much memory"
            if vms == cluster.room_for(0, booked):
                room = f"{cluster.cpus} processors" if booked == 1 else f"room for {vms} such VMs"
            message = f"job {job.job_id} needs {job.processors} processors, and the cluster has {room}"
            faults.add(job.line, FaultCode.TOO_LARGE, message)
        else:
            fit.append(job)
    return fit


def interchangeable(jobs: Sequence[Job], cluster: Cluster) -> int | None:
    """The number of VMs that the cluster hosts, of whichever jobs.

    None if the number depends on the jobs: if VMs have different numbers of CPUs, or if memory is short and VMs need
    different amounts of it, for which processors cannot stand; or if CPUs are overbooked: the speed of VMs then depends
    on their nodes.
    """
    if cluster.cpu_overbooking:
        return None
    amounts_mib = {cluster.vm_memory_mib(job) for job in jobs}
    vcpus = {cluster.vcpus_of(job) for job in jobs} or {cluster.cpus_per_vm}
    if len(vcpus) > 1:
        return None
    (each,) = vcpus
    most = cluster.room_for(0, each)
    vms = {cluster.room_for(vm_mib, each) for vm_mib in amounts_mib}
    if len(amounts_mib) > 1 and vms != {most}:
        return None
    return min(vms, default=most)
