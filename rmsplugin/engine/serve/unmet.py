"""Unmet: jobs of the vjob partitions in Slurm that the engine's cycle has not met yet, looked up by name."""

from __future__ import annotations

from typing import Any

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import NotFoundError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings


def find_unmet(settings: Settings, jobs: JobReader, seen: Observation | None, display_id: str) -> RmsJob:
    """The job with this name, which the ledger does not know; Slurm is asked unless the newest look has the job.

    Raises:
        NotFoundError: Slurm has no such job, or the job is in no vjob partition.
        UnavailableError: Slurm does not answer.
    """
    listed = seen.rms.jobs if seen else ()
    job = next((job for job in listed if display_id in (job.display_id, str(job.job_id))), None)
    if job is None and not display_id.isdecimal():
        raise NotFoundError(f"no vjob {display_id}")
    try:
        job = job or jobs.read(int(display_id))
    except NotFoundError:
        raise NotFoundError(f"no vjob {display_id}") from None
    if job.partition not in settings.slurm.partitions:
        raise NotFoundError(f"no vjob {display_id}: this job is in partition {job.partition}, which has no vjobs")
    return job


def unmet_view(settings: Settings, job: RmsJob, display_id: str) -> dict[str, Any]:
    """The known facts about the job, in the form of ``views.vjob_view``."""
    ended = job.state is JobState.ENDED
    next_look = f"the engine has not met it yet (it looks every {settings.engine.cycle_s:g} s)"
    return {
        "job_id": job.job_id,
        "display_id": job.display_id if job.split else display_id,
        "user": job.user,
        "partition": job.partition,
        "state": str(VJobState.TERMINATED if ended else VJobState.WAITING),
        "reason": "it ended before the engine had met it" if ended else next_look,
        "submitted": float(job.submit_time),
        "nodes": [],
    }
