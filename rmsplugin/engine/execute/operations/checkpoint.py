"""Checkpoint: the VMs of a running vjob are written to files as they are at one instant, and go on at once.

Order: room is looked for; all VMs stand still; each is written to a file with a temporary name; all go on, whatever
failed; each file is sealed and, if nodes have stores of their own, copied to another node. Only then the checkpoint is
*whole*, and the one before it is dropped. An interrupted attempt is not gone on with: its VMs are let go on, and its
files are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.engine.context.machines import checkpoint_path
from rmsplugin.engine.execute.checkpoint_rules import choose_targets, room_needed
from rmsplugin.engine.execute.old_checkpoints import drop_old
from rmsplugin.engine.execute.operations.resume import let_run
from rmsplugin.engine.execute.operations.settle import settle_jobs
from rmsplugin.engine.execute.task import CancelledError, Task, combined, sentence_of
from rmsplugin.engine.ledger.checkpoints import Checkpoint, CheckpointVM
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import (
    NoSpaceError,
    NotFoundError,
    OperationFailedError,
    RmspluginError,
    UnavailableError,
)

T = TypeVar("T")

_LOOK_S = 0.25
_CLOCK_S = 5.0


class StillPausedError(OperationFailedError):
    """A VM may still be paused: the next attempt to let it go on is made very soon."""

    most_s = 5.0


def checkpoint(task: Task) -> None:
    """Take the checkpoint that was intended for the vjob; the vjob stays *running* throughout.

    Raises:
        StillPausedError: not all VMs are seen running again; to be tried again very soon.
        RmspluginError: there is no new checkpoint; the one before it is kept.
    """
    ledger = task.context.ledger
    found = ledger.checkpoints.taking(task.job_id)
    if found is None:
        return  # an engine was killed between the end of the work and its record
    if found.began:
        _recover(task)
        return
    ledger.checkpoints.begin(found.id)
    try:
        _take(task, found)
    except StillPausedError:
        raise  # it stays *taking*: an engine that finds it so lets the VMs go on
    except CancelledError:
        ledger.checkpoints.retire_one(found.id)
        raise  # at once: the operation that goes first does not wait for files to be removed
    except RmspluginError:
        ledger.checkpoints.retire_one(found.id)
        drop_old(task.context.settings, task.context.ledger, task.context.nodes, task.context.stores, task.job_id)
        raise
    drop_old(task.context.settings, task.context.ledger, task.context.nodes, task.context.stores, task.job_id)


def _recover(task: Task) -> None:
    """After an interruption: let all VMs go on, and keep nothing of the checkpoint."""
    stuck = task.each(task.vms(), lambda vm: _let_go_on(task, vm, abort=True))
    if stuck:
        raise StillPausedError(f"not all VMs go on after a checkpoint that was interrupted: {sentence_of(stuck)}")
    task.context.ledger.checkpoints.retire(task.job_id, taking_only=True)
    drop_old(task.context.settings, task.context.ledger, task.context.nodes, task.context.stores, task.job_id)


def _take(task: Task, intended: Checkpoint) -> None:
    context, vms = task.context, task.vms()
    copies = _find_room(task, intended, vms)
    # Recorded before anything is put there: files of a checkpoint that never was whole are removed from all of these.
    on = {vm.name: tuple(filter(None, (SHARED if task.shared else vm.host, copies.get(vm.name)))) for vm in vms}
    context.ledger.checkpoints.may_be_on(intended.id, [CheckpointVM(vm.name, on[vm.name]) for vm in vms])
    taken, ran_s = _write_all(task, intended.id, vms)
    task.check_cancelled()
    digests = _of_each(task, vms, lambda vm: _seal(task, intended.id, vm))
    if copies:
        _of_each(task, vms, lambda vm: _copy(task, intended.id, vm, copies[vm.name], digests[vm.name]))
    files = [CheckpointVM(vm.name, on[vm.name], digests[vm.name].size_bytes, digests[vm.name].blake2b) for vm in vms]
    with context.ledger.transaction():
        context.ledger.checkpoints.is_whole(intended.id, files, taken=taken, ran_s=ran_s)
        where = ", ".join(sorted({node for nodes in on.values() for node in nodes}))
        mib = sum(file.size_bytes for file in files) >> 20
        task.event("checkpoint", f"a checkpoint of {mib} MiB is on {where}")


# -- room ------------------------------------------------------------------------------------------------------------


def _find_room(task: Task, intended: Checkpoint, vms: Sequence[VMRow]) -> Mapping[str, str]:
    """By VM name, the node that the copy of its file goes to; empty on shared storage.

    Raises:
        NoSpaceError: a store has no room for the files beside all the room that suspends may need.
        OperationFailedError: there is no other node.
    """
    context = task.context
    memory_mib = max(vm.memory_mib for vm in vms)
    memories = {vm.name: vm.memory_mib for vm in context.ledger.live_vms()}
    hosts = {vm.name: vm.host for vm in context.ledger.live_vms() if vm.host}
    for node in sorted({vm.host for vm in vms}):
        context.stores.require(node)
        here = len(vms) if task.shared else sum(vm.host == node for vm in vms)
        saved_mib = [memories[name] for name, host in hosts.items() if task.shared or host == node]
        needed = room_needed([memory_mib] * here, saved_mib)
        free = context.nodes.space(node, shared=task.shared).free_bytes
        if free < needed:
            raise NoSpaceError(
                f"the store on {node} has {free >> 20} MiB free, and {needed >> 20} MiB are needed "
                "for a checkpoint and for suspends of the VMs there"
            )
        if task.shared:
            return {}
    free_on = {}
    for node in intended.targets:
        try:
            context.stores.require(node)
            saved_mib = [memories[name] for name, host in hosts.items() if host == node]
            free_on[node] = context.nodes.space(node).free_bytes - room_needed([], saved_mib)
        except UnavailableError:
            continue  # a node that falls silent just now takes no copy
    found = choose_targets({vm.name: vm.host for vm in vms}, memory_mib, free_on)
    if found is None:
        raise OperationFailedError(
            "no other node answers that has room for a copy: a checkpoint on the VM's own node "
            "alone would be lost with that node (asked: "
            f"{', '.join(intended.targets) or 'there is none'})"
        )
    return found


# -- the instant -----------------------------------------------------------------------------------------------------


def _write_all(task: Task, number: int, vms: Sequence[VMRow]) -> tuple[float, float]:
    """Write all VMs as they are at one instant; all go on, whatever failed. Returns the instant, and the run so far."""
    context = task.context
    bound = context.settings.hypervisor.stop_timeout_s
    errors: dict[str, RmspluginError] = {}
    if len(vms) > 1:  # a single VM is stopped, and let go on, by its hypervisor
        errors = task.each(vms, lambda vm: context.hypervisor.pause(vm.host, vm.name, timeout_s=bound))
    vjob, taken = task.vjob(), context.clock.now()
    ran_s = vjob.ran_by(taken)
    if not errors:
        errors = task.each(vms, lambda vm: _write(task, number, vm))
    stuck = task.each(vms, lambda vm: _let_go_on(task, vm))
    if stuck:
        raise StillPausedError(f"not all VMs go on after a checkpoint: {sentence_of(stuck)}")
    # The guests' clocks stood still meanwhile. A clock that cannot be set now is set with the next checkpoint.
    if context.capabilities.own_kernel:
        task.each(vms, lambda vm: context.guests.set_clock(vm.address, vm.host_key_public, timeout_s=_CLOCK_S))
    if errors:
        raise combined(errors)
    return taken, ran_s


def _write(task: Task, number: int, vm: VMRow) -> None:
    context = task.context
    with task.action("checkpoint", vm, source=vm.host) as progress:
        context.hypervisor.checkpoint(
            vm.host,
            vm.name,
            checkpoint_path(context.settings, vm, number),
            timeout_s=context.settings.hypervisor.save_timeout_s,
            progress=progress,
        )


def _let_go_on(task: Task, vm: VMRow, *, abort: bool = False) -> None:
    """Let a VM run again, once its hypervisor does nothing to it any more; a VM that is gone needs nothing."""
    hypervisor = task.context.hypervisor
    observed = hypervisor.list_vms(vm.host).get(vm.name)
    if observed is None:
        return
    if abort:
        hypervisor.abort_job(vm.host, vm.name)
    if observed.job_running or observed.power in (VMPower.PAUSED, VMPower.INCOMING):
        settle_jobs(task, vm.host, vm.name)
        try:
            let_run(task, vm)
        except NotFoundError:
            return


# -- files are proved, and copied ------------------------------------------------------------------------------------


def _of_each(task: Task, vms: Sequence[VMRow], act: Callable[[VMRow], T]) -> dict[str, T]:
    """By VM name, the result of ``act``. Raises ``combined`` errors."""
    found: dict[str, T] = {}
    task.all(vms, lambda vm: found.update({vm.name: act(vm)}))
    return found


def _seal(task: Task, number: int, vm: VMRow) -> Digest:
    context = task.context
    return _unless_cancelled(task, lambda: context.nodes.seal(vm.host, vm.name, shared=task.shared, checkpoint=number))


def _copy(task: Task, number: int, vm: VMRow, destination: str, digest: Digest) -> None:
    context = task.context
    bound = context.settings.nodes.copy_timeout_s
    # The receiving side checks size and digest before it gives the copy its name.
    with task.action("copy", vm, source=vm.host, destination=destination) as progress:
        _unless_cancelled(
            task,
            lambda: context.nodes.send(
                vm.host, destination, vm.name, digest, timeout_s=bound, checkpoint=number, progress=progress
            ),
        )


def _unless_cancelled(task: Task, call: Callable[[], T]) -> T:
    """The result of a call; it is not waited for any longer once the task is cancelled.

    The node goes on with the call; the files that it leaves are removed with the rest of this checkpoint.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoint of {task.job_id}")
    try:
        future = pool.submit(call)
        while not wait([future], _LOOK_S).done:
            task.check_cancelled()
        return future.result()
    finally:
        pool.shutdown(wait=False)
