"""Weights: what of Slurm's priority is not age, and since when a vjob waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from rmsplugin.adapters.rms.base import RmsJob
from rmsplugin.assessment.facts import Members, VJobFacts
from rmsplugin.engine.observation import Observation
from rmsplugin.engine.rows import VJobRow
from rmsplugin.engine.weights import accrues_from, beyond_age, normalised
from rmsplugin.model.priority import Weights


def seen(weights: Weights | None) -> Observation:
    return cast(
        Observation, SimpleNamespace(taken=1000.0, rms=SimpleNamespace(priorities=SimpleNamespace(weights=weights)))
    )


def job(**known: int) -> RmsJob:
    return cast(RmsJob, SimpleNamespace(**{"accrue_time": 0, "submit_time": 10, **known}))


def row(accrued: float | None = None) -> VJobRow:
    standing = None if accrued is None else SimpleNamespace(accrues_from=accrued)
    return cast(VJobRow, SimpleNamespace(submitted=20.0, standing=standing))


def vjob(name: str, weight: float, tier: int = 0) -> VJobFacts:
    return VJobFacts(name, Members(()), frozenset(), priority=tier, weight=weight)


def weights(*queue: VJobFacts) -> list[float]:
    return [each.weight for each in normalised(queue)]


def test_weights_are_parts_of_the_largest_of_their_tier() -> None:
    assert weights(vjob("a", 50), vjob("b", 200), vjob("c", 5, 1), vjob("d", 4, 1)) == [0.25, 1, 1, 0.8]
    assert weights() == []


def test_where_age_is_all_that_slurm_weighs_all_weights_are_one() -> None:
    assert weights(vjob("a", 1), vjob("b", 1)) == [1, 1]


def test_nobody_has_less_than_a_thousandth() -> None:
    assert weights(vjob("a", 1), vjob("b", 4e9)) == [0.001, 1]


def test_age_gives_no_weight() -> None:
    multifactor = Weights(age=1000, max_age_s=800.0, share=0)
    assert beyond_age(seen(multifactor), 5500, since=600.0) == 5000  # half of the most that age gives
    assert beyond_age(seen(multifactor), 6000, since=100.0) == 5000
    assert beyond_age(seen(multifactor), 5000, since=0.0) == 5000  # its age does not count yet
    assert beyond_age(seen(multifactor), 300, since=100.0) == 1  # never nothing


def test_without_factors_all_weigh_alike() -> None:
    assert beyond_age(seen(None), 4294901757, since=10.0) == 1


@pytest.mark.parametrize(
    ("its_job", "its_row", "since"),
    [
        (job(accrue_time=15), row(accrued=30.0), 30.0),
        (job(accrue_time=15), row(accrued=0.0), 15),
        (job(accrue_time=15), row(), 15),
        (job(), row(), 20.0),
        (None, row(), 20.0),
        (job(), None, 10),
        (None, None, 0.0),
    ],
)
def test_a_vjob_waits_since_its_age_counts(its_job: RmsJob | None, its_row: VJobRow | None, since: float) -> None:
    assert accrues_from(its_job, its_row) == since
