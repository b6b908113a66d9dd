"""Resume: all VMs of a vjob are restored from their files, here or elsewhere, or none of them is (I1, I2, I4).

The VMs are restored paused. Only when all are there, the ledger gives up their files; then the VMs run. So a restore
that fails leaves the files as they were, and no VM has run for a moment that is not in its file. They go on as they
were suspended, in the order of their hosts and ``durations.pipeline_s`` apart (RR-6929, section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterable

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.context.machines import has_disk, state_path
from rmsplugin.engine.execute.operations.allocation import await_allocation, current_job, resume_job
from rmsplugin.engine.execute.operations.gone_for_good import require_gone
from rmsplugin.engine.execute.operations.guest_file import put_config
from rmsplugin.engine.execute.operations.settle import settle_jobs
from rmsplugin.engine.execute.task import Task, combined, sentence_of
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.absence import nowhere
from rmsplugin.engine.observe.dead_nodes import end_vm
from rmsplugin.errors import CorruptStateError, LostStateError, NotFoundError, OperationFailedError, RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

_CLOCK_ATTEMPTS = 5


def resume(task: Task) -> None:
    """Bring a vjob from *resuming* to *running*, or back to *sleeping* with the reason.

    Once the ledger has given up the files, there is no way back to *sleeping*: until all VMs are seen running, the vjob
    stays *resuming*, and the next attempt goes on from there.

    Raises:
        LostStateError: a saved state cannot be used; nothing was restored, and the vjob has to begin again.
    """
    context = task.context
    vms = task.vms()
    used_up = not any(vm.phase is VMPhase.RESTORING for vm in vms)  # an interrupted attempt had restored all of them
    try:
        # The job was requeued while the vjob slept. (If that happens later, its wrapper attaches to the running VMs.)
        if not used_up and current_job(task).state is JobState.PENDING:
            await_allocation(task, context.settings.slurm.start_timeout_s, slept=True)
        errors = task.each(vms, lambda vm: _fetch(task, vm))
        errors = errors or task.each(task.vms(), lambda vm: _restore_saved(task, vm))
    except OperationFailedError as error:
        errors = {vms[0].name: error}
    task.check_cancelled()
    if errors and used_up:
        raise combined(errors)
    if errors:
        _undo(task, errors)
    with context.ledger.transaction():
        # From here on the files are history: a VM that vanishes now is lost, because it may have run.
        for vm in task.vms():
            # The VM goes on where it was saved, and so does its demand.
            context.ledger.enter_phase(vm.name, VMPhase.LIVE)
    task.all(by_host(task.vms()), lambda vm: let_run(task, vm), apart_s=context.settings.durations.pipeline_s)
    for vm in vms:
        _drop_state_quietly(task, vm)
    task.each(task.vms(), lambda vm: set_clock(task, vm))
    job = resume_job(task)
    context.ledger.transition(
        task.job_id,
        VJobState.RUNNING,
        f"all its VMs are seen running; {task.operation.arguments['reason']}",
        wrapper_seen=context.clock.now(),
        restarts=job.restarts,
        resumes=False,
        # A requeue that its script asked for, and that Slurm has not done yet, still holds.
        requeue_of=task.vjob().requeue_of if task.vjob().begins_anew else -1,
    )


def by_host(vms: Iterable[VMRow]) -> list[VMRow]:
    """VMs in the order in which those of a vjob are suspended, and go on: by the name of their host, then their own."""
    return sorted(vms, key=lambda vm: (vm.host, vm.name))


def _fetch(task: Task, vm: VMRow) -> None:
    """Bring a checked state file to the node where the VM will run."""
    context = task.context
    if vm.phase is VMPhase.LIVE:
        require_not_left(task, vm)
    settle_jobs(task, vm.host, vm.name)  # a restore that is under way there may yet fail
    if vm.phase is VMPhase.LIVE or vm.name in context.hypervisor.list_vms(vm.host):
        return  # restored already by an interrupted attempt
    context.ledger.touch(vm.name, vm.host)
    bound = context.settings.nodes.copy_timeout_s
    holder = vm.host if vm.image_node == SHARED else vm.image_node
    try:
        context.stores.ensure(holder)
        if holder == vm.host:
            context.nodes.verify(vm.host, vm.name, digest_of(vm), timeout_s=bound, shared=task.shared)
            return
        context.stores.ensure(vm.host)
        with task.action("copy", vm, source=holder, destination=vm.host) as progress:
            # The receiving side checks size and digest before it gives the copy its name.
            context.nodes.send(holder, vm.host, vm.name, digest_of(vm), timeout_s=bound, progress=progress)
            progress(vm.image_bytes, vm.image_bytes)
    except (CorruptStateError, NotFoundError) as error:
        _require_not_lost(task, vm, holder)
        raise OperationFailedError(f"the saved state of {vm.name} did not come from {holder}: {error}") from error


def require_not_left(task: Task, vm: VMRow) -> None:
    """Raise LostStateError if a VM without a saved state was on a node whose VMs are proved to be gone."""
    if task.context.sightings.has_left(vm.host, vm) and nowhere(task.context.hypervisor, task.context.sightings, vm):
        raise LostStateError(f"{vm.name} was on {vm.host}, which is gone")


def _require_not_lost(task: Task, vm: VMRow, holder: str) -> None:
    """Raise LostStateError if reading it on the node that holds it proves that the saved state is lost.

    A missing state is lost only if the store shows the marker of the store in which it was saved.
    """
    context = task.context
    bound = context.settings.nodes.copy_timeout_s
    try:
        context.nodes.verify(holder, vm.name, digest_of(vm), timeout_s=bound, shared=task.shared)
    except CorruptStateError as error:
        raise LostStateError(f"the saved state of {vm.name} on {holder} is lost: {error}") from error
    except NotFoundError as error:
        context.stores.require(holder)
        raise LostStateError(
            f"the saved state of {vm.name} on {holder} is lost, although its store is there: {error}"
        ) from error


def _restore_saved(task: Task, vm: VMRow) -> None:
    if vm.name in task.context.hypervisor.list_vms(vm.host):
        return
    if vm.phase is VMPhase.LIVE:
        require_gone(task, vm)
        raise LostStateError(f"{vm.name} is not on {vm.host} and its saved state was used up")
    try:
        restore(task, vm, state_path(task.context.settings, vm))
    except CorruptStateError as error:
        # The state's digest was good a moment ago: another node, or another release of QEMU, may load it.
        raise OperationFailedError(
            f"{vm.host} cannot load the saved state of {vm.name}, which is whole: {error}"
        ) from error


def restore(task: Task, vm: VMRow, path: str) -> None:
    """Load one VM, paused, from ``path`` on its host."""
    context = task.context
    with task.action("resume", vm, source=vm.image_node or vm.host, destination=vm.host):
        put_config(task, vm, vm.host)
        context.hypervisor.restore(
            vm.host, task.spec(vm), path, timeout_s=context.settings.hypervisor.restore_timeout_s
        )


def let_run(task: Task, vm: VMRow) -> None:
    """Let a restored VM run, and see that it does."""
    task.has_begun(vm)
    task.context.hypervisor.unpause(vm.host, vm.name, timeout_s=task.context.settings.hypervisor.stop_timeout_s)
    see_running(task, vm)


def see_running(task: Task, vm: VMRow) -> None:
    """Raise OperationFailedError unless a VM that was let run is seen running."""
    observed = task.context.hypervisor.list_vms(vm.host).get(vm.name)
    if observed is None or observed.power is not VMPower.RUNNING:
        raise OperationFailedError(f"{vm.name} was resumed on {vm.host} but is not seen running there")


def digest_of(vm: VMRow) -> Digest:
    """The size and digest that the saved state of the VM must have."""
    return Digest(vm.image_bytes, vm.image_blake2b)


def _undo(task: Task, errors: dict[str, RmspluginError]) -> None:
    """End the VMs that were restored, since none has run yet. The files stay the truth."""
    context = task.context
    reason = sentence_of(errors)
    restored = [vm for vm in task.vms() if vm.phase is VMPhase.RESTORING]
    task.all(
        restored,
        lambda vm: end_vm(context.settings, context.ledger, context.hypervisor, context.sightings, vm.host, vm),
    )
    raise_lost(errors)
    with context.ledger.transaction():
        for vm in restored:
            context.ledger.enter_phase(vm.name, VMPhase.SAVED)
        context.ledger.transition(task.job_id, VJobState.SLEEPING, f"resume failed: {reason}")
    raise combined(errors)


def raise_lost(errors: dict[str, RmspluginError]) -> None:
    """Raise LostStateError if one of the errors is: if the state of a VM is lost, the vjob's state is lost."""
    for error in errors.values():
        if isinstance(error, LostStateError):
            raise error


def drop_config_quietly(task: Task, vm: VMRow, node: str) -> None:
    """Remove the VM's configuration file; if the node cannot be reached, `stop` removes it later.

    A VM with a disk keeps its disk, and with it this file, as long as the VM lives.
    """
    if has_disk(task.context.settings, task.vjob()):
        return
    try:
        task.context.nodes.drop_config(node, vm.name)
    except RmspluginError:
        return


def set_clock(task: Task, vm: VMRow) -> None:
    """Set the guest's clock, which stood still while the VM slept; without a kernel of its own it has its node's."""
    if not task.context.capabilities.own_kernel:
        return
    for attempt in range(_CLOCK_ATTEMPTS):
        try:
            task.context.guests.set_clock(vm.address, vm.host_key_public, timeout_s=20)
            return
        except RmspluginError as error:
            if attempt == _CLOCK_ATTEMPTS - 1:
                task.event("clock-not-set", f"the clock of {vm.name} lags: {error}", vm=vm.name, node=vm.host)
            task.pause(0.5)


def _drop_state_quietly(task: Task, vm: VMRow) -> None:
    """Remove the saved state of a VM that is seen running; `stop` removes it later if its node is out of reach now."""
    for node in {vm.image_node, vm.host, *vm.touched} - {"", "shared"}:
        try:
            task.context.nodes.drop_state(node, vm.name, shared=task.shared)
        except RmspluginError:
            continue
