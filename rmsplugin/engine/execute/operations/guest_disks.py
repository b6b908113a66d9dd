"""Guest disks: a VM's overlay on the base of its image, and the seed that gives its cloud-init its identity."""

from __future__ import annotations

import hashlib
import ipaddress

from rmsplugin.adapters.guests.config import native_tools
from rmsplugin.adapters.seed import Seed, seed_iso, waiting_program, waiting_seed_iso
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.settings.guests import Qcow2Image


def has_disks(task: Task) -> bool:
    """Whether the vjob's VMs have disks."""
    return _image(task) is not None


def put_disks(task: Task, vm: VMRow) -> None:
    """Give the VM's node the disks with which it boots, if it has any."""
    context, image = task.context, _image(task)
    if image is None:
        return
    network = context.settings.network
    seed = Seed(
        instance_id=vm.uuid,
        hostname=vm.name,
        mac=vm.mac,
        address=ipaddress.IPv4Interface(f"{vm.address}/{network.prefix_length}"),
        gateway=ipaddress.IPv4Address(network.gateway) if network.gateway else None,
        root_authorized_key=context.root_public_key,
        host_private_key=vm.host_key,
        host_public_key=vm.host_key_public,
    )
    context.nodes.put_seed(vm.host, vm.name, seed_iso(seed))
    context.nodes.make_overlay(vm.host, vm.name, str(image.base))


def put_waiting_disks(task: Task, vm: VMRow) -> None:
    """Give the VM's node the disks with which it boots without an identity, to be saved as a template."""
    context, image = task.context, _image(task)
    if image is None:
        return
    context.nodes.put_seed(vm.host, vm.name, waiting_seed_iso())
    context.nodes.make_overlay(vm.host, vm.name, str(image.base))


def seed_of_template(task: Task) -> bytes:
    """The seed of VMs that are restored from a template; their guests have read it before. Empty if they have none."""
    return waiting_seed_iso() if has_disks(task) else b""


def told_by_seed(task: Task, key: str) -> str:
    """The key of a template, from the key of its hardware and the programs that today's seed gives its guest."""
    if not has_disks(task):
        return key
    programs = waiting_program().encode() + native_tools()
    return hashlib.blake2b(key.encode() + programs, digest_size=16).hexdigest()


def _image(task: Task) -> Qcow2Image | None:
    image = task.context.settings.image[task.vjob().geometry.image]
    return image if isinstance(image, Qcow2Image) else None
