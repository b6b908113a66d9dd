"""The priority of who runs or sleeps goes on by Slurm's rules; the expected values are priority/multifactor's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmsplugin.model.priority import Parts, Standing, Weights, age_part, priority_now, standing

DAY_S = 86400.0
T0 = 1_800_000_000.0
WEIGHTS = Weights(age=7000, max_age_s=7 * DAY_S, share=100_000)


def seen(value: int, parts: Parts | None, weights: Weights | None = WEIGHTS, share: float | None = 0.25) -> Standing:
    return standing(weights, value, parts, computed=T0 + DAY_S, accrues_from=T0, nice=0, account="physics", share=share)


@pytest.mark.parametrize(("days", "part"), [(-1, 0), (0, 0), (1, 1000), (3.5, 3500), (7, 7000), (8, 7000), (700, 7000)])
def test_age_counts_up_to_its_maximum(days: float, part: float) -> None:
    assert age_part(WEIGHTS, T0, T0 + days * DAY_S) == part


def test_what_slurm_says_of_the_parts_is_believed() -> None:
    # Slurm computes anew every PriorityCalcPeriod: its age part may be older than the look at it.
    known = seen(26_500, Parts(age=900, share=25_000))
    assert (known.rest, known.share) == (600, 25_000)
    assert priority_now(known, WEIGHTS, T0 + 3 * DAY_S, nice=0, share=None) == 600 + 3000 + 25_000


def test_without_the_parts_they_are_computed() -> None:
    assert seen(26_600, None).rest == 600
    assert seen(26_600, None, share=None).rest == 25_600


def test_fair_share_counts_as_it_is_today() -> None:
    known = seen(25_000, Parts(age=0, share=25_000))
    assert 50_000 <= priority_now(known, WEIGHTS, T0, nice=0, share=0.5) <= 50_001
    assert priority_now(known, WEIGHTS, T0, nice=0, share=0.1) <= 10_001


def test_who_is_older_is_never_behind_by_rounding() -> None:
    # The same job, submitted twice: the first is taken to pieces, the second is what Slurm says.
    for digits in range(1, 1000):
        share = digits / 1000 + 0.0000004
        first = seen(int(600.9 + 100_000 * 0.3337779), Parts(age=0, share=int(100_000 * 0.3337779)))
        newer = int(600.9 + 100_000 * share)
        assert newer <= priority_now(first, WEIGHTS, T0, nice=0, share=round(share, 6)) <= newer + 3


def test_nice_counts_as_it_is_today() -> None:
    known = replace(seen(26_600, Parts(age=1000, share=25_000)), nice=50)
    at = {nice: priority_now(known, WEIGHTS, T0 + DAY_S, nice=nice, share=None) for nice in (50, 0, 150, -100)}
    assert at == {50: 26_600, 0: 26_650, 150: 26_500, -100: 26_750}


def test_what_was_set_by_hand_stays() -> None:
    known = seen(777, Parts(age=0, share=0, fixed=True))
    assert priority_now(known, WEIGHTS, T0 + 900 * DAY_S, nice=50, share=0.9) == 777


def test_other_plugins_have_no_factors() -> None:
    known = seen(4_294_901_759, None, weights=None)
    assert priority_now(known, None, T0 + 90 * DAY_S, nice=0, share=0.9) == 4_294_901_759
    assert priority_now(known, None, T0, nice=100, share=None) == 4_294_901_659


def test_incr_only_lets_nothing_fall() -> None:
    rises = replace(WEIGHTS, only_rises=True)
    known = seen(26_500, Parts(age=900, share=25_000))
    assert priority_now(known, rises, T0 + DAY_S, nice=0, share=0.0) == 26_500


def test_a_priority_is_never_that_of_a_held_job() -> None:
    assert priority_now(seen(10, Parts(0, 0)), WEIGHTS, T0, nice=100_000, share=None) == 1
