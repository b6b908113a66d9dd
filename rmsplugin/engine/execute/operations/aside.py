"""Aside: a restart puts saved states aside instead of deleting them; they can be taken back until their job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rmsplugin.adapters.nodes.base import Digest, Nodes
from rmsplugin.engine.context.machines import has_disk
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import SetAsideState, VMRow
from rmsplugin.engine.observe.dead_nodes import end_vm
from rmsplugin.errors import NotFoundError, RefusedError, UnavailableError
from rmsplugin.settings import Settings

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
        end_vm(context.settings, context.ledger, context.hypervisor, context.sightings, node, vm)

    def put(node: str) -> bool:
        try:
            return context.nodes.put_aside(node, vm.name, aside.id, shared=context.settings.nodes.shared)
        except NotFoundError:
            return False

    there = _at_state(context.stores, vm, put)
    _at_disk(context.settings, context.ledger, context.stores, vm, put)
    return there


def drop_aside(settings: Settings, ledger: Ledger, nodes: Nodes, stores: Stores, aside: SetAsideState) -> None:
    """Remove saved states that were put aside. Raises RmspluginError if a node does not answer."""
    for vm in aside.vms:
        if not vm.phase.in_file:
            continue

        def drop(node: str, name: str = vm.name) -> None:
            nodes.drop_aside(node, name, aside.id, shared=settings.nodes.shared)

        _at_state(stores, vm, drop)
        _at_disk(settings, ledger, stores, vm, drop)
    ledger.set_aside.drop(aside.id)


def give_back(settings: Settings, ledger: Ledger, nodes: Nodes, stores: Stores, aside: SetAsideState) -> None:
    """Give saved states that were put aside their names again. Raises RmspluginError if a node does not answer."""
    for vm in aside.vms:

        def take(node: str, name: str = vm.name) -> bool:
            return nodes.take_back(node, name, aside.id, shared=settings.nodes.shared)

        _at_state(stores, vm, take)
        _at_disk(settings, ledger, stores, vm, take)


def require_whole(settings: Settings, ledger: Ledger, nodes: Nodes, stores: Stores, aside: SetAsideState) -> None:
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
    require_addresses(ledger, aside)
    bound = settings.nodes.copy_timeout_s
    for vm in aside.vms:
        digest = Digest(vm.image_bytes, vm.image_blake2b)

        def verify(node: str, name: str = vm.name, digest: Digest = digest) -> None:
            nodes.verify_aside(node, name, aside.id, digest, timeout_s=bound, shared=settings.nodes.shared)

        _at_state(stores, vm, verify)


def require_addresses(ledger: Ledger, aside: SetAsideState) -> None:
    """Raise RefusedError if other VMs have the addresses now: the saved guests cannot change theirs."""
    taken = {vm.address: vm.name for vm in ledger.vms() if vm.job_id != aside.job_id}
    for vm in aside.vms:
        if vm.address in taken:
            raise RefusedError(f"{vm.name} had the address {vm.address}, which {taken[vm.address]} has now")


def _at_state(stores: Stores, vm: VMRow, act: Callable[[str], T]) -> T:
    """Act on the node that holds the VM's state; on shared storage, on the first node that can."""
    nodes = list(vm.touched) if vm.image_node == SHARED else [vm.image_node]
    for node in nodes[:-1]:
        try:
            stores.ensure(node)
            return act(node)
        except UnavailableError:
            continue
    stores.ensure(nodes[-1])
    return act(nodes[-1])


def _at_disk(settings: Settings, ledger: Ledger, stores: Stores, vm: VMRow, act: Callable[[str], object]) -> None:
    """If the VM has a disk, act on the node where it was booted, which has the disk."""
    if has_disk(settings, ledger.vjob(vm.job_id)) and vm.booted_on != vm.image_node:
        stores.ensure(vm.booted_on)
        act(vm.booted_on)
