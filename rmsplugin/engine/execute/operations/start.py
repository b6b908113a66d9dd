"""Start (action *run*): VMs start from a template, or boot, and are configured; the job gets its allocation for them.

Slurm counts a job's time from its allocation. So the gate is opened once the VMs are nearly there, and no earlier. For
the user the time in which they come up is waiting, and is not in Elapsed (decision 0049).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from rmsplugin.accounts import Account
from rmsplugin.adapters.guests.config import Tools
from rmsplugin.adapters.nodes.base import Template
from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.execute.identity import account_of, guest_config
from rmsplugin.engine.execute.operations.allocation import (
    NotStartedError,
    Opening,
    await_allocation,
    back_behind_gate,
    current_job,
    end_with_job,
)
from rmsplugin.engine.execute.operations.from_template import settle, started_from_template
from rmsplugin.engine.execute.operations.guest_disks import has_disks, put_disks
from rmsplugin.engine.execute.operations.guest_file import put_config
from rmsplugin.engine.execute.operations.stop import remove_all
from rmsplugin.engine.execute.stages import Stages
from rmsplugin.engine.execute.task import CancelledError, Task, combined, sentence_of
from rmsplugin.engine.ledger.failures import FailureCode
from rmsplugin.engine.ledger.rows import OperationKind, VJobRow, VMRow
from rmsplugin.errors import GuestFailedError, RefusedError, RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

log = logging.getLogger(__name__)


def start(task: Task) -> None:
    """Bring a vjob from *starting* to *running*, or back to *waiting* with the reason.

    If the start failed, and a node that may have something of it does not answer, the vjob stays *stopping*. It is
    cleaned up once the node answers, and starts nowhere before that (I1).
    """
    patience_s = task.context.settings.slurm.start_timeout_s
    job, vms = current_job(task), task.vms()
    try:
        if job.restarts or _is_kept_out(task):
            job = await_allocation(task, patience_s)
        told = _Told(_known_account(task.vjob(), job.gid), job.batch_host)
        with Opening(task, [vm.name for vm in vms if job.state is JobState.PENDING]) as opening:
            templates = _bring_up_all(task, vms, told, opening)
        job = await_allocation(task, patience_s, opened=opening.at, run=job.restarts)
        _enter_running(task, vms, job, told, from_template=all(templates.values()))
    except _NoStartError as error:
        _back_to_waiting(task, sentence_of(error.errors))
        raise combined(error.errors) from None
    except NotStartedError as error:
        _back_to_waiting(task, str(error))
        raise
    for vm in vms:
        if template := templates[vm.name]:
            settle(task, vm, template)


@dataclass(frozen=True, slots=True)
class _Told:
    """The parts of the VMs' configuration that may change by the allocation."""

    account: Account | None  # None: not known yet
    front: str  # empty: no front yet


class _NoStartError(Exception):
    """Some VMs of the vjob did not come up; with their errors, by name."""

    def __init__(self, errors: dict[str, RmspluginError]) -> None:
        super().__init__()
        self.errors = errors


def _is_kept_out(task: Task) -> bool:
    """Whether Slurm did not start one of this user's vjobs at its last try: then VMs must not come up in vain again."""
    return task.context.ledger.failures.any_of_user(task.vjob().user, OperationKind.START, FailureCode.NOT_STARTED)


def _known_account(vjob: VJobRow, gid: int | None) -> Account | None:
    """The account of its script; None if only the front knows it: its prolog tells after the allocation."""
    try:
        return account_of(vjob, gid)
    except RefusedError:
        return None


def _bring_up_all(task: Task, vms: list[VMRow], told: _Told, opening: Opening) -> dict[str, Template | None]:
    """Let all VMs start. Returns, by VM name, the template that it came from, if any. Raises _NoStartError."""
    templates: dict[str, Template | None] = {}

    def bring_up(vm: VMRow) -> None:
        templates[vm.name] = _bring_up(task, vm, told, opening)

    _each(task, vms, bring_up)
    return templates


def _each(task: Task, vms: list[VMRow], act: Callable[[VMRow], None]) -> None:
    errors = task.each(vms, act)
    task.check_cancelled()
    if errors:
        raise _NoStartError(errors)


def _enter_running(task: Task, vms: list[VMRow], job: RmsJob, told: _Told, *, from_template: bool) -> None:
    """Enter *running*, once the VMs have the front's user and place of the script. Raises _NoStartError."""
    how = "all VMs answer, from a template" if from_template else "all VMs answer"
    place = partial(task.context.slurm.facts.script_path, task.job_id)
    while True:
        # The front may have told of another account while the VMs came up.
        account = account_of(task.vjob(), job.gid)
        if account != told.account or place(job.batch_host) != place(told.front):
            told = _Told(account, job.batch_host)
            tools = _tools(task, None)
            _each(task, vms, partial(_configure, task, account=account, front=told.front, tools=tools))
        if _now_running(task, how, job, account):
            return


def _now_running(task: Task, how: str, job: RmsJob, account: Account) -> bool:
    """Enter *running*, if the account is still the one that the VMs were configured with."""
    context = task.context
    reason = f"{how}; at its start: {task.operation.arguments['reason']}"  # what was free then, it has now
    with context.ledger.transaction():
        vjob = task.vjob()
        if vjob.account and account_of(vjob, job.gid) != account:
            return False
        for vm in task.vms():
            context.ledger.enter_phase(vm.name, VMPhase.LIVE)
        context.ledger.transition(
            task.job_id, VJobState.RUNNING, reason, wrapper_seen=context.clock.now(), restarts=job.restarts
        )
    return True


def _bring_up(task: Task, vm: VMRow, told: _Told, opening: Opening) -> Template | None:
    """Let the VM start, and configure it for its vjob. Returns the template that it came from, if any."""
    with task.action("run", vm, destination=vm.host):
        stages = Stages(task.context.clock.now)
        template = started_from_template(task, vm, opening, stages)
        if template is None:
            _boot(task, vm)
            stages.ended("booted")
            opening.near(vm.name)
        if told.account is not None:
            _configure(task, vm, told.account, told.front, _tools(task, template))
            stages.ended("configured")
        log.info("%s is up on %s: %s", vm.name, vm.host, stages)
    return template


def _boot(task: Task, vm: VMRow) -> None:
    context = task.context
    there = vm.name in context.hypervisor.list_vms(vm.host)
    # Recorded only now: a node that was silent from the beginning has nothing to be cleaned up.
    context.ledger.enter_phase(vm.name, VMPhase.BOOTING)
    if not there:
        put_config(task, vm, vm.host)
        put_disks(task, vm)
        context.hypervisor.boot(vm.host, task.spec(vm), timeout_s=_bound(task))
    # A boot may take minutes: if its job ends meanwhile, the VM does not keep its room.
    with _failures_of_guest():
        context.guests.wait_ready(vm.address, vm.host_key_public, timeout_s=_bound(task), check=end_with_job(task))


def _tools(task: Task, template: Template | None) -> Tools:
    """Where a guest has the native programs from: one of a template with a disk has taken them from its seed."""
    if not has_disks(task):
        return Tools.IMAGE
    return Tools.SENT if template is None else Tools.KEPT


def _configure(task: Task, vm: VMRow, account: Account, front: str, tools: Tools) -> None:
    config = replace(
        guest_config(task.context.settings, task.context.ledger, task.context.slurm, task.vjob(), vm, account, front),
        tools=tools,
    )
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
    """Undo a start: leave nothing of the VMs, and have the job behind the gate, at its old place in the queue."""
    context = task.context
    # Recorded first: whatever interrupts this, the vjob is cleaned up, and not booted again where it failed.
    context.ledger.transition(task.job_id, VJobState.STOPPING, reason)
    try:
        back_behind_gate(task)
    except RmspluginError as error:
        task.event("requeue-failed", str(error))
    remove_all(task)
    with context.ledger.transaction():
        context.ledger.set_vms(task.job_id, [])
        context.ledger.transition(task.job_id, VJobState.WAITING, reason, script_started=False)
