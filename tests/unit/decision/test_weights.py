"""Weights: what of Slurm's priority is not age, and since when a vjob waits."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.assessment.facts import Members, VJobFacts
from rmsplugin.engine.capacity.weights import accrues_from, beyond_age, normalised
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.model.priority import Parts, Weights


def seen(weights: Weights | None, parts: Mapping[int, Parts] | None = None) -> Observation:
    priorities = SimpleNamespace(weights=weights, parts=parts or {})
    return cast(Observation, SimpleNamespace(taken=1000.0, rms=SimpleNamespace(priorities=priorities)))


def job(job_id: int = 1, accrue_time: int = 0, state: JobState = JobState.PENDING) -> RmsJob:
    return cast(RmsJob, SimpleNamespace(job_id=job_id, accrue_time=accrue_time, state=state, submit_time=10))


def row(accrued: float | None = None, fixed: bool = False) -> VJobRow:
    known = accrued is not None or fixed
    standing = SimpleNamespace(accrues_from=accrued or 0.0, fixed=fixed) if known else None
    return cast(VJobRow, SimpleNamespace(submitted=20.0, standing=standing))


def vjob(name: str, weight: float, tier: int = 0) -> VJobFacts:
    return VJobFacts(name, Members(()), frozenset(), priority=tier, weight=weight)


def weights(*queue: VJobFacts) -> list[float]:
    return [each.weight for each in normalised(queue)]


def test_weights_are_beside_the_median_of_their_tier() -> None:
    assert weights(vjob("a", 50), vjob("b", 200), vjob("e", 100), vjob("c", 5, 1)) == [0.5, 2, 1, 1]
    assert weights() == []


def test_one_priority_set_by_hand_leaves_the_others_as_they_are() -> None:
    shares = [vjob("a", 50), vjob("b", 200), vjob("c", 100), vjob("d", 100)]
    assert weights(*shares, vjob("top", 4e9)) == [0.5, 2, 1, 1, 1000]


def test_where_age_is_all_that_slurm_weighs_all_weights_are_one() -> None:
    assert weights(vjob("a", 1), vjob("b", 1)) == [1, 1]


def test_nobody_has_less_than_a_thousandth() -> None:
    assert weights(vjob("a", 1), vjob("b", 4e9), vjob("c", 4e9)) == [0.001, 1, 1]


def test_age_gives_no_weight() -> None:
    multifactor = seen(Weights(age=1000, max_age_s=800.0, share=0))
    assert beyond_age(multifactor, 5500, 600.0, job(), None) == 5000  # half of the most that age gives
    assert beyond_age(multifactor, 6000, 100.0, job(), row()) == 5000
    assert beyond_age(multifactor, 5000, 0.0, None, row(accrued=5.0)) == 5000  # its age does not count yet
    assert beyond_age(multifactor, 300, 100.0, None, None) == 1  # never nothing


def test_a_priority_that_was_set_by_hand_counts_whole() -> None:
    multifactor = seen(Weights(age=1000, max_age_s=800.0, share=0), {7: Parts(0, 0, fixed=True), 8: Parts(9, 0)})
    assert beyond_age(multifactor, 5500, 600.0, job(job_id=7), None) == 5500
    assert beyond_age(multifactor, 5500, 600.0, job(job_id=8), row(fixed=True)) == 5000
    assert beyond_age(multifactor, 5500, 600.0, job(job_id=9), row(fixed=True)) == 5500


def test_without_factors_all_weigh_alike() -> None:
    assert beyond_age(seen(None), 4294901757, 10.0, job(), row()) == 1


@pytest.mark.parametrize(
    ("its_job", "its_row", "since"),
    [
        (job(accrue_time=15), row(accrued=30.0), 30.0),
        (job(accrue_time=15), row(accrued=0.0), 15),
        (job(accrue_time=15), row(), 15),
        (job(), row(), 999.0),  # it was released a moment ago: Slurm says it soon
        (job(state=JobState.RUNNING), row(), 20.0),
        (None, row(), 20.0),
        (job(state=JobState.RUNNING), None, 10),
        (None, None, 999.0),
    ],
)
def test_a_vjob_waits_since_its_age_counts(its_job: RmsJob | None, its_row: VJobRow | None, since: float) -> None:
    assert accrues_from(its_job, its_row, 999.0) == since
