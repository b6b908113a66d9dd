"""Newcomers: the row of a vjob at first sight, and the VMs that are made for it when it starts."""

from __future__ import annotations

import ipaddress
import itertools
import math
import re
import uuid
from collections.abc import Callable
from dataclasses import replace

from rmsplugin.adapters.guests.keys import generate_keypair
from rmsplugin.adapters.rms.base import Rms, RmsJob
from rmsplugin.engine.assess.job_identity import script_digest
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.machines import new_vm_mib
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import Geometry, VJobState
from rmsplugin.model.vm_names import vm_name
from rmsplugin.settings import Settings

#: The reason of a vjob about which no cycle has decided.
NOT_DECIDED_YET = "waits for the next cycle"
_WRAPPER_LINE = re.compile(r"#!\S*/rmsplugin-job ([^\n]{1,250})\n")


def read_geometry(settings: Settings, rms: Rms, job: RmsJob) -> tuple[Geometry, str]:
    """The geometry that was kept with the job at its submission, and the digest of its script.

    Raises:
        RefusedError: the job was not wrapped; for instance, an administrator moved it into the partition. Or it is a
            plain job whose part on each node is not known beforehand.
        NotFoundError: the job has gone.
    """
    script = rms.batch_script(job.job_id)
    if settings.native:
        return _on_nodes_of_its_own(rms.geometry(job.job_id)), script_digest(script)
    match = _WRAPPER_LINE.match(script)
    if match is None:
        raise RefusedError("it was not wrapped at submission; it has to be submitted again to this partition")
    try:
        geometry = Geometry.parse(match[1])
    except ValueError as error:
        raise RefusedError(f"the first line of its script cannot be read: {error}") from None
    if geometry.image not in settings.image:
        raise RefusedError(f"there is no image {geometry.image}; known: {', '.join(sorted(settings.image))}")
    return geometry, script_digest(script)


def _on_nodes_of_its_own(geometry: Geometry) -> Geometry:
    """The same, where each VM stands for the part of a plain job on one node: no two are on the same one."""
    return replace(geometry, wishes=geometry.wishes | {"spread"}) if geometry.vms > 1 else geometry


def new_vjob(clock: Clock, job: RmsJob, geometry: Geometry, script: str) -> VJobRow:
    """The row of a vjob at first sight; ``script``: the digest of its job's script."""
    return VJobRow(
        job_id=job.job_id,
        display_id=job.display_id,
        user=job.user,
        uid=job.uid,
        partition=job.partition,
        geometry=geometry,
        state=VJobState.WAITING,
        reason=NOT_DECIDED_YET,
        submitted=job.submit_time,
        state_since=clock.now(),
        restarts=job.restarts,
        priority=job.priority,
        job_name=job.name,
        script_digest=script,
        seen_restarts=job.restarts,
        seen_submitted=job.submit_time,
    )


def free_addresses(settings: Settings, ledger: Ledger) -> float:
    """The number of VMs that could get an address now; infinite where none needs one."""
    if settings.native:
        return math.inf
    first, last = map(int, settings.network.pool_bounds)
    # At a large site these are tens of thousands, in each cycle.
    return last - first + 1 - sum(first <= address <= last for address in ledger.numbers_of_addresses())


def make_vms(
    settings: Settings,
    ledger: Ledger,
    vjob: VJobRow,
    hosts: list[str],
    expected_mib: Callable[[int], int | None] = lambda index: None,
) -> list[VMRow]:
    """New VMs for a vjob: names, addresses, MAC addresses and host keys of their own.

    Args:
        settings: with the pool of addresses.
        ledger: with the addresses that are taken.
        vjob: whose VMs they are.
        hosts: a node for each VM.
        expected_mib: by a VM's number, the memory that it is expected to need; None if its memory is not observed.

    Raises:
        RefusedError: the address pool is used up.
        UnavailableError: with several groups, addresses cannot be claimed now.
    """
    rows = []
    for index, (host, address) in enumerate(zip(hosts, _free_addresses(settings, ledger, len(hosts)), strict=True)):
        keys, demand_mib = generate_keypair(), expected_mib(index)
        rows.append(
            VMRow(
                name=vm_name(vjob.job_id, index),
                job_id=vjob.job_id,
                idx=index,
                uuid=str(uuid.uuid4()),
                mac=_mac(settings, address),
                address=str(address),
                host=host,
                host_key=keys.private_openssh,
                host_key_public=keys.public,
                memory_demand_mib=demand_mib,
                observed=demand_mib is not None,
                memory_mib=new_vm_mib(settings, vjob.geometry, index),
            )
        )
    return rows


def make_stand_ins(vjob: VJobRow, hosts: list[str]) -> list[VMRow]:
    """The stand-ins of a plain job, one for each node: they have a size, and no address, keys or files.

    Args:
        vjob: whose they are.
        hosts: the nodes.
    """
    return [
        VMRow(
            name=vm_name(vjob.job_id, index),
            job_id=vjob.job_id,
            idx=index,
            uuid=vm_name(vjob.job_id, index),
            mac="",
            address="",
            host=host,
            memory_mib=vjob.geometry.memory_mib_of(index),
        )
        for index, host in enumerate(hosts)
    ]


def _free_addresses(settings: Settings, ledger: Ledger, count: int) -> list[ipaddress.IPv4Address]:
    first, last = settings.network.pool_bounds
    taken, claims = ledger.numbers_of_addresses(), ledger.claims
    free: list[ipaddress.IPv4Address] = []
    own = sorted(address for each in claims.mine() if first <= (address := ipaddress.IPv4Address(each)) <= last)
    # At a large site tens of thousands are taken, and come first.
    for number in itertools.chain(map(int, own), range(int(first), int(last) + 1)):
        if number not in taken and claims.claim(str(address := ipaddress.IPv4Address(number))):
            taken.add(number)
            free.append(address)
        if len(free) == count:
            return free
    raise RefusedError(f"needs {count} addresses, {len(free)} free in network.pool {first}-{last}")


def _mac(settings: Settings, address: ipaddress.IPv4Address) -> str:
    """The MAC address of an IP address; always the same, so that neighbours' caches stay true when it is used again."""
    low = int(address) & 0xFFFFFF
    return f"{settings.network.mac_prefix}:{low >> 16:02x}:{low >> 8 & 0xFF:02x}:{low & 0xFF:02x}"
