"""Start (action *run*): the job gets its allocation, its VMs start from a template, or boot, and are configured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rmsplugin.accounts import Account
from rmsplugin.adapters.nodes.base import Template
from rmsplugin.engine.identity import account_of, guest_config
from rmsplugin.engine.operations.allocation import NotStartedError, await_allocation, end_with_job
from rmsplugin.engine.operations.from_template import settle, started_from_template
from rmsplugin.engine.operations.guest_disks import put_disks
from rmsplugin.engine.operations.guest_file import put_config
from rmsplugin.engine.operations.stop import remove_all
from rmsplugin.engine.rows import VMRow
from rmsplugin.engine.task import CancelledError, Task, combined, sentence_of
from rmsplugin.errors import GuestFailedError, RmspluginError
from rmsplugin.model.vjob import VJobState


def start(task: Task) -> None:
    """Bring a vjob from *starting* to *running*, or back to *waiting* with the reason.

    Should a node on which it may have left something not answer meanwhile, the vjob stays *stopping*: it is cleaned up
    once the node answers, and starts nowhere before that (I1).
    """
    context = task.context
    vms = task.vms()
    templates: dict[str, Template | None] = {}

    def bring_up(vm: VMRow) -> None:
        templates[vm.name] = _bring_up(task, vm, account, front)

    try:
        job = await_allocation(task, context.settings.slurm.start_timeout_s)
        gid, front = job.gid, job.batch_host
        account = account_of(task.vjob(), gid)
        errors = task.each(vms, bring_up)
    except NotStartedError as error:
        _back_to_waiting(task, str(error))
        raise
    task.check_cancelled()
    if errors:
        _back_to_waiting(task, sentence_of(errors))
        raise combined(errors)
    how = "all VMs answer, from a template" if all(templates.values()) else "all VMs answer"
    while not _now_running(task, how, gid, account):
        # The front told of another account while the VMs booted.
        account = account_of(task.vjob(), gid)
        errors = task.each(vms, partial(_configure, task, account=account, front=front))
        if errors:
            _back_to_waiting(task, sentence_of(errors))
            raise combined(errors)
    for vm in vms:
        if template := templates[vm.name]:
            settle(task, vm, template)


def _now_running(task: Task, how: str, gid: int | None, account: Account) -> bool:
    """Enter *running*, if the account is still the one that the VMs were configured with."""
    context = task.context
    reason = f"{how}; {task.operation.arguments['reason']}"
    with context.ledger.transaction():
        vjob = task.vjob()
        if vjob.account and account_of(vjob, gid) != account:
            return False
        context.ledger.transition(task.job_id, VJobState.RUNNING, reason, wrapper_seen=context.clock.now())
    return True


def _bring_up(task: Task, vm: VMRow, account: Account, front: str) -> Template | None:
    """Let the VM start and make it one of its vjob. Returns the template that it came from, if it did."""
    with task.action("run", vm, destination=vm.host):
        template = started_from_template(task, vm)
        if template is None:
            _boot(task, vm)
        _configure(task, vm, account, front)
    return template


def _boot(task: Task, vm: VMRow) -> None:
    context = task.context
    if vm.name not in context.hypervisor.list_vms(vm.host):
        # Only now: a node that was silent from the beginning holds nothing that had to be cleaned up.
        context.ledger.touch(vm.name, vm.host)
        put_config(task, vm, vm.host)
        put_disks(task, vm)
        context.hypervisor.boot(vm.host, context.spec(task.vjob(), vm), timeout_s=_bound(task))
    # A boot may take minutes: the VM of a job that has ended does not keep its room for so long.
    with _failures_of_guest():
        context.guests.wait_ready(vm.address, vm.host_key_public, timeout_s=_bound(task), check=end_with_job(task))


def _configure(task: Task, vm: VMRow, account: Account, front: str) -> None:
    config = guest_config(task.context, task.vjob(), vm, account, front)
    with _failures_of_guest():
        task.context.guests.configure(
            vm.address, vm.host_key_public, config, timeout_s=_bound(task), check=end_with_job(task)
        )


def _bound(task: Task) -> float:
    return task.context.settings.hypervisor.boot_timeout_s


@contextmanager
def _failures_of_guest() -> Iterator[None]:
    try:
        yield
    except CancelledError:
        raise
    except RmspluginError as error:
        raise GuestFailedError(str(error)) from error


def _back_to_waiting(task: Task, reason: str) -> None:
    """Undo a start: nothing of the VMs is left, the job is behind the gate, at its old place in the queue."""
    context = task.context
    # Whatever interrupts this, the vjob is cleaned up and not booted once more where it failed.
    context.ledger.transition(task.job_id, VJobState.STOPPING, reason)
    try:
        context.rms.requeue(task.job_id)
    except RmspluginError as error:
        task.event("requeue-failed", str(error))
    remove_all(task)
    with context.ledger.transaction():
        context.ledger.set_vms(task.job_id, [])
        context.ledger.transition(task.job_id, VJobState.WAITING, reason, script_started=False)
