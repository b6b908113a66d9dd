"""Queue: the waiting vjobs in the order in which they may start, and the making of a vjob's VMs."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from rmsplugin.adapters.guest import generate_keypair
from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.decision.wanted import Candidate
from rmsplugin.engine.capacity import demand
from rmsplugin.engine.context import Context
from rmsplugin.engine.failures import Resting
from rmsplugin.engine.observation import Observation
from rmsplugin.engine.rooms import hosts_of
from rmsplugin.engine.rows import VJobRow, VMRow
from rmsplugin.errors import RefusedError
from rmsplugin.model.elements import VM
from rmsplugin.model.vjob import Geometry, VJobState, vm_name

_WRAPPER_LINE = re.compile(r"#!\S*/rmsplugin-job ([^\n]{1,250})\n")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A vjob that may run now: its job in the RMS, and what the ledger knows of it.

    Elements of a job array that the RMS has not split off yet have no row of their own: they are all the same but
    for their number.
    """

    job: RmsJob
    geometry: Geometry
    submitted: float
    priority: int
    sleeping: VJobRow | None = None  # it is resumed, not started
    since: float = 0.0  # when it came into its state


def read_geometry(context: Context, job: RmsJob) -> Geometry:
    """The geometry that was kept with the job at its submission.

    Raises:
        RefusedError: the job was not wrapped, e.g. moved into the partition by an administrator.
        NotFoundError: the job has gone.
    """
    match = _WRAPPER_LINE.match(context.rms.batch_script(job.job_id))
    if match is None:
        raise RefusedError("it was not wrapped at submission; it has to be submitted again to this partition")
    try:
        geometry = Geometry.parse(match[1])
    except ValueError as error:
        raise RefusedError(f"its first line cannot be read: {error}") from None
    if geometry.image not in context.settings.image:
        raise RefusedError(f"there is no image {geometry.image}; known: {', '.join(sorted(context.settings.image))}")
    return geometry


def new_vjob(context: Context, job: RmsJob, geometry: Geometry) -> VJobRow:
    """The row of a vjob at first sight."""
    return VJobRow(
        job_id=job.job_id,
        display_id=job.display_id,
        user=job.user,
        uid=job.uid,
        partition=job.partition,
        geometry=geometry,
        state=VJobState.WAITING,
        reason="waits for the next cycle",
        submitted=job.submit_time,
        state_since=context.clock.now(),
        restarts=job.restarts,
        priority=job.priority,
    )


class _Named(Protocol):
    """A job, or the row of a vjob."""

    @property
    def job_id(self) -> int: ...

    @property
    def display_id(self) -> str: ...

    @property
    def partition(self) -> str: ...


def queue_key(seen: Observation, of: _Named, priority: int, submitted: float) -> tuple[int, int, float, int, int]:
    """What the queue is sorted by: PriorityTier, Slurm's priority, first submission, job id and array element."""
    _, _, element = of.display_id.partition("_")
    partition = seen.rms.partitions.get(of.partition)  # an admin may take one away while jobs wait there
    tier = partition.priority_tier if partition else 0
    return (-tier, -priority, submitted, of.job_id, int(element or 0))


def queue_order(seen: Observation, waiting: Iterable[Waiting]) -> list[Waiting]:
    """Head first."""
    return sorted(waiting, key=lambda each: queue_key(seen, each.job, each.priority, each.submitted))


def allowed_hosts(context: Context, seen: Observation, partition: str, geometry: Geometry) -> frozenset[str]:
    """The VM hosts of the partition that the job's -C, -w and -x leave."""
    return frozenset(
        name
        for name in hosts_of(context.settings, seen.rms, partition)
        if name in seen.rms.nodes and geometry.constraints.allows(name, seen.rms.nodes[name].features)
    )


def objection(context: Context, seen: Observation, waiting: Waiting) -> str:
    """Why no VM host at all may be used, in a sentence for the job's owner; empty if one may."""
    hosts = hosts_of(context.settings, seen.rms, waiting.job.partition)
    known = {name: seen.rms.nodes[name].features for name in hosts if name in seen.rms.nodes}
    return waiting.geometry.constraints.objection(known)


def ready_vms(waiting: Waiting, rows: Iterable[VMRow]) -> dict[str, VMRow | None]:
    """The VMs of who waits, by name: those of its ``rows``, or, without a row and a final name, those to be made."""
    if waiting.sleeping is None:
        return {f"{waiting.job.display_id}-{index}": None for index in range(waiting.geometry.vms)}
    return {vm.name: vm for vm in rows}


def ready_hosts(
    context: Context, seen: Observation, waiting: Waiting, vms: Iterable[VMRow | None], resting: Resting
) -> frozenset[str]:
    """Where the VMs of who waits may go: where its user and its disks let it, and no node rests from it."""
    nodes = allowed_hosts(context, seen, waiting.job.partition, waiting.geometry)
    nodes -= resting.get("run" if waiting.sleeping is None else "resume", frozenset())
    if waiting.sleeping is not None and context.pinned(waiting.sleeping):
        nodes &= {vm.touched[0] for vm in vms if vm is not None}
    return nodes


def candidate(context: Context, seen: Observation, waiting: Waiting, resting: Resting) -> Candidate:
    """The vjob as the search for nodes to borrow sees it."""
    need = demand(context, waiting.geometry)
    vms = ready_vms(waiting, context.ledger.vms(waiting.sleeping.job_id) if waiting.sleeping else ())
    nodes = ready_hosts(context, seen, waiting, vms.values(), resting)
    prefer = {name: vm.image_node for name, vm in vms.items() if vm is not None}
    return Candidate(waiting.job.display_id, tuple(VM(name, need) for name in vms), nodes, prefer)


def free_addresses(context: Context) -> int:
    """How many VMs could get an address now."""
    first, last = context.settings.network.pool_bounds
    taken = {ipaddress.IPv4Address(vm.address) for vm in context.ledger.vms()}
    return int(last) - int(first) + 1 - sum(first <= address <= last for address in taken)


def make_vms(context: Context, vjob: VJobRow, hosts: list[str]) -> list[VMRow]:
    """New VMs for a vjob: names, addresses, MAC addresses and host keys of their own.

    Raises:
        RefusedError: the address pool is used up.
    """
    taken = {vm.address for vm in context.ledger.vms()}
    rows = []
    for index, (host, address) in enumerate(zip(hosts, _free_addresses(context, taken, len(hosts)), strict=True)):
        keys = generate_keypair()
        rows.append(
            VMRow(
                name=vm_name(vjob.job_id, index),
                job_id=vjob.job_id,
                idx=index,
                uuid=str(uuid.uuid4()),
                mac=_mac(context, address),
                address=str(address),
                host=host,
                host_key=keys.private_openssh,
                host_key_public=keys.public,
            )
        )
    return rows


def _free_addresses(context: Context, taken: set[str], count: int) -> list[ipaddress.IPv4Address]:
    first, last = context.settings.network.pool_bounds
    free: list[ipaddress.IPv4Address] = []
    address = first
    while len(free) < count:
        if address > last:
            raise RefusedError(f"needs {count} addresses, {len(free)} free in network.pool {first}-{last}")
        if str(address) not in taken:
            free.append(address)
        address += 1
    return free


def _mac(context: Context, address: ipaddress.IPv4Address) -> str:
    """One for each address, so that neighbours' caches stay true when an address is used again."""
    low = int(address) & 0xFFFFFF
    return f"{context.settings.network.mac_prefix}:{low >> 16:02x}:{low >> 8 & 0xFF:02x}:{low & 0xFF:02x}"
