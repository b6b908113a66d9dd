"""Weights: what the site's fair share, QOS and nice say of a vjob beyond its age, for ``slowdown``.

Slurm's priority without what the age gave, beside the median of its tier: a user whose fair share is a tenth of
another's has to have waited ten times as long for what he still needs. One priority that was set by hand leaves the
others as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.assessment.facts import VJobFacts
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.priority import age_part

#: No weight is more than so many times the median, or less than such a part of it: whoever has waited a thousand times
#: as long goes first, whatever the site says.
_MOST = 1000.0


def accrues_from(job: RmsJob | None, row: VJobRow | None, now: float) -> float:
    """Since when a vjob waits: by Slurm's AccrueTime, without what it was held or waited for others.

    Slurm says it a moment after a job was released, or others that it waited for have ended. Until then it is now.
    """
    if row is not None and row.standing is not None and row.standing.accrues_from:
        return row.standing.accrues_from
    if job is not None and (job.accrue_time or job.state is JobState.PENDING):
        return job.accrue_time or now
    if row is not None:
        return row.submitted
    return job.submit_time if job is not None else now


def beyond_age(seen: Observation, priority: int, since: float, job: RmsJob | None, row: VJobRow | None) -> float:
    """What of a priority its age did not give, at least 1; 1 where Slurm has no factors but the order.

    Of a priority that was set by hand age gave nothing.
    """
    weights = seen.rms.priorities.weights
    if weights is None:
        return 1.0
    parts = seen.rms.priorities.parts.get(job.job_id) if job is not None else None
    fixed = parts.fixed if parts is not None else row is not None and row.standing is not None and row.standing.fixed
    return max(1.0, priority if fixed else priority - age_part(weights, since, seen.taken))


def normalised(queue: Iterable[VJobFacts]) -> list[VJobFacts]:
    """The vjobs with their weights beside the median of their tier."""
    found = list(queue)
    tiers: dict[int, list[float]] = {}
    for vjob in found:
        tiers.setdefault(vjob.priority, []).append(vjob.weight)
    middle = {tier: median(weights) for tier, weights in tiers.items()}
    return [replace(vjob, weight=min(_MOST, max(1 / _MOST, vjob.weight / middle[vjob.priority]))) for vjob in found]
