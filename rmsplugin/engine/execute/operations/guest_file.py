"""Guest file: the configuration that a guest reads when it starts, from a file that QEMU opens on the node."""

from __future__ import annotations

import base64
import os

from rmsplugin.adapters.guests.keys import dropbear_key
from rmsplugin.adapters.nodes.base import Guard
from rmsplugin.adapters.platform.base import NODE_FILTER
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import OperationFailedError

#: A restored guest finds another file of the same size, because its kernel remembers the size.
_SIZE_BYTES = 4096
_SEED_BYTES = 64


def waits(task: Task) -> bool:
    """Whether guests of the vjob's image can wait for their configuration."""
    return task.context.settings.image[task.vjob().geometry.image].waits


def put_config(task: Task, vm: VMRow, node: str) -> None:
    """Give ``node`` the VM's bound, and the file that its QEMU opens there when it starts, by any action."""
    _put(task, vm, node, config_of(task, vm))


def config_of(task: Task, vm: VMRow) -> bytes:
    """The content of the file, different each time. Raises OperationFailedError if it is too long."""
    context = task.context
    network = context.settings.network
    lines = {
        "hostname": vm.name,
        "address": f"{vm.address}/{network.prefix_length}",
        "gateway": network.gateway,
        "mac": vm.mac,
        # Otherwise two VMs from one template would share the state of the kernel's random number generator.
        "seed": base64.b64encode(os.urandom(_SEED_BYTES)).decode(),
        "root_authorized_key": context.root_public_key,
        "host_key": base64.b64encode(vm.host_key.encode()).decode(),
        "dropbear_host_key": base64.b64encode(dropbear_key(vm.host_key)).decode(),
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    return (_padded(text) if waits(task) else text).encode()


def put_waiting(task: Task, vm: VMRow, node: str) -> None:
    """Give ``node`` the file of a VM that has no identity yet."""
    _put(task, vm, node, _padded("wait\n").encode())


def keep_bound(task: Task, vm: VMRow, node: str) -> None:
    """If the VM is observed, have the node bound the memory that all observed VMs take together."""
    if vm.observed:
        task.context.bounds.keep(node)


def guard_of(task: Task, vm: VMRow) -> Guard | None:
    """The addresses that the VM's node pins its interface to; None if libvirt does that, or if nothing is pinned."""
    return Guard(vm.mac, vm.address) if task.context.settings.network.filter == NODE_FILTER else None


def _put(task: Task, vm: VMRow, node: str, content: bytes) -> None:
    keep_bound(task, vm, node)
    task.context.ledger.touch(vm.name, node)
    task.context.nodes.put_config(node, vm.name, content, guard_of(task, vm))


def _padded(text: str) -> str:
    """The text, padded, with a line after which nothing is read; only images that wait know this line."""
    ended = f"{text}end=\n"
    if len(ended) >= _SIZE_BYTES:
        raise OperationFailedError(f"a guest's configuration of {len(text)} bytes does not fit into {_SIZE_BYTES}")
    return f"{ended.ljust(_SIZE_BYTES - 1, '.')}\n"
