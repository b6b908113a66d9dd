"""Capacity: what VMs may take of each VM host now, and what of it they have."""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.engine.context import Context
from rmsplugin.engine.observation import Observation
from rmsplugin.engine.rooms import RoomState, vm_hosts
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import Geometry


@dataclass(slots=True)
class HostCapacity:
    """One VM host."""

    capacity: Resources
    why_not: str  # why no VM may come now; empty if VMs may
    used: Resources = NOTHING
    vms: int = 0

    @property
    def free(self) -> Resources:
        """What is left; below nothing where more is used than should be."""
        return self.capacity - self.used


def demand(context: Context, geometry: Geometry) -> Resources:
    """What one VM takes of its node: the CPUs asked for, and its memory with the hypervisor's overhead."""
    return Resources(geometry.cpus, geometry.memory_mib + context.settings.nodes.memory_overhead_mib)


def host_capacities(context: Context, seen: Observation) -> dict[str, HostCapacity]:
    """The capacity of each VM host, by name, in the RMS's order.

    A VM takes its part from the moment its start is intended until it is known to be gone, and while it migrates on
    both nodes (I3).
    """
    found = {}
    reserved = Resources(context.settings.nodes.cpus_reserved, context.settings.nodes.memory_reserved_mib)
    unclean = {node for node, _ in context.ledger.nodes.left_behind()}
    for name in vm_hosts(context.settings, seen.rms):
        node = seen.rms.nodes[name]
        why_not = _why_not(seen, name) or ("VMs that were left behind there are removed first" * (name in unclean))
        found[name] = HostCapacity(Resources(node.cpus, node.memory_mib) - reserved, why_not)
    geometries = {vjob.job_id: vjob.geometry for vjob in context.ledger.vjobs()}
    for row in context.ledger.live_vms():
        for place in {row.host, row.destination} & found.keys():
            found[place].used += demand(context, geometries[row.job_id])
            found[place].vms += 1
    return found


def free_capacity(context: Context, seen: Observation) -> dict[str, Resources]:
    """What is free now of each node that takes VMs, by name, in the RMS's order."""
    return {name: host.free for name, host in host_capacities(context, seen).items() if not host.why_not}


def _why_not(seen: Observation, name: str) -> str:
    node, room = seen.rms.nodes[name], seen.rooms.by_node.get(name)
    if name in seen.unreachable:
        return seen.unreachable[name]
    if not node.up:
        return f"Slurm says that it is {node.state}{': ' + node.reason if node.reason else ''}"
    if node.draining:
        return f"it is being drained: {node.reason or 'no reason given'}"
    if room is None:
        return "the engine has no room there"
    if room.state in (RoomState.REQUESTED, RoomState.STARTING):
        return f"its room is {room.state}: {room.reason}"
    return room.reason or seen.faults.get(name, "")
