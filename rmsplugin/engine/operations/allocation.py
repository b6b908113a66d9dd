"""Allocation: getting the RMS to run a held (or requeued) job, so that its wrapper has a batch host."""

from __future__ import annotations

import math

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.task import CancelledError, Task
from rmsplugin.errors import NotFoundError, OperationFailedError, RefusedError

_POLL_S = 1.0
#: A release that Slurm did not act on is repeated after so long (e.g. it was refused while the job still completed).
_REPEAT_S = 5.0
#: A requeue revokes the job's credentials on its old batch host up to that second of the controller's clock: a job that
#: starts there again within it fails, "Job credential revoked" (22.05, measured).
_REVOKED_S = 2.0


class NotStartedError(OperationFailedError):
    """The RMS did not start a released job in time; the message has its reason."""


def await_allocation(task: Task, node: str, timeout_s: float) -> RmsJob:
    """Release the job to start on ``node`` (or "": anywhere), and wait until it has its allocation.

    Raises:
        NotStartedError: the RMS keeps it pending.
        CancelledError: the job has ended.
    """
    context = task.context
    deadline = context.clock.now() + timeout_s
    released = 0.0
    clean_since = math.inf
    while True:
        task.check_cancelled()
        job = current_job(task)
        if job.state is not JobState.PENDING:
            return job
        now = context.clock.now()
        if now >= deadline:
            raise NotStartedError(f"Slurm does not start it: {job.reason}")
        clean_since = math.inf if job.completing else min(clean_since, now)
        may_start = now - clean_since >= (_REVOKED_S if job.restarts else 0.0)
        if may_start and (job.held or now - released >= _REPEAT_S):
            try:
                context.rms.start(task.job_id, node)
                released = now
            except RefusedError as error:
                task.event("release-refused", str(error))
        task.pause(_POLL_S)


def current_job(task: Task) -> RmsJob:
    """The job as the RMS has it now. Raises CancelledError if it has ended."""
    try:
        job = task.context.rms.job(task.job_id)
    except NotFoundError:
        raise CancelledError("Slurm does not know the job any more") from None
    if job.state is JobState.ENDED:
        raise CancelledError(f"its job has ended: {job.detail}")
    return job
