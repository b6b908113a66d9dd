"""Stop: ends the VMs of a vjob and removes everything of them."""

from __future__ import annotations

from contextlib import suppress

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.engine.execute import usage
from rmsplugin.engine.execute.old_checkpoints import drop_old
from rmsplugin.engine.execute.operations.aside import drop_aside
from rmsplugin.engine.execute.task import Task, combined
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.dead_nodes import drop_files, end_vm
from rmsplugin.errors import RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase


def stop(task: Task) -> None:
    """Bring a vjob from *stopping* to *terminated*."""
    task.each(task.vms(), lambda vm: _ask_usage(task, vm))
    remove_all(task)
    ledger = task.context.ledger
    for aside in ledger.set_aside.of_vjob(task.job_id):
        drop_aside(task.context.settings, task.context.ledger, task.context.nodes, task.context.stores, aside)
    ledger.checkpoints.retire(task.job_id)
    drop_old(task.context.settings, task.context.ledger, task.context.nodes, task.context.stores, task.job_id)
    with ledger.transaction():
        ledger.set_vms(task.job_id, [])  # frees its addresses
        # The keys of a terminated vjob open nothing: they need not be kept.
        ledger.transition(task.job_id, VJobState.TERMINATED, "nothing of it is left", private_key="", public_key="")


def _ask_usage(task: Task, vm: VMRow) -> None:
    """Ask a guest for its usage. A paused one is let run for that: it may run, because its job has ended."""
    context = task.context
    if vm.phase in (VMPhase.BOOTING, VMPhase.LIVE):
        with suppress(RmspluginError):
            observed = context.hypervisor.list_vms(vm.host).get(vm.name)
            if observed is not None and observed.power is VMPower.PAUSED and not observed.job_running:
                context.hypervisor.unpause(vm.host, vm.name, timeout_s=context.settings.hypervisor.stop_timeout_s)
    usage.ask(context.ledger, context.guests, context.hypervisor, task.vjob(), vm)


def remove_all(task: Task) -> None:
    """End every VM of the vjob and remove its files, on every node that may hold any of them.

    Raises:
        RmspluginError: a node could not be reached; to be tried again until it can.
    """
    vms = task.vms()
    errors = task.each(vms, lambda vm: remove(task, vm))
    if errors:
        raise combined(errors)


def remove(task: Task, vm: VMRow) -> None:
    """End one VM and remove its files wherever they may be."""
    context = task.context
    # The VM's host is among the touched nodes, unless nothing was ever put there.
    nodes = sorted({*vm.touched, vm.destination, vm.image_node} - {"", "shared"})
    with task.action("stop", vm, source=vm.host):
        for node in nodes:
            # First the VM, on all nodes; then its files, which it may need until then.
            end_vm(context.settings, context.ledger, context.hypervisor, context.sightings, node, vm)
        for node in nodes:
            drop_files(context.ledger, context.nodes, node, vm)
        context.stores.drop(nodes, vm)
