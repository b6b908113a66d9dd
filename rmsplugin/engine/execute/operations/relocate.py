"""Relocate: the saved states of a sleeping vjob move to other nodes' stores, off nodes that keep nothing.

The vjob stays *sleeping*. A state is dropped from its old node only after its copy was checked on the new one (I2).
"""

from __future__ import annotations

from rmsplugin.engine.execute.operations.resume import digest_of
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.model.vm_phase import VMPhase


def relocate(task: Task) -> None:
    """Move the state of each VM that has a destination in the ledger; a state that cannot be moved stays in place."""
    task.all([vm for vm in task.vms() if vm.phase is VMPhase.MOVING], lambda vm: _move(task, vm))


def _move(task: Task, vm: VMRow) -> None:
    context = task.context
    source, destination = vm.image_node, vm.destination
    bound = context.settings.nodes.copy_timeout_s
    try:
        if source != destination:
            context.ledger.touch(vm.name, destination)
            context.stores.ensure(source)
            context.stores.ensure(destination)
            with task.action("copy", vm, source=source, destination=destination) as progress:
                context.nodes.send(source, destination, vm.name, digest_of(vm), timeout_s=bound, progress=progress)
                progress(vm.image_bytes, vm.image_bytes)
            context.ledger.enter_phase(vm.name, VMPhase.MOVING, image_node=destination)
            context.nodes.drop_state(source, vm.name, shared=False)
    finally:
        context.ledger.enter_phase(vm.name, VMPhase.SAVED)
    task.event("relocated", f"the saved state of {vm.name} is on {destination}", vm=vm.name, node=destination)
