"""Observed memory: which VMs take of their nodes what they are seen to need, how much that is, and of how much.

Partitions with ``memory = "observed"``, where context switches are on: without them a node that is short could not be
relieved. Such a VM is booked with what it needs and headroom for growth until the next cycle: so that all of a node
together need no more than the threshold, a share of its memory. VMs that are not observed can have the whole node.
"""

from __future__ import annotations

import math
from typing import Protocol

from rmsplugin.decision.unblocking import estimate_mib
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe import site
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.observe.rooms import hosts_of
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import Geometry


class _Job(Protocol):
    """Whose VMs are to be made."""

    @property
    def user(self) -> str: ...

    @property
    def partition(self) -> str: ...


def observes(context: Context, seen: Observation, partition: str) -> bool:
    """Whether VMs that are started there now take what they are seen to need."""
    found = context.settings.partition.get(partition)
    return found is not None and found.memory == "observed" and site.may_suspend(seen.rms, partition)


def observing_hosts(context: Context, seen: Observation) -> frozenset[str]:
    """The VM hosts of the partitions whose memory is observed."""
    found: set[str] = set()
    for name in context.settings.slurm.partitions:
        if observes(context, seen, name):
            found.update(hosts_of(context.settings, seen.rms, name))
    return frozenset(found)


def real_capacity(context: Context, seen: Observation, node: str) -> Resources:
    """All that VMs may have of a node: its size less what its host keeps."""
    keeps, size = context.settings.nodes, seen.rms.nodes[node]
    return Resources(size.cpus - keeps.cpus_reserved, size.memory_mib - keeps.memory_reserved_mib)


def needed_mib(vm: VMRow) -> int:
    """What a VM is seen to need, without its hypervisor process; all that it has if nothing was seen of it."""
    return vm.memory_mib if vm.memory_demand_mib is None else min(vm.memory_mib, vm.memory_demand_mib)


def booked_mib(context: Context, seen: Observation, vjob: VJobRow, vm: VMRow) -> int | None:
    """What a VM is booked with, by what it is seen to need, or was when it was saved; None: what was requested counts.

    Its hypervisor process is not in it.
    """
    if not vm.observed or vm.memory_demand_mib is None:
        return None
    return _with_headroom(context, seen, vjob.partition, vm.memory_demand_mib)


def expected_mib(
    context: Context, seen: Observation, job: _Job, name: str, geometry: Geometry, index: int
) -> int | None:
    """What a VM of a vjob that has none yet is expected to need; None where what was requested counts.

    Args:
        context: settings and ledger.
        seen: what is looked up once for all that ask for the same.
        job: its user and partition.
        name: of its job.
        geometry: what was requested.
        index: number of the VM. All VMs of the vjob are expected to need the same, as far as they have it.
    """
    if not observes(context, seen, job.partition):
        return None
    key = (job.user, name, geometry.memory_mib, geometry.image)
    if key not in seen.expected:
        peaks = context.ledger.samples.peaks(*key)
        unknown = math.ceil(context.new_vm_mib(geometry, 0) * context.settings.memory.unknown)
        seen.expected[key] = estimate_mib(peaks, unknown, context.settings.memory.percentile)
    return min(seen.expected[key], context.new_vm_mib(geometry, index))


def expected_booked_mib(
    context: Context, seen: Observation, job: _Job, name: str, geometry: Geometry, index: int
) -> int | None:
    """What a VM of a vjob that has none yet will be booked with; arguments as of ``expected_mib``."""
    needed_mib = expected_mib(context, seen, job, name, geometry, index)
    return None if needed_mib is None else _with_headroom(context, seen, job.partition, needed_mib)


def _with_headroom(context: Context, seen: Observation, partition: str, needed_mib: int) -> int:
    """What a VM needs, with headroom; never more than a node has: one that is alone there has all that it can give."""
    overhead_mib = context.settings.nodes.memory_overhead_mib
    wanted_mib = math.ceil((needed_mib + overhead_mib) / context.settings.memory.threshold) - overhead_mib
    return min(wanted_mib, _most_mib(context, seen, partition))


def _most_mib(context: Context, seen: Observation, partition: str) -> int:
    """The most memory that a VM can have on any VM host of a partition, without its hypervisor process."""
    if partition not in seen.most_mib:
        known = [name for name in hosts_of(context.settings, seen.rms, partition) if name in seen.rms.nodes]
        most = max((real_capacity(context, seen, name).memory_mib for name in known), default=0)
        seen.most_mib[partition] = max(1, most - context.settings.nodes.memory_overhead_mib)
    return seen.most_mib[partition]
