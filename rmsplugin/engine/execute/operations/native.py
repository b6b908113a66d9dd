"""Native: operations on vjobs that are plain jobs of the RMS. Each one asks the RMS, and looks whether it has acted.

Nothing of such a vjob is anywhere but in the RMS: its stand-ins in the ledger are where its job is. So each operation
is idempotent: after a kill the next engine looks at the job, and goes on from there.

The RMS resumes a job without a look whether its CPUs are free. If they are not, its books are wrong until the node is
empty. So an unpause waits until the CPUs are free in these books, and until no other job may start there. While it
looks and resumes it holds ``Context.books``, and no gate is opened meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import NoReturn

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.assess.newcomers import make_stand_ins
from rmsplugin.engine.execute.operations.allocation import NotStartedError, await_allocation, current_job, send_back
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import OperationKind, VMRow
from rmsplugin.engine.observe.others import why_not_free
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

#: An unpause waits so many seconds for its CPUs at most; then the next cycle decides anew.
_FREE_S = 30.0
_LOOK_S = 1.0
#: A job whose nodes are still being prepared is not suspended: the RMS would start its script later all the same.
_PREPARED_S = 60.0


class NotFreeError(NotStartedError):
    """The CPUs of a paused job were not free in time; the message says where."""


def start(task: Task) -> None:
    """Bring a vjob from *starting* to *running* on the nodes that the RMS chooses, or back to *waiting*."""
    _let_others_go_on(task)
    task.nearly_up = True  # PrologSlurmctld waits for no VM
    try:
        job = await_allocation(task, task.context.settings.slurm.start_timeout_s)
    except NotStartedError as error:
        started = _back_behind_gate(task)
        if started is None:
            _to_waiting(task, str(error))
            raise
        job = started
    _enter_running(task, job, f"Slurm has started it; {task.operation.arguments['reason']}")


def _let_others_go_on(task: Task) -> None:
    """Open no gate while a paused job is about to go on: the RMS could start this job on the CPUs of that one."""
    ledger, clock = task.context.ledger, task.context.clock
    deadline = clock.now() + _FREE_S
    while current_job(task).gated and clock.now() < deadline:
        if not any(vjob.state is VJobState.UNPAUSING for vjob in ledger.vjobs()):
            return
        task.pause(_LOOK_S)


def _back_behind_gate(task: Task) -> RmsJob | None:
    """Close the gate again. Returns the job, if the RMS has started it at this very moment; else None."""
    task.context.rms.close_gate(task.job_id)
    job = current_job(task)
    return None if job.state is JobState.PENDING else job


def _enter_running(task: Task, job: RmsJob, reason: str) -> None:
    context = task.context
    with context.ledger.transaction():
        _place(task, job)
        context.ledger.transition(
            task.job_id,
            VJobState.RUNNING,
            reason,
            script_started=True,
            finished=False,
            wrapper_seen=context.clock.now(),
            restarts=job.restarts,
            resumes=False,
        )


def _place(task: Task, job: RmsJob) -> None:
    """Have the stand-ins where the job is. The caller has begun a transaction."""
    ledger = task.context.ledger
    if [vm.host for vm in task.vms() if vm.phase is VMPhase.LIVE] == [*job.nodes]:
        return
    vms = make_stand_ins(task.vjob(), [*job.nodes])
    ledger.set_vms(task.job_id, vms)
    for vm in vms:
        ledger.enter_phase(vm.name, VMPhase.BOOTING)
        ledger.enter_phase(vm.name, VMPhase.LIVE)


def _to_waiting(task: Task, reason: str) -> None:
    """Record that nothing of a run is left."""
    ledger = task.context.ledger
    with ledger.transaction():
        ledger.set_vms(task.job_id, [])
        ledger.transition(task.job_id, VJobState.WAITING, reason, script_started=False, finished=False, resumes=False)


def pause(task: Task) -> None:
    """Bring a vjob from *pausing* to *paused*, or back to *running* with the reason."""
    job = _prepared(task)
    if job.state is JobState.RUNNING:
        try:
            _suspend(task)
        except (OperationFailedError, NotFoundError) as error:
            _give_up(task, VJobState.RUNNING, f"not paused: {error}")
        job = current_job(task)
    if job.state is not JobState.SUSPENDED:
        _give_up(task, VJobState.RUNNING, f"not paused: its job is {job.detail}")
    task.context.ledger.transition(task.job_id, VJobState.PAUSED, task.operation.arguments["reason"])


def _prepared(task: Task) -> RmsJob:
    """The job, once its nodes are prepared."""
    deadline = task.context.clock.now() + _PREPARED_S
    while (job := current_job(task)).state is JobState.CONFIGURING and task.context.clock.now() < deadline:
        task.pause(_LOOK_S)
    return job


def _suspend(task: Task) -> None:
    context, vms = task.context, task.vms()
    _wait_apart(task)
    try:
        with _actions(task, "pause", vms):
            first = vms[0]
            context.hypervisor.pause(first.host, first.name, timeout_s=context.settings.hypervisor.stop_timeout_s)
    finally:  # the RMS may have acted, whatever it answers
        context.suspensions.suspended(task.job_id, context.clock.now())


def unpause(task: Task) -> None:
    """Bring a vjob from *unpausing* to *running* once its CPUs are free, or back to *paused* with the reason."""
    job = current_job(task)
    if job.state is JobState.SUSPENDED:
        _resume_once_free(task, job)
        job = current_job(task)
    if job.state not in (JobState.RUNNING, JobState.CONFIGURING):
        _give_up(task, VJobState.PAUSED, f"it could not go on: its job is {job.detail}")
    _enter_running(task, job, f"it goes on where it was; {task.operation.arguments['reason']}")


def _resume_once_free(task: Task, job: RmsJob) -> None:
    context = task.context
    deadline = context.clock.now() + _FREE_S
    _wait_apart(task)
    while why := _resume_if_free(task, job):
        if context.clock.now() >= deadline:
            reason = f"it waits for its CPUs: {why}"
            context.ledger.transition(task.job_id, VJobState.PAUSED, reason)
            raise NotFreeError(reason)
        task.pause(_LOOK_S)


def _resume_if_free(task: Task, job: RmsJob) -> str:
    """Resume the job, if nobody has its CPUs, or may get them meanwhile. Returns why it was not resumed, or nothing."""
    context, vms = task.context, task.vms()
    with context.books:
        seen = context.rms.snapshot()
        if why := why_not_free(seen, job.job_id, task.vjob().geometry, context.settings.slurm.partitions):
            return why
        try:
            with _actions(task, "unpause", vms):
                first = vms[0]
                timeout_s = context.settings.hypervisor.stop_timeout_s
                context.hypervisor.unpause(first.host, first.name, timeout_s=timeout_s)
        except (OperationFailedError, NotFoundError) as error:
            _give_up(task, VJobState.PAUSED, f"it could not go on: {error}")
        finally:
            context.suspensions.resumed(task.job_id, context.clock.now())
    return ""


def _wait_apart(task: Task) -> None:
    """Let time pass between a suspension and a resume of one job: its nodes might do both in any order."""
    context = task.context
    while (left_s := context.suspensions.left_s(task.job_id, context.clock.now())) > 0:
        task.pause(left_s)


def _give_up(task: Task, state: VJobState, reason: str) -> NoReturn:
    """Enter the state that the job is in. Raises OperationFailedError."""
    task.context.ledger.transition(task.job_id, state, reason)
    raise OperationFailedError(reason)


@contextmanager
def _actions(task: Task, kind: str, vms: list[VMRow]) -> Iterator[None]:
    """Record an action on each stand-in around the one request that is about the whole job."""
    with ExitStack() as actions:
        for vm in vms:
            actions.enter_context(task.action(kind, vm, source=vm.host))
        yield


def reattach(task: Task) -> None:
    """Follow a job that was requeued, and that the RMS has started again before the engine saw it."""
    job = current_job(task)
    if job.state is JobState.PENDING:
        return  # the next cycle sees to it
    ledger = task.context.ledger
    with ledger.transaction():
        _place(task, job)
        ledger.update_vjob(task.job_id, restarts=job.restarts)
        task.event("reattached", f"its job was requeued and runs again from its beginning on {', '.join(job.nodes)}")


def restart(task: Task) -> None:
    """Bring a vjob from *stopping* back to *waiting*: its job begins anew when its turn comes, if it has not ended."""
    reason = task.vjob().reason
    try:
        current_job(task)  # one that has ended is not sent back
        send_back(task)
    except (NotFoundError, RefusedError) as error:
        task.event("requeue-refused", str(error))
    _to_waiting(task, reason)


def stop(task: Task) -> None:
    """Bring a vjob from *stopping* to *terminated*: its job has ended, and there is nothing else of it."""
    ledger = task.context.ledger
    with ledger.transaction():
        ledger.set_vms(task.job_id, [])
        ledger.transition(task.job_id, VJobState.TERMINATED, "its job has ended")


#: By kind, the operations that there are of vjobs without VMs.
ACTS: Mapping[OperationKind, Callable[[Task], None]] = MappingProxyType(
    {
        OperationKind.START: start,
        OperationKind.PAUSE: pause,
        OperationKind.UNPAUSE: unpause,
        OperationKind.REATTACH: reattach,
        OperationKind.RESTART: restart,
        OperationKind.STOP: stop,
    }
)
