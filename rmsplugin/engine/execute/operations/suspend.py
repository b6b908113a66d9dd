"""Suspend: all VMs of a vjob are saved to files, or all of them run on, or stay paused if they were (I2, I4).

Order: Slurm is told first, so that the wrapper stands still while its VMs do. Then the VMs are saved in the order of
their hosts, the saves begun ``durations.pipeline_s`` apart, so that a distributed application survives (RR-6929,
section 4.1); when they are resumed they go on in that order and as far apart. Each is saved to a file with a temporary
name. Only when all files are there, each is sealed: read once, synced, renamed, and recorded with its digest.
"""

from __future__ import annotations

from contextlib import suppress

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.context.machines import partial_path, state_path
from rmsplugin.engine.execute import usage
from rmsplugin.engine.execute.operations.allocation import current_job, resume_job, suspend_job
from rmsplugin.engine.execute.operations.gone_for_good import require_gone
from rmsplugin.engine.execute.operations.resume import (
    by_host,
    drop_config_quietly,
    let_run,
    raise_lost,
    require_not_left,
    restore,
)
from rmsplugin.engine.execute.operations.settle import settle_jobs
from rmsplugin.engine.execute.task import Task, combined, sentence_of
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.dead_nodes import end_vm
from rmsplugin.errors import (
    LostStateError,
    NoStoreError,
    NotFoundError,
    OperationFailedError,
    RefusedError,
    TimedOutError,
)
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

#: Argument of an operation: the vjob is suspended already, but the ledger, restored from a backup, did not know it.
TAKES_OVER = "takes_over"


def suspend(task: Task) -> None:
    """Bring a vjob from *suspending* to *sleeping*, or back to what it was before, with the reason."""
    context, vjob = task.context, task.vjob()
    if not vjob.paused:  # a guest that stands still cannot answer
        task.each(
            task.vms(), lambda vm: usage.ask(context.ledger, context.guests, context.hypervisor, vjob, vm)
        )  # the vjob may be cancelled while it sleeps
    try:
        if current_job(task).state is JobState.RUNNING:
            suspend_job(context.clock, context.rms, context.suspensions, task.job_id)
    except RefusedError as error:
        context.ledger.transition(task.job_id, _before(task), f"not suspended: {error}")
        raise
    if TAKES_OVER in task.operation.arguments:
        _take_over(task)
        return
    errors = task.each(by_host(task.vms()), lambda vm: _save(task, vm), apart_s=context.settings.durations.pipeline_s)
    task.check_cancelled()
    raise_lost(errors)
    if not errors:
        errors = task.each(task.vms(), lambda vm: _seal(task, vm))
        task.check_cancelled()
    if errors:
        _undo(task, sentence_of(errors))
        raise combined(errors)
    _now_sleeping(task)
    for vm in task.vms():
        for node in vm.touched:
            drop_config_quietly(task, vm, node)  # not needed while it sleeps


def _before(task: Task) -> VJobState:
    """The state of the vjob before the suspend; it returns to this state if the suspend fails."""
    return VJobState.PAUSED if task.vjob().paused else VJobState.RUNNING


def _now_sleeping(task: Task) -> None:
    context = task.context
    with context.ledger.transaction():
        for vm in task.vms():
            context.ledger.enter_phase(vm.name, VMPhase.SAVED)
        context.ledger.transition(task.job_id, VJobState.SLEEPING, task.operation.arguments["reason"])


def _take_over(task: Task) -> None:
    """Have the vjob sleep in the saved states that an operator has confirmed; each is read to its end.

    Raises:
        RmspluginError: a VM exists after all, a state is missing, or a node does not answer. Nothing was changed.
    """
    errors = task.each(task.vms(), lambda vm: require_gone(task, vm))
    errors = errors or task.each(task.vms(), lambda vm: _seal(task, vm))
    if errors:
        # Forget the states of those VMs that have one recorded: none counts as saved before all do.
        with task.context.ledger.transaction():
            for vm in task.vms():
                task.context.ledger.enter_phase(vm.name, VMPhase.LIVE)
            why = f"its saved states were not taken over: {sentence_of(errors)}"
            task.context.ledger.transition(task.job_id, _before(task), why)
        raise combined(errors)
    task.event("taken-over", f"{len(task.vms())} saved states that were found were taken over")
    _now_sleeping(task)


def _save(task: Task, vm: VMRow) -> None:
    """Save the VM's state under the temporary name, unless an interrupted attempt has recorded it already."""
    context = task.context
    if vm.phase is VMPhase.SEALED and vm.host in context.ledger.nodes.gone():
        return
    if vm.phase is not VMPhase.SEALED:
        require_not_left(task, vm)
    settle_jobs(task, vm.host, vm.name)
    if vm.phase in (VMPhase.SEALING, VMPhase.SEALED):
        # An interrupted undo may have restored the VM: as long as its state is in the ledger, it has not run.
        end_vm(context.settings, context.ledger, context.hypervisor, context.sightings, vm.host, vm)
        return
    with task.action("suspend", vm, source=vm.host) as progress:
        observed = context.hypervisor.list_vms(vm.host).get(vm.name)
        if observed is not None:
            if observed.power is VMPower.PAUSED and not task.vjob().paused:
                # An interrupted undo left the VM paused, in the same state as its file's; let it run, then save afresh.
                context.hypervisor.unpause(vm.host, vm.name, timeout_s=context.settings.hypervisor.stop_timeout_s)
            context.stores.require(vm.host)
            if observed.power is not VMPower.INCOMING:
                # The VM lives: a file that an earlier suspend left is history, and must not be taken for this one's.
                context.nodes.drop_state(vm.host, vm.name, shared=task.shared)
            if vm.observed:
                context.bounds.relieve(vm.host)
            context.hypervisor.save(
                vm.host,
                vm.name,
                partial_path(context.settings, vm),
                timeout_s=context.settings.hypervisor.save_timeout_s,
                progress=progress,
            )
        if _complete_state_bytes(task, vm) is None:
            context.stores.require(vm.host)
            require_gone(task, vm)
            if _complete_state_bytes(task, vm) is None:  # asked again: a state is not given up for one answer
                raise LostStateError(f"{vm.name} is not on {vm.host} any more and left no complete state there")
        # The VM's memory, not the file's size: the speed of saves is told by memory, however well it compresses.
        memory_bytes = vm.memory_mib << 20
        progress(memory_bytes, memory_bytes)


def _complete_state_bytes(task: Task, vm: VMRow) -> int | None:
    """Size of the file of a save that has ended well; None if there is no whole file.

    Only the temporary name is looked at: the ledger records a state before its file gets the final name, so a file
    that has the final name already may be of an earlier sleep.
    """
    context = task.context
    partial = context.nodes.stat(vm.host, vm.name, shared=task.shared).partial
    return partial.size_bytes if partial is not None and partial.complete else None


def _seal(task: Task, vm: VMRow) -> None:
    """Give the temporary file its final name, and record what is in it: from then on it may be restored."""
    context = task.context
    if vm.phase is VMPhase.SEALED:
        if vm.host in context.ledger.nodes.gone():
            return
        if context.nodes.stat(vm.host, vm.name, shared=task.shared).final_bytes is not None:
            return  # sealed by an interrupted attempt; older releases recorded first, and may not have come to seal
    else:
        # The node is recorded first: a file with the final name is this suspend's only if the ledger says so.
        context.ledger.enter_phase(vm.name, VMPhase.SEALING, image_node=SHARED if task.shared else vm.host)
    try:
        digest = context.nodes.seal(vm.host, vm.name, shared=task.shared)
    except NotFoundError:
        context.ledger.enter_phase(vm.name, VMPhase.LIVE)  # the next attempt looks for the VM and its file anew
        raise
    context.ledger.enter_phase(vm.name, VMPhase.SEALED, image_bytes=digest.size_bytes, image_blake2b=digest.blake2b)


def _undo(task: Task, reason: str) -> None:
    """After a failed save: restore the VMs that were saved already, so that all run on, or stay paused."""
    context = task.context
    errors = task.each(task.vms(), lambda vm: _bring_back(task, vm))
    if errors:
        # While a VM cannot be brought back, the vjob stays SUSPENDING; the next cycle goes on with it.
        raise OperationFailedError(f"the suspend failed ({reason}) and so did bringing back {sentence_of(errors)}")
    if errors := task.each(task.vms(), lambda vm: _drop_leftover(task, vm)):
        raise combined(errors)
    before = _before(task)
    if before is VJobState.RUNNING:
        resume_job(task)
    context.ledger.transition(task.job_id, before, f"suspend failed: {reason}")


def _drop_leftover(task: Task, vm: VMRow) -> None:
    """Drop what the failed save left. Without a store, or with one that hangs, the next save there drops it first."""
    with suppress(NoStoreError, TimedOutError):
        task.context.nodes.drop_state(vm.host, vm.name, shared=task.shared)


def _bring_back(task: Task, vm: VMRow) -> None:
    context = task.context
    settle_jobs(task, vm.host, vm.name)
    if vm.name not in context.hypervisor.list_vms(vm.host):
        # The temporary file is whole: libvirt ends a VM only after the last byte. A sealed file has its final name,
        # even if the answer to the seal was lost.
        partial = context.nodes.stat(vm.host, vm.name, shared=task.shared).partial
        restore(task, vm, state_path(context.settings, vm) if partial is None else partial_path(context.settings, vm))
    # Recorded before the VM runs, because its saved state is history from then on.
    context.ledger.enter_phase(vm.name, VMPhase.LIVE)
    if not task.vjob().paused:
        let_run(task, vm)
