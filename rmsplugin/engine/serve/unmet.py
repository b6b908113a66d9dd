"""Unmet: jobs of the vjob partitions in Slurm that the engine's cycle has not met yet: one by its name, or all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.context.job_reader import JobReader
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.serve.standings import Standings
from rmsplugin.engine.serve.wanted_vjobs import WantedVJobs
from rmsplugin.errors import NotFoundError
from rmsplugin.model.job_names import fold, parse
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings


def find_unmet(
    settings: Settings, jobs: JobReader, seen: Observation | None, display_id: str, sees: Callable[[RmsJob], bool]
) -> RmsJob:
    """The job with this name, which the ledger does not know; Slurm is asked unless the newest look has the job.

    ``sees``: whether the caller is told of a job.

    Raises:
        NotFoundError: Slurm has no such job for the caller, or the job is in no vjob partition.
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
    if not sees(job):
        raise NotFoundError(f"no vjob {display_id}")
    if job.partition not in settings.slurm.partitions:
        raise NotFoundError(f"no vjob {display_id}: this job is in partition {job.partition}, which has no vjobs")
    return job


def unmet_view(standings: Standings, job: RmsJob, display_id: str) -> dict[str, Any]:
    """The known facts about the job, in the form of ``views.vjob_view``."""
    ended = job.state is JobState.ENDED
    name = job.display_id if job.split else display_id
    standing = standings.of_job(job, name)
    return {
        "job_id": job.job_id,
        "display_id": name,
        "user": job.user,
        "partition": job.partition,
        "state": str(VJobState.TERMINATED if ended else VJobState.WAITING),
        **standing,
        **({"code": "", "reason": "it ended before the engine had met it"} if ended else {}),
        "submitted": float(job.submit_time),
        "nodes": [],
    }


def unmet_views(
    standings: Standings,
    wanted: WantedVJobs,
    name: str,
    *,
    after: int,
    most: int,
    sees: Callable[[RmsJob], bool] = lambda job: True,
) -> dict[str, Any]:
    """A page of the jobs of vjob partitions that the ledger does not know, by job id; elements of an array are folded.

    Args:
        standings: what is said of jobs.
        wanted: the jobs that are wanted.
        name: of the only jobs that are wanted; empty: all are.
        after: the page begins after this job id.
        most: jobs, and elements, of one page; all elements of an array are on one page.
        sees: whether the caller is told of a job.
    """
    meant = parse(name).means if name else None
    found = [
        job
        for job in standings.unmet()
        if job.job_id > after and sees(job) and (meant is None or meant(job.display_id, job.job_id if job.split else 0))
    ]
    found.sort(key=lambda job: job.job_id)
    following = None
    if len(found) > most:
        last = found[most - 1].job_id
        following = last if any(job.job_id > last for job in found[most:]) else None
        found = [job for job in found if job.job_id <= last]
    views = (unmet_view(standings, job, job.display_id) for job in found)
    return {"vjobs": _folded(filter(wanted.takes, views)), "next": following}


def _folded(views: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Elements of an array that wait for the same are one row, as in squeue; its position is that of the first."""
    rows: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for view in views:
        rows.setdefault((view["job_id"], view["code"]), []).append(view)
    return [
        {**alike[0], "display_id": fold(each["display_id"] for each in alike), "elements": len(alike)}
        for alike in rows.values()
    ]
