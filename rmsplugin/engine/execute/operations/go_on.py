"""Go on: a wrapper stands still although Slurm says that its job runs; Slurm is told to suspend and resume it again.

slurmd has carried out a suspend and the resume behind it in the wrong order, or has never heard of the resume
(suspensions.py). Slurm refuses to resume a job that runs. So the job is suspended first, which stops only the wrapper
that stands still already. The VMs run on throughout.
"""

from __future__ import annotations

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.hearing import Hearing
from rmsplugin.engine.context.signs import SignsOfLife
from rmsplugin.engine.context.suspensions import Suspensions
from rmsplugin.engine.execute.operations.allocation import current_job, resume_job, suspend_job
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RefusedError, UnavailableError

#: Seconds between two requests that Slurm did not answer, or refused.
_AGAIN_S = 2.0


def last_heard(signs: SignsOfLife, suspensions: Suspensions, hearing: Hearing, job_id: int, now: float) -> float:
    """From when on the vjob's wrapper counts as silent.

    A wrapper whose job is suspended is not silent, and while the engine itself could not hear, nobody was.
    """
    return max(signs.last(job_id), suspensions.since(job_id), hearing.deaf_until(now))


def stands_still(
    clock: Clock, signs: SignsOfLife, suspensions: Suspensions, seen: Observation, vjob: VJobRow, job: RmsJob | None
) -> bool:
    """Whether Slurm was told to let the wrapper go on, and it is overdue although its front is up."""
    if not suspensions.awaits(vjob.job_id):
        return False
    front = seen.rms.nodes.get(job.batch_host) if job is not None else None
    return front is not None and front.up and suspensions.overdue(vjob.job_id, signs.last(vjob.job_id), clock.now())


def go_on(task: Task) -> None:
    """Have Slurm suspend the job and let it go on. The vjob stays *running* throughout.

    Once Slurm may have suspended the job, this insists until it is resumed: otherwise a user would seem to have
    suspended it.
    """
    task.event(
        "stands-still",
        "Slurm says that its job runs, but its wrapper stands still: the engine has Slurm suspend and resume the job",
    )
    try:
        suspend_job(task.context.clock, task.context.rms, task.context.suspensions, task.job_id)
    except RefusedError:
        if current_job(task).state is not JobState.SUSPENDED:
            raise
    except UnavailableError:
        pass
    while True:
        try:
            job = resume_job(task, again=True)
            if job.state is JobState.PENDING and job.held and not job.held_by_user:
                # The job's front was lost meanwhile. Slurm holds a suspended job that it requeues, and keeps the hold.
                task.context.rms.requeue(task.job_id)
            return
        except (RefusedError, UnavailableError):
            task.pause(_AGAIN_S)
