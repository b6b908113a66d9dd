"""Relocate: the saved states of a sleeping vjob move to other nodes' stores, off nodes that keep nothing.

The vjob stays *sleeping*. A state is dropped from its old node only after its copy was checked on the new one (I2).
States that are copied to another group stay where they are, until that group has the vjob. On a store that all nodes
mount nothing is copied: the other group's part of it gets a second name of the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmsplugin.engine.execute.operations.resume import digest_of
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.parcel_book import Copy
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import OperationFailedError, UnavailableError
from rmsplugin.model.vm_phase import VMPhase

#: The argument with the group to which states are copied.
TO_GROUP = "to_group"
#: How often a copy to another group is tried, and how long after the last time.
_ATTEMPTS, _PAUSE_S = 4, 5.0


def relocate(task: Task) -> None:
    """Move the state of each VM that has a destination in the ledger; a state that cannot be moved stays in place."""
    if TO_GROUP in task.operation.arguments:
        _copy_all(task)
        return
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


def _copy_all(task: Task) -> None:
    """Copy the states to the nodes of another group that the ledger names."""
    copies = {each.vm: each for each in task.context.ledger.parcels.copies() if each.number == task.job_id}
    vms = [vm for vm in task.vms() if vm.name in copies and not copies[vm.name].arrived]
    if task.shared:
        task.all(vms, lambda vm: _lend(task, vm, copies[vm.name]))
    else:
        task.all(vms, lambda vm: _copy(task, vm, copies[vm.name].node))


def _lend(task: Task, vm: VMRow, copy: Copy) -> None:
    """Give the state a second name in the other group's part of the store that all nodes mount."""
    context = task.context

    def lend(node: str) -> None:
        context.stores.ensure(node)
        context.nodes.lend(node, vm.name, copy.to, digest_of(vm))

    nodes = context.stores.first_of(vm.touched)
    with task.action("copy", vm, source=SHARED, destination=copy.node) as progress:
        _until_it_is_set_up(task, lambda: _at_first(nodes, lend))
        progress(vm.image_bytes, vm.image_bytes)
    context.ledger.parcels.has_arrived(vm.name, copy.node)


def _at_first(nodes: Sequence[str], act: Callable[[str], None]) -> None:
    """Act on the first of these nodes that can be reached."""
    failure = UnavailableError("no node that sees the shared store is known")
    for node in nodes:
        try:
            return act(node)
        except UnavailableError as error:
            failure = error
    raise failure


def _until_it_is_set_up(task: Task, act: Callable[[], None]) -> None:
    """Try some times: the other group may be about to set up its store."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return act()
        except OperationFailedError:
            task.pause(_PAUSE_S)
    return act()


def _copy(task: Task, vm: VMRow, node: str) -> None:
    context = task.context
    bound = context.settings.nodes.copy_timeout_s
    context.stores.ensure(vm.image_node)
    with task.action("copy", vm, source=vm.image_node, destination=node) as progress:

        def send() -> None:
            # Another state there is for its own group to remove.
            context.nodes.send(
                vm.image_node, node, vm.name, digest_of(vm), timeout_s=bound, progress=progress, replaces=False
            )

        _until_it_is_set_up(task, send)
        progress(vm.image_bytes, vm.image_bytes)
    context.ledger.parcels.has_arrived(vm.name, node)
