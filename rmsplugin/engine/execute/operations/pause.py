"""Pause: all VMs of a vjob stand still, and keep their memory where they are; unpause: all go on there.

All VMs or none (I4): if half of them computed, the others would seem to be dead. For the same reason all are paused at
one instant, as nearly as possible; an event says how nearly. Both operations are idempotent: after a kill the next
engine does the same again, and a VM is never anywhere but in its node's memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.execute.operations.allocation import await_allocation, current_job, resume_job, suspend_job
from rmsplugin.engine.execute.operations.resume import let_run, raise_lost, require_not_left, see_running, set_clock
from rmsplugin.engine.execute.operations.settle import settle_jobs
from rmsplugin.engine.execute.task import Task, combined, sentence_of
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError
from rmsplugin.model.vjob import VJobState


def pause(task: Task) -> None:
    """Bring a vjob from *pausing* to *paused*, or back to *running* with the reason.

    Other vjobs wait for its CPUs: so Slurm is told afterwards, and the guests are not asked for their usage before.

    Raises:
        LostStateError: a VM was on a node that is gone.
        RmspluginError: the vjob runs on; or, if a VM could not be let go on, it stays *pausing*, to be tried again.
    """
    context = task.context
    spans: dict[str, _Span] = {}
    errors = task.each(task.vms(), lambda vm: _hold(task, vm, spans))
    task.check_cancelled()
    raise_lost(errors)
    if errors:
        _go_on_all(task, f"pause failed: {sentence_of(errors)}")
        raise combined(errors)
    try:
        if current_job(task).state is JobState.RUNNING:
            suspend_job(context.clock, context.rms, context.suspensions, task.job_id)  # its wrapper stands still, too
    except RefusedError as error:
        _go_on_all(task, f"not paused: {error}")
        raise
    context.ledger.transition(task.job_id, VJobState.PAUSED, task.operation.arguments["reason"])
    _tell_together(task, "paused-together", "stand still", spans)


def _tell_together(task: Task, kind: str, what: str, spans: Mapping[str, _Span]) -> None:
    """Record the time within which all VMs of a gang were acted on: from the first request to the last answer."""
    if len(spans) > 1:
        apart_s = max(span.until for span in spans.values()) - min(span.since for span in spans.values())
        task.event(kind, f"{len(spans)} VMs {what}, all within {math.ceil(apart_s * 1000)} ms")


class _Span(NamedTuple):
    """When a node was asked to act on a VM, and when it had done so."""

    since: float
    until: float


def _hold(task: Task, vm: VMRow, spans: dict[str, _Span]) -> None:
    """Pause a VM that may be busy with something else."""
    require_not_left(task, vm)
    settle_jobs(task, vm.host, vm.name)
    with task.action("pause", vm, source=vm.host):
        _all_at_once(task, vm, task.context.hypervisor.pause, spans)
        _see_still(task, vm)


def _all_at_once(task: Task, vm: VMRow, act: Callable[..., None], spans: dict[str, _Span]) -> None:
    """Have the VM's node act at the same instant as the nodes of all other VMs."""
    now = task.context.clock.now
    since: list[float] = []

    def ready() -> None:
        task.meet(vm)
        since.append(now())

    act(vm.host, vm.name, timeout_s=task.context.settings.hypervisor.stop_timeout_s, ready=ready)
    if since:
        spans[vm.name] = _Span(since[0], now())


def hold_still(task: Task, vm: VMRow) -> None:
    """Let a VM stand still where it is, and see that it does."""
    task.context.hypervisor.pause(vm.host, vm.name, timeout_s=task.context.settings.hypervisor.stop_timeout_s)
    _see_still(task, vm)


def _see_still(task: Task, vm: VMRow) -> None:
    observed = task.context.hypervisor.list_vms(vm.host).get(vm.name)
    if observed is None or observed.power is not VMPower.PAUSED:
        raise OperationFailedError(f"{vm.name} was paused on {vm.host} and is not seen so")


def _go_on_all(task: Task, reason: str) -> None:
    """Give up the pause: those VMs that are there run on."""
    stuck = task.each(task.vms(), lambda vm: _run_on(task, vm))
    if stuck:
        # The next cycle goes on with the vjob, since it is still *pausing*.
        raise OperationFailedError(f"{reason}; and not all VMs run on: {sentence_of(stuck)}")
    resume_job(task)
    task.context.ledger.transition(task.job_id, VJobState.RUNNING, reason)


def _run_on(task: Task, vm: VMRow) -> None:
    """Let a VM run; a VM that is gone needs nothing: the next cycle finds that it is lost."""
    if task.context.hypervisor.has_vm(vm.host, vm.name):
        with suppress(NotFoundError):
            let_run(task, vm)


def unpause(task: Task) -> None:
    """Bring a vjob from *unpausing* to *running*, or back to *paused* with the reason.

    Raises:
        LostStateError: a VM was on a node that is gone.
        RmspluginError: all VMs stand still again; or, if a VM could not be held, the vjob stays *unpausing*.
    """
    context = task.context
    spans: dict[str, _Span] = {}
    try:
        # The job was requeued while its VMs stood still. (If that happens later, its wrapper attaches to them.)
        if current_job(task).state is JobState.PENDING:
            await_allocation(task, context.settings.slurm.start_timeout_s, slept=True)
        errors = task.each(task.vms(), lambda vm: _let_go_on(task, vm, spans))
    except OperationFailedError as error:
        errors = {task.vms()[0].name: error}
    task.check_cancelled()
    raise_lost(errors)
    if errors:
        _hold_all(task, f"it could not go on: {sentence_of(errors)}")
        raise combined(errors)
    job = resume_job(task)  # first, because the output of its script waits for the wrapper
    task.each(task.vms(), lambda vm: set_clock(task, vm))
    context.ledger.transition(
        task.job_id,
        VJobState.RUNNING,
        f"all its VMs go on where they were; {task.operation.arguments['reason']}",
        wrapper_seen=context.clock.now(),
        restarts=job.restarts,
        resumes=False,
        # A requeue that its script asked for, and that Slurm has not done yet, still holds.
        requeue_of=task.vjob().requeue_of if task.vjob().begins_anew else -1,
    )
    _tell_together(task, "unpaused-together", "go on", spans)


def _let_go_on(task: Task, vm: VMRow, spans: dict[str, _Span]) -> None:
    require_not_left(task, vm)
    with task.action("unpause", vm, source=vm.host, destination=vm.host):
        _all_at_once(task, vm, task.context.hypervisor.unpause, spans)
        see_running(task, vm)


def _hold_all(task: Task, reason: str) -> None:
    """Give up going on: those VMs that are there stand still again."""

    def hold(vm: VMRow) -> None:
        if task.context.hypervisor.has_vm(vm.host, vm.name):
            hold_still(task, vm)

    stuck = task.each(task.vms(), hold)
    if stuck:
        raise OperationFailedError(f"{reason}; and not all VMs stand still: {sentence_of(stuck)}")
    task.context.ledger.transition(task.job_id, VJobState.PAUSED, reason)
