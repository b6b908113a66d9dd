"""Weights: the say of the site's fair share, QOS and nice, without age, in the policy ``slowdown``.

A weight is Slurm's priority without the part of age, relative to the median of its tier. A user whose fair share is a
tenth of another's must have waited ten times as long, for the same remaining need. A priority that is set by hand does
not change the weights of other vjobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.assessment.facts import VJobFacts
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.priority import age_part

#: A weight is at most so many times the median, and at least the same fraction of it: a vjob that has waited a thousand
#: times as long goes first, whatever the site says.
_MOST = 1000.0


def accrues_from(job: RmsJob | None, row: VJobRow | None, now: float) -> float:
    """Since when a vjob waits: Slurm's AccrueTime, which leaves out the time of a hold or of waiting for other jobs.

    Slurm sets it a moment after a job was released, or after the jobs that it waited for have ended. Until then, it is
    ``now``.
    """
    if row is not None and row.standing is not None and row.standing.accrues_from:
        return row.standing.accrues_from
    if job is not None and (job.accrue_time or job.state is JobState.PENDING):
        return job.accrue_time or now
    if row is not None:
        return row.submitted
    return job.submit_time if job is not None else now


def beyond_age(seen: Observation, priority: int, since: float, job: RmsJob | None, row: VJobRow | None) -> float:
    """The part of a priority that age did not give, at least 1; 1 if Slurm has no factors but the order.

    Age gave no part of a priority that was set by hand.
    """
    weights = seen.rms.priorities.weights
    if weights is None:
        return 1.0
    parts = seen.rms.priorities.parts.get(job.job_id) if job is not None else None
    fixed = parts.fixed if parts is not None else row is not None and row.standing is not None and row.standing.fixed
    return max(1.0, priority if fixed else priority - age_part(weights, since, seen.taken))


def normalised(queue: Iterable[VJobFacts]) -> list[VJobFacts]:
    """The vjobs with their weights relative to the median of their tier."""
    found = list(queue)
    if [vjob.weight for vjob in found].count(1.0) == len(found):
        return found  # Slurm has no factors but the order
    tiers: dict[int, list[float]] = {}
    for vjob in found:
        tiers.setdefault(vjob.priority, []).append(vjob.weight)
    middle = {tier: median(weights) for tier, weights in tiers.items()}
    relative = (min(_MOST, max(1 / _MOST, vjob.weight / middle[vjob.priority])) for vjob in found)
    return [
        vjob if weight == vjob.weight else vjob._replace(weight=weight)
        for vjob, weight in zip(found, relative, strict=True)
    ]
