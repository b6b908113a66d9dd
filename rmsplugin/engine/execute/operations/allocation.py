"""Allocation: getting the RMS to run a gated (or requeued) job, so that its wrapper has a front."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress

from rmsplugin.adapters.rms.base import BEING_ENTERED, JobState, Rms, RmsJob
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.suspensions import Suspensions
from rmsplugin.engine.execute.operations.forgotten import Forgotten
from rmsplugin.engine.execute.task import CancelledError, Task
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError, RmspluginError, UnavailableError

#: Slurm mostly starts a job within half a second of the opening. If it does not, it is asked less and less often.
_FIRST_POLL_S, _POLL_GROWTH, _POLL_S = 0.1, 1.3, 0.5
#: An opening without effect is repeated after so many seconds: for instance, it was refused while the job completed.
_REPEAT_S = 5.0
#: A requeue revokes all credentials of the job on its old front up to the present second of the controller's clock. A
#: job that starts there again within that second fails, "Job credential revoked" (22.05, measured).
_REVOKED_S = 2.0
#: Within this time Slurm looks at a job whose gate was opened; a reason that it gives after that is a new one.
_JUDGED_S = 3.0
#: Slurm enters a job into the accounting within this time, if it ever does.
_ENTERED_S = 10.0
#: How often a job whose VMs boot is looked at, so that its cancellation does not wait for the engine's next cycle.
_LOOK_S = 1.0
#: Beginnings of Slurm's reasons if a limit, not the front, keeps the job: then waiting longer is of no use.
_LIMITS = ("Assoc", "QOS", "MaxJobs", "JobHeld", "Dependency", "BeginTime", "PartitionTimeLimit", "Invalid")


class NotStartedError(OperationFailedError):
    """The RMS did not start a job whose gate was opened; the message has its reason."""

    #: An attempt costs only two requests, while at any time a limit may be raised, or other jobs may make room.
    most_s = 60.0


class Opening:
    """Opens the gate of a job as soon as its VMs are nearly there: the last VM comes up while Slurm starts the job.

    Slurm is asked in a thread of its own, while the VMs come up. A context manager: at its end Slurm has answered.
    """

    def __init__(self, task: Task, vms: Iterable[str]) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._vms = frozenset(vms)
        self._far = set(self._vms)
        self._opened = False
        self._beside = ExitStack()
        self._asked: Future[None] | None = None
        #: When the gate was opened; minus infinity before, and after the job was sent back.
        self.at = -math.inf

    def __enter__(self) -> Opening:
        return self

    def __exit__(self, *_: object) -> None:
        with self._beside:
            self._settle()

    def near(self, vm: str) -> None:
        """Tell that the VM needs only a moment more, unless an accident happens. Any thread may call, repeatedly."""
        with self._lock:
            if vm not in self._far:
                return
            self._far.discard(vm)
            if not self._far:
                self._let_go()

    def far(self, vm: str) -> None:
        """Tell that the VM had an accident, and boots after all. A job that Slurm has started already is sent back.

        Otherwise its time might be up before its script has begun. Any thread may call.

        Raises:
            CancelledError: the job has ended.
        """
        with self._lock:
            self._far |= self._vms & {vm}
            self._settle()
            if self._far and self._opened:
                self._task.nearly_up = False
                self._send_back()

    def _let_go(self) -> None:
        self._task.check_cancelled()
        self._task.nearly_up = True
        if self._opened:
            return  # and sent back since: await_allocation opens it again, when Slurm has cleaned up
        self._opened = True
        if self._beside.enter_context(self._task.threads.lend(1)):
            pool = self._beside.enter_context(ThreadPoolExecutor(1, thread_name_prefix=f"gate{self._task.job_id}"))
            self._asked = pool.submit(self._open)
        else:
            self._open()

    def _open(self) -> None:
        with suppress(RmspluginError):  # await_allocation then opens it, or tells why it cannot
            self._task.context.rms.open_gate(self._task.job_id)
            self.at = self._task.context.clock.now()

    def _settle(self) -> None:
        """Wait until Slurm has answered, if it was asked."""
        if self._asked is not None:
            self._asked.result()

    def _send_back(self) -> None:
        """Send the job back behind the gate, unless PrologSlurmctld keeps it: that time is added to its time limit."""
        rms, job_id = self._task.context.rms, self._task.job_id
        try:
            if current_job(self._task).state is JobState.PENDING:
                rms.close_gate(job_id)  # without effect on a job that Slurm starts at this moment
                self.at = -math.inf
            if current_job(self._task).state not in (JobState.PENDING, JobState.CONFIGURING):
                send_back(self._task)
                self.at = -math.inf
        except CancelledError:
            raise
        except RmspluginError as error:  # then the job runs, and its wrapper waits
            self._task.event("requeue-failed", str(error))


def await_allocation(
    task: Task,
    timeout_s: float,
    *,
    opened: float = -math.inf,
    run: int | None = None,
    ran: bool = False,
    slept: bool = False,
) -> RmsJob:
    """Open the gate, unless it is open, and wait until the job has its allocation. A failure leaves the gate open.

    Only Slurm's own holds are lifted; a hold that somebody has set stays.

    Args:
        task: the start (or resume) of the job.
        timeout_s: the longest wait.
        opened: when the gate was opened.
        run: the run that the opening was for, as the RMS counts requeues; None: there was no opening.
        ran: that run was seen to have its allocation.
        slept: the job may have been requeued while it was suspended; then Slurm itself holds it.

    Raises:
        NotStartedError: the RMS keeps the job pending, or the job is held.
        CancelledError: the job has ended.
    """
    context = task.context
    deadline = context.clock.now() + timeout_s
    first_opened = math.inf if opened == -math.inf else opened
    clean_since = math.inf
    forgotten = Forgotten(task, run if ran or opened > -math.inf else None, ran=ran)
    poll_s = _FIRST_POLL_S
    while True:
        task.check_cancelled()
        job = current_job(task)
        if job.state is not JobState.PENDING:
            return job
        now = context.clock.now()
        if now >= deadline or (now - first_opened >= _JUDGED_S and not job.gated and job.reason.startswith(_LIMITS)):
            raise NotStartedError(f"Slurm does not start it: {job.reason}")
        clean_since = math.inf if job.completing else min(clean_since, now)
        may_start = now - clean_since >= (_REVOKED_S if job.restarts else 0.0) and not forgotten.waits(job)
        if may_start and (job.gated or now - opened >= _REPEAT_S):
            try:
                if job.held and not _is_slurms_own_hold(job, slept=slept):
                    raise NotStartedError(f"Slurm does not start it: {job.reason}")
                if job.held:
                    context.rms.requeue(task.job_id)
                with context.books:
                    context.rms.open_gate(task.job_id)
                opened, first_opened = now, min(first_opened, now)
                forgotten.opened(job)
            except RefusedError as error:
                task.event("opening-refused", str(error))
            except UnavailableError as error:
                if BEING_ENTERED not in str(error):
                    raise
                first_opened = min(first_opened, now)
                if context.clock.now() - first_opened >= _ENTERED_S:
                    raise NotStartedError(f"Slurm does not start it: {error}") from None
        task.pause(poll_s)
        poll_s = min(poll_s * _POLL_GROWTH, _POLL_S)


def _is_slurms_own_hold(job: RmsJob, *, slept: bool) -> bool:
    """Whether Slurm itself holds the job: it was requeued while it was suspended, or a front could not launch it."""
    if job.gated or not job.restarts:
        return False
    return job.held_for_launch or (slept and not job.held_by_user)


def back_behind_gate(task: Task) -> None:
    """Have the job wait behind the gate again; the hold of a pending job stays."""
    if current_job(task).state is JobState.PENDING:
        task.context.rms.close_gate(task.job_id)
    else:
        send_back(task)


def send_back(task: Task) -> None:
    """Have the RMS queue a job again that has its nodes, and count that: no event tells of it."""
    task.context.rms.requeue(task.job_id)
    if not task.vjob().begins_anew:  # else its script has caused it, as was counted
        task.context.ledger.tally.requeued()


def current_job(task: Task) -> RmsJob:
    """The job as the RMS has it now. Raises CancelledError if it has ended."""
    try:
        job = task.context.jobs.read(task.job_id)
    except NotFoundError:
        raise CancelledError("Slurm does not know the job any more") from None
    if job.state is JobState.ENDED:
        raise CancelledError(f"its job has ended: {job.detail}")
    return job


def suspend_job(clock: Clock, rms: Rms, suspensions: Suspensions, job_id: int) -> None:
    """Have the RMS suspend a running job, so that its wrapper stands still."""
    try:
        rms.suspend(job_id)
    finally:  # the RMS may have acted, whatever it answers
        suspensions.suspended(job_id, clock.now())


def resume_job(task: Task, *, again: bool = False) -> RmsJob:
    """Have the RMS let the job go on, whose VMs go on, too. Returns the job as it was before.

    The RMS is told even if it says that the job runs: if that were wrong, the job would seem to be suspended by a user,
    and would never be resumed. It is not told right after the suspension, because the node might do both in any order.

    Args:
        task: the operation on the job.
        again: the RMS was told before, in vain.
    """
    context, suspensions = task.context, task.context.suspensions
    while (left_s := suspensions.left_s(task.job_id, context.clock.now())) > 0:
        task.pause(left_s)
    job = current_job(task)
    if job.state is JobState.SUSPENDED:
        suspensions.goes_on(task.job_id, context.clock.now(), again=again)
    if job.state in (JobState.RUNNING, JobState.SUSPENDED):
        context.rms.resume(task.job_id)
    return job


def end_with_job(task: Task) -> Callable[[], None]:
    """Make a check that cancels the start once its job has ended; while Slurm does not answer, the start goes on."""
    clock = task.context.clock
    looked = clock.now()

    def check() -> None:
        nonlocal looked
        task.check_cancelled()
        if clock.now() - looked < _LOOK_S:
            return
        looked = clock.now()
        try:
            current_job(task)
        except UnavailableError:
            return
        except CancelledError as ended:
            task.cancel(str(ended))
            raise

    return check
