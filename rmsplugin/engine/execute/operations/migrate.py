"""Migrate: VMs of a vjob move to other nodes, live or paused; the vjob stays *running* or *paused* throughout."""

from __future__ import annotations

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.engine.execute.operations.guest_file import put_config
from rmsplugin.engine.execute.operations.one_copy import leave_one, power_of
from rmsplugin.engine.execute.operations.resume import drop_config_quietly
from rmsplugin.engine.execute.operations.settle import settle_jobs
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.absence import has
from rmsplugin.engine.observe.dead_nodes import end_vm
from rmsplugin.errors import LostStateError, OperationFailedError, UnavailableError
from rmsplugin.model.vm_phase import VMPhase


def migrate(task: Task) -> None:
    """Move each VM that has a destination in the ledger; a VM that fails to move runs on where it was.

    While no node that answers tells where a VM is, its destination stays in the ledger, to be looked at again.
    """
    task.all([vm for vm in task.vms() if vm.phase is VMPhase.MIGRATING], lambda vm: _migrate(task, vm))


def _migrate(task: Task, vm: VMRow) -> None:
    context = task.context
    source, destination = vm.host, vm.destination
    if source in context.ledger.nodes.gone():
        _follow(task, vm)
        return
    settle_jobs(task, source, vm.name)
    _require_whole(task, vm)
    if _broke_off(task, vm):
        if _conclude(task, vm) != destination:
            raise OperationFailedError(f"{vm.name} stays on {source}: its migration to {destination} had broken off")
        return
    try:
        with task.action("migrate", vm, source=source, destination=destination) as progress:
            put_config(task, vm, destination)
            if vm.observed:
                context.bounds.relieve(source)
            context.hypervisor.migrate(
                vm.name,
                source,
                destination,
                timeout_s=context.settings.hypervisor.migrate_timeout_s,
                progress=progress,
                epoch=context.epoch,
            )
    finally:
        # Believe the look, not the result of the call: the VM may have arrived although the call failed.
        settle_jobs(task, source, vm.name)
        if not _is_half(task, vm, source):
            _conclude(task, vm)


def _broke_off(task: Task, vm: VMRow) -> bool:
    """Whether an earlier migration has left the VM paused at its source, or two whole copies of it."""
    here = power_of(task, vm, vm.host)
    if here in (None, VMPower.HALF):
        return False
    if here is VMPower.PAUSED and not task.vjob().paused:
        return True
    try:
        return has(task.context.hypervisor, task.context.sightings, vm.destination, vm)
    except UnavailableError:
        return False  # the migration itself will tell


def _conclude(task: Task, vm: VMRow) -> str:
    """Leave one running copy of the VM, record its node, and return the node."""
    node = leave_one(task, vm)
    task.context.ledger.enter_phase(vm.name, VMPhase.LIVE, host=node)
    drop_config_quietly(task, vm, vm.host if node == vm.destination else vm.destination)
    if node == vm.destination:
        verb = "is paused" if task.vjob().paused else "runs"
        task.event("migrated", f"{vm.name} {verb} on {node}", vm=vm.name, node=node)
    return node


def _follow(task: Task, vm: VMRow) -> None:
    """After the loss of the source: the VM is at its destination, if it had arrived; else it is missing everywhere."""
    context = task.context
    settle_jobs(task, vm.destination, vm.name)
    found = context.hypervisor.list_vms(vm.destination).get(vm.name)
    if found is not None and found.power is VMPower.HALF:
        raise LostStateError(f"{vm.host}, which is gone, had a part of the memory of {vm.name}")
    if found is None:
        raise OperationFailedError(f"{vm.host} is gone, and {vm.name} is not on {vm.destination}")
    end_vm(context.settings, context.ledger, context.hypervisor, context.sightings, vm.host, vm)
    _conclude(task, vm)


def _require_whole(task: Task, vm: VMRow) -> None:
    """Raise LostStateError if a post-copy broke off, and it is proved that the other half of the VM is nowhere.

    If a node has the other half, or may have it and is silent, nothing is proved.
    """
    if not _is_half(task, vm, vm.host):
        return
    others = {vm.destination, *vm.touched} - {"", vm.host}
    if not any(has(task.context.hypervisor, task.context.sightings, node, vm) for node in sorted(others)):
        raise LostStateError(f"{vm.destination}, which had a part of the memory of {vm.name}, lost it in a post-copy")


def _is_half(task: Task, vm: VMRow, node: str) -> bool:
    found = task.context.hypervisor.list_vms(node).get(vm.name)
    return found is not None and found.power is VMPower.HALF
