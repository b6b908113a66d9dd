"""Going back: a vjob whose VMs or saved states are lost resumes from its newest whole checkpoint, if that is intact.

The files of the checkpoint become the vjob's saved states, and the vjob becomes *sleeping*. Then it goes on like any
vjob that the engine has suspended, when and where there is room. The files stay a checkpoint, too, until a newer one is
whole, so that a second loss costs no more than the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.execute.operations.allocation import current_job, send_back, suspend_job
from rmsplugin.engine.execute.operations.aside import put_aside
from rmsplugin.engine.execute.operations.stop import remove_all
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.checkpoints import Checkpoint, CheckpointVM
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.errors import (
    CorruptStateError,
    NodeGoneError,
    NotFoundError,
    OperationFailedError,
    RefusedError,
    RmspluginError,
)
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

#: A vjob that dies each time soon after it went back may die of the checkpoint's content.
_MOST_USES = 3


def go_back(task: Task) -> bool:
    """Bring a vjob from *stopping* to *sleeping* in its checkpoint; False if it has none that can be used.

    Raises:
        RmspluginError: nothing is proved of a file that may be the only intact one, because its node does not answer
            (and nobody said that it is gone), or could not read it now. Or a node does not answer on which something
            has to be ended. To be tried again.
    """
    context, vjob = task.context, task.vjob()
    checkpoint = context.ledger.checkpoints.whole(task.job_id)
    if checkpoint is None or not vjob.script_started:
        return False
    holders = _holders(task, checkpoint)
    if holders is None:
        return False
    put_aside(task)
    remove_all(task)
    _forget_states(task)
    _have_job_wait(task)
    for name, node in holders.items():
        context.ledger.touch(name, node)
        # A failure here proves nothing: the files were whole a moment ago, and the next attempt reads them again.
        context.nodes.use_checkpoint(node, name, checkpoint.id, shared=task.shared)
    _record(task, checkpoint, holders)
    return True


def _record(task: Task, checkpoint: Checkpoint, holders: dict[str, str]) -> None:
    ledger, vjob = task.context.ledger, task.vjob()
    repeated_s = max(0.0, vjob.ran_s - checkpoint.ran_s)
    taken = datetime.fromtimestamp(checkpoint.taken, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    why = vjob.reason.removeprefix("lost: ")
    told = f"it goes on from its checkpoint of {taken}; at most {repeated_s:.0f} s of its run are repeated"
    with ledger.transaction():
        ledger.set_aside.close(task.job_id)
        for vm in checkpoint.vms:
            ledger.enter_phase(
                vm.name,
                VMPhase.SAVED,
                image_node=SHARED if task.shared else holders[vm.name],
                image_bytes=vm.size_bytes,
                image_blake2b=vm.blake2b,
                centi_cpus=None,  # its demand at that time was not kept
                memory_demand_mib=None,
            )
        ledger.checkpoints.went_back(checkpoint.id, vjob.ran_s)
        ledger.transition(
            task.job_id,
            VJobState.SLEEPING,
            f"went back to its checkpoint of {taken}, at most {repeated_s:.0f} s of its run are repeated; lost: {why}",
            finished=False,  # its script runs again
            resumes=True,
            returns=vjob.returns + 1,
            returned=told,
            repeated_s=vjob.repeated_s + repeated_s,
        )
        task.event("went-back", f"{told}; lost: {why}")


def _forget_states(task: Task) -> None:
    """Forget the saved states, which are aside now, lest another attempt put the checkpoint's files aside, too."""
    with task.context.ledger.transaction():
        for vm in task.vms():
            task.context.ledger.enter_phase(vm.name, VMPhase.LOST)


def _have_job_wait(task: Task) -> None:
    """Have the wrapper stand still as long as the VMs sleep; if Slurm does not suspend the job, it is requeued."""
    context = task.context
    try:
        job = current_job(task)
        if job.state is JobState.RUNNING and not job.completing:
            suspend_job(context.clock, context.rms, context.suspensions, task.job_id)
    except (RefusedError, NotFoundError) as error:
        task.event("suspend-refused", f"{error}; its job is requeued")
        try:
            send_back(task)
        except (NotFoundError, RefusedError) as refusal:
            task.event("requeue-refused", str(refusal))


def _holders(task: Task, checkpoint: Checkpoint) -> dict[str, str] | None:
    """By VM name, a node with its file, read and intact; None if it is proved that a VM's file is on no node.

    Raises:
        OperationFailedError: nothing is proved of the file of one VM, and all others have theirs.
    """
    if checkpoint.used >= _MOST_USES:
        task.event("checkpoint-unusable", f"it went back to its checkpoint {checkpoint.used} times in vain")
        return None
    found = {}
    doubt: OperationFailedError | None = None
    for vm in checkpoint.vms:
        try:
            holder = _holder(task, checkpoint, vm)
        except OperationFailedError as error:
            doubt = error  # another VM's file may certainly be lost; then this one need not be awaited
            continue
        if holder is None:
            return None
        found[vm.name] = holder
    if doubt is not None:
        raise doubt
    return found


def _holder(task: Task, checkpoint: Checkpoint, vm: CheckpointVM) -> str | None:
    """A node that has the VM's file, read and intact; None if it is proved that no node has.

    Raises:
        OperationFailedError: a node may have the file, and did not answer or could not read it now.
    """
    doubt: RmspluginError | None = None
    lost = False
    for node in _nodes(task, checkpoint, vm):
        try:
            unusable = _why_unusable(task, checkpoint, vm, node)
        except NodeGoneError:
            continue
        except RmspluginError as error:
            doubt = error
            continue
        if not unusable:
            return node
        task.event("checkpoint-unusable", f"the file of {vm.name} on {node} cannot be used: {unusable}", node=node)
        lost = task.shared  # the other nodes see this same file
    if doubt is not None and not lost:
        raise OperationFailedError(f"whether the checkpoint's file of {vm.name} is intact is not known: {doubt}")
    return None


def _why_unusable(task: Task, checkpoint: Checkpoint, vm: CheckpointVM, node: str) -> str:
    """The proof, in words, that the VM's file on the node is lost; empty if it was read and is intact.

    Raises:
        RmspluginError: nothing is proved.
    """
    context = task.context
    bound = context.settings.nodes.copy_timeout_s
    digest = Digest(vm.size_bytes, vm.blake2b)
    try:
        context.stores.ensure(node)
        context.nodes.verify(node, vm.name, digest, timeout_s=bound, shared=task.shared, checkpoint=checkpoint.id)
    except CorruptStateError as error:
        return str(error)
    except NotFoundError as error:
        context.stores.require(node)
        return f"{error}, although its store is there"
    return ""


def _nodes(task: Task, checkpoint: Checkpoint, vm: CheckpointVM) -> Iterable[str]:
    if SHARED not in vm.nodes:
        return vm.nodes
    row = next(row for row in task.vms() if row.name == vm.name)
    return dict.fromkeys([*checkpoint.targets, *row.touched])
