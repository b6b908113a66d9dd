"""Observed memory: the VMs that take of their nodes the memory they are seen to need; that memory; and the capacity.

It is used in partitions with ``memory = "observed"`` and context switches: without these a node that is short could not
be relieved. An observed VM is booked with the memory that it needs, and headroom for growth until the next cycle. So
all VMs of a node together need no more than the threshold, a share of its memory. VMs that are not observed can have
the whole node.
"""

from __future__ import annotations

import math
from typing import Protocol

from rmsplugin.decision.unblocking import estimate_mib
from rmsplugin.engine.context.machines import new_vm_mib
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import hosts_of
from rmsplugin.model.resources import NOTHING, Resources, amount
from rmsplugin.model.vjob import Geometry
from rmsplugin.settings import Settings


class _Job(Protocol):
    """A job whose VMs are to be made."""

    @property
    def user(self) -> str: ...

    @property
    def partition(self) -> str: ...


def observes(settings: Settings, seen: Observation, partition: str) -> bool:
    """Whether VMs that are started in the partition now take the memory that they are seen to need."""
    found = settings.partition.get(partition)
    return found is not None and found.memory == "observed" and site.may_suspend(seen.rms, partition)


def observing_hosts(settings: Settings, seen: Observation) -> frozenset[str]:
    """The VM hosts of the partitions whose memory is observed."""
    found: set[str] = set()
    for name in settings.slurm.partitions:
        if observes(settings, seen, name):
            found.update(hosts_of(settings, seen.rms, name))
    return frozenset(found)


def real_capacity(settings: Settings, seen: Observation, node: str) -> Resources:
    """The resources of a node that VMs may have: its size without the part that its host, or a rule, keeps."""
    keeps, size = settings.nodes, seen.rms.nodes[node]
    cpus, memory_mib = size.cpus - keeps.cpus_reserved, size.memory_mib - keeps.memory_reserved_mib
    for rule in settings.rule.values():
        if rule.kind == "reserve" and node in rule.hosts:
            cpus, memory_mib = cpus - rule.cpus, memory_mib - rule.memory_mib
    return amount(cpus, memory_mib) - seen.of_others.get(node, NOTHING)


def needed_mib(vm: VMRow) -> int:
    """The memory that a VM is seen to need, without its hypervisor process; all of its memory if nothing was seen."""
    return vm.memory_mib if vm.memory_demand_mib is None else min(vm.memory_mib, vm.memory_demand_mib)


def booked_mib(settings: Settings, seen: Observation, vjob: VJobRow, vm: VMRow) -> int | None:
    """The memory booked for a VM by its need as last seen, with headroom; None: its whole memory counts.

    The memory of its hypervisor process is not included.
    """
    if not vm.observed or vm.memory_demand_mib is None:
        return None
    return _with_headroom(settings, seen, vjob.partition, vm.memory_demand_mib)


def expected_mib(
    settings: Settings, ledger: Ledger, seen: Observation, job: _Job, name: str, geometry: Geometry, index: int
) -> int | None:
    """The memory that a VM is expected to need while its vjob has no VMs yet; None if its whole memory counts.

    Args:
        settings: with what is observed.
        ledger: with what was needed before.
        seen: one look; it keeps the result for all jobs that ask for the same.
        job: its user and partition.
        name: of its job.
        geometry: the request.
        index: number of the VM. All VMs of the vjob are expected to need the same, or all they have if that is less.
    """
    if not observes(settings, seen, job.partition):
        return None
    key = (job.user, name, geometry.memory_mib, geometry.image)
    if key not in seen.derived.expected:
        peaks = ledger.samples.peaks(*key)
        unknown = math.ceil(new_vm_mib(settings, geometry, 0) * settings.memory.unknown)
        seen.derived.expected[key] = estimate_mib(peaks, unknown, settings.memory.percentile)
    return min(seen.derived.expected[key], new_vm_mib(settings, geometry, index))


def expected_booked_mib(
    settings: Settings, ledger: Ledger, seen: Observation, job: _Job, name: str, geometry: Geometry, index: int
) -> int | None:
    """The memory that will be booked for a VM while its vjob has no VMs yet; arguments as of ``expected_mib``."""
    needed_mib = expected_mib(settings, ledger, seen, job, name, geometry, index)
    return None if needed_mib is None else _with_headroom(settings, seen, job.partition, needed_mib)


def _with_headroom(settings: Settings, seen: Observation, partition: str, needed_mib: int) -> int:
    """A VM's need with headroom; at most what a node has: a VM that is alone there has all that the node can give."""
    overhead_mib = settings.nodes.memory_overhead_mib
    wanted_mib = math.ceil((needed_mib + overhead_mib) / settings.memory.threshold) - overhead_mib
    return min(wanted_mib, _most_mib(settings, seen, partition))


def _most_mib(settings: Settings, seen: Observation, partition: str) -> int:
    """The most memory that a VM can have on any VM host of a partition, without its hypervisor process."""
    if partition not in seen.derived.most_mib:
        known = [name for name in hosts_of(settings, seen.rms, partition) if name in seen.rms.nodes]
        most = max((real_capacity(settings, seen, name).memory_mib for name in known), default=0)
        seen.derived.most_mib[partition] = max(1, most - settings.nodes.memory_overhead_mib)
    return seen.derived.most_mib[partition]
