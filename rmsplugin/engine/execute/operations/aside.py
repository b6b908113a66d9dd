"""Aside: a restart puts saved states aside instead of deleting them; they can be taken back until their job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.context.stores import SHARED
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import SetAsideState, VMRow
from rmsplugin.engine.observe.dead_nodes import end_vm
from rmsplugin.errors import NotFoundError, RefusedError, UnavailableError

T = TypeVar("T")


def put_aside(task: Task) -> None:
    """End the VMs of the vjob that have saved states, and put the states aside.

    Raises:
        RmspluginError: a node could not be reached; to be tried again until it can.
    """
    context = task.context
    sealed = [vm for vm in task.vms() if vm.phase.in_file]
    if not sealed:
        return
    aside = context.ledger.set_aside.open(task.vjob(), task.vms(), task.operation.arguments["reason"])
    found = sum(_put_aside(task, aside, vm) for vm in sealed)
    if found:
        task.event("put-aside", f"{found} saved states were put aside as number {aside.id}: see `rmsplugin states`")
    else:
        context.ledger.set_aside.drop(aside.id)


def _put_aside(task: Task, aside: SetAsideState, vm: VMRow) -> bool:
    """Put the state of one VM aside, with its disk. Returns whether there was a state."""
    context = task.context
    # Its host is among the touched nodes, unless nothing was ever put there.
    for node in sorted({vm.host, vm.destination} & {*vm.touched, vm.destination} - {""}):
        # A VM that was restored, and has not run, has its state file open.
        end_vm(context, node, vm)

    def put(node: str) -> bool:
        try:
            return context.nodes.put_aside(node, vm.name, aside.id, shared=context.shared)
        except NotFoundError:
            return False

    there = _at_state(context, vm, put)
    _at_disk(context, vm, put)
    return there


def drop_aside(context: Context, aside: SetAsideState) -> None:
    """Remove saved states that were put aside. Raises RmspluginError if a node does not answer."""
    for vm in aside.vms:
        if not vm.phase.in_file:
            continue

        def drop(node: str, name: str = vm.name) -> None:
            context.nodes.drop_aside(node, name, aside.id, shared=context.shared)

        _at_state(context, vm, drop)
        _at_disk(context, vm, drop)
    context.ledger.set_aside.drop(aside.id)


def give_back(context: Context, aside: SetAsideState) -> None:
    """Give saved states that were put aside their names again. Raises RmspluginError if a node does not answer."""
    for vm in aside.vms:

        def take(node: str, name: str = vm.name) -> bool:
            return context.nodes.take_back(node, name, aside.id, shared=context.shared)

        _at_state(context, vm, take)
        _at_disk(context, vm, take)


def require_whole(context: Context, aside: SetAsideState) -> None:
    """Read all saved states of ``aside``. Changes nothing.

    Raises:
        RefusedError: a VM had no state, or another VM has its address now.
        NotFoundError: a state is missing.
        CorruptStateError: a state is damaged.
        RmspluginError: a node does not answer.
    """
    without = [vm.name for vm in aside.vms if not vm.phase.in_file]
    if without:
        raise RefusedError(f"there is no saved state of {', '.join(without)} among those put aside as {aside.id}")
    require_addresses(context, aside)
    bound = context.settings.nodes.copy_timeout_s
    for vm in aside.vms:
        digest = Digest(vm.image_bytes, vm.image_blake2b)

        def verify(node: str, name: str = vm.name, digest: Digest = digest) -> None:
            context.nodes.verify_aside(node, name, aside.id, digest, timeout_s=bound, shared=context.shared)

        _at_state(context, vm, verify)


def require_addresses(context: Context, aside: SetAsideState) -> None:
    """Raise RefusedError if other VMs have the addresses now: the saved guests cannot change theirs."""
    taken = {vm.address: vm.name for vm in context.ledger.vms() if vm.job_id != aside.job_id}
    for vm in aside.vms:
        if vm.address in taken:
            raise RefusedError(f"{vm.name} had the address {vm.address}, which {taken[vm.address]} has now")


def _at_state(context: Context, vm: VMRow, act: Callable[[str], T]) -> T:
    """Act on the node that holds the VM's state; on shared storage, on the first node that can."""
    nodes = list(vm.touched) if vm.image_node == SHARED else [vm.image_node]
    for node in nodes[:-1]:
        try:
            context.stores.ensure(node)
            return act(node)
        except UnavailableError:
            continue
    context.stores.ensure(nodes[-1])
    return act(nodes[-1])


def _at_disk(context: Context, vm: VMRow, act: Callable[[str], object]) -> None:
    """If the VM has a disk, act on the node where it was booted, which has the disk."""
    if context.has_disk(context.ledger.vjob(vm.job_id)) and vm.booted_on != vm.image_node:
        context.stores.ensure(vm.booted_on)
        act(vm.booted_on)
