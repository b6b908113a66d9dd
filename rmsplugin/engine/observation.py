"""Observation: one reading of the RMS and of all hypervisors, on which a whole cycle is based."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from rmsplugin.adapters.hypervisor.base import VMInfo
from rmsplugin.adapters.rms.base import JobState, RmsJob, RmsNode, RmsSnapshot
from rmsplugin.engine.context import Context
from rmsplugin.engine.rows import VJobRow, VMRow
from rmsplugin.errors import RmspluginError
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import Geometry, VJobState

_PARALLEL = 32


@dataclass(frozen=True)
class Observation:
    """What was seen. ``taken`` is the time just before the first look: whatever changed later may be missing."""

    taken: float
    rms: RmsSnapshot
    vms: dict[str, dict[str, VMInfo]]  # by node, then VM name; only of nodes whose hypervisor answered
    unreachable: dict[str, str] = field(default_factory=dict)  # node -> why

    def where(self, vm: str) -> list[str]:
        """Nodes on which the VM was seen."""
        return [node for node, vms in self.vms.items() if vm in vms]


def observe(context: Context) -> Observation:
    """Look at everything once. Raises UnavailableError if the RMS does not answer."""
    taken = context.clock.now()
    rms = context.rms.snapshot()
    vms: dict[str, dict[str, VMInfo]] = {}
    unreachable: dict[str, str] = {}
    names = vjob_nodes(context, rms)
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="observe") as pool:
        futures = {name: pool.submit(context.hypervisor.list_vms, name) for name in names}
        for name, future in futures.items():
            try:
                vms[name] = future.result()
            except RmspluginError as error:
                unreachable[name] = str(error)
    return Observation(taken, rms, vms, unreachable)


def vjob_nodes(context: Context, rms: RmsSnapshot) -> list[str]:
    """Names of the nodes of all vjob partitions, in the RMS's order."""
    partitions = [rms.partitions[name] for name in context.settings.slurm.partitions if name in rms.partitions]
    wanted = {node for partition in partitions for node in partition.nodes}
    return [name for name in rms.nodes if name in wanted]


def demand(context: Context, geometry: Geometry) -> Resources:
    """What one VM takes of its node: the CPUs asked for, and its memory with the hypervisor's overhead."""
    return Resources(geometry.cpus, geometry.memory_mib + context.settings.nodes.memory_overhead_mib)


@dataclass(slots=True)
class Room:
    """What VMs may take of a node, what of it they have, and whether more may come."""

    capacity: Resources
    takes_vms: bool
    used: Resources = NOTHING
    vms: int = 0


def rooms(context: Context, seen: Observation) -> dict[str, Room]:
    """The room on each node of the vjob partitions, by name, in the RMS's order.

    A VM takes room from the moment its start is intended until it is known to be gone, and while it migrates on both
    nodes (I3).
    """
    found = {}
    for name in vjob_nodes(context, seen.rms):
        node = seen.rms.nodes[name]
        takes_vms = node.up and not node.draining and name in seen.vms
        found[name] = Room(_capacity(context, seen, node), takes_vms)
    live = context.ledger.live_vms()  # read first: a vjob that is missing below has ended since, and its VMs are gone
    geometries = {vjob.job_id: vjob.geometry for vjob in context.ledger.vjobs()}
    for row in live:
        if row.job_id not in geometries:
            continue
        for place in {row.host, row.destination} & found.keys():
            found[place].used += demand(context, geometries[row.job_id])
            found[place].vms += 1
    return found


def free_room(context: Context, seen: Observation) -> dict[str, Resources]:
    """What is free now of each node that takes VMs, by name, in the RMS's order."""
    return {name: room.capacity - room.used for name, room in rooms(context, seen).items() if room.takes_vms}


def _capacity(context: Context, seen: Observation, node: RmsNode) -> Resources:
    """What VMs may take of a node: what the site and native jobs leave."""
    reserved = Resources(context.settings.nodes.cpus_reserved, context.settings.nodes.memory_reserved_mib)
    return Resources(node.cpus, node.memory_mib) - reserved - _native_use(context, seen.rms.jobs, node.name)


def _native_use(context: Context, jobs: Iterable[RmsJob], node: str) -> Resources:
    """What jobs of other partitions have of the node; a job of several nodes counts an equal share on each."""
    used = Resources(0, 0)
    for job in jobs:
        running = job.state in (JobState.RUNNING, JobState.CONFIGURING) or job.completing
        if running and node in job.nodes and job.partition not in context.settings.slurm.partitions:
            used += Resources(job.cpus / len(job.nodes), job.memory_mib // len(job.nodes))
    return used


def missing_vms(vjob: VJobRow, vms: Iterable[VMRow], seen: Observation) -> list[VMRow]:
    """VMs of a running vjob that are on no node that answered, although their own host did."""
    if vjob.state is not VJobState.RUNNING:
        return []
    return [vm for vm in vms if vm.host in seen.vms and not seen.where(vm.name)]
