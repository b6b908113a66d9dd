"""Weights: what the site's fair share, QOS and nice say of a vjob beyond its age, for ``slowdown``.

Slurm's priority without what the age gave, as a part of the largest of its tier: a user whose fair share is a tenth of
another's has to have waited ten times as long for what he still needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.assessment.facts import VJobFacts
from rmsplugin.engine.observation import Observation
from rmsplugin.engine.rows import VJobRow
from rmsplugin.model.priority import age_part

#: The least weight: whoever has waited a thousand times as long goes first, whatever the site says.
_LEAST = 0.001


def accrues_from(job: RmsJob | None, row: VJobRow | None) -> float:
    """Since when a vjob waits: by Slurm's AccrueTime, without what it was held or waited for others."""
    if row is not None and row.standing is not None and row.standing.accrues_from:
        return row.standing.accrues_from
    if job is not None and job.accrue_time:
        return job.accrue_time
    if row is not None:
        return row.submitted
    return job.submit_time if job is not None else 0.0


def beyond_age(seen: Observation, priority: int, since: float) -> float:
    """What of a priority its age did not give, at least 1; 1 where Slurm has no factors but the order."""
    weights = seen.rms.priorities.weights
    return 1.0 if weights is None else max(1.0, priority - age_part(weights, since, seen.taken))


def normalised(queue: Iterable[VJobFacts]) -> list[VJobFacts]:
    """The vjobs with their weights as parts of the largest of their tier."""
    found = list(queue)
    most: dict[int, float] = {}
    for vjob in found:
        most[vjob.priority] = max(vjob.weight, most.get(vjob.priority, 0.0))
    return [replace(vjob, weight=max(_LEAST, vjob.weight / most[vjob.priority])) for vjob in found]
