"""Expected durations are told once the last context switches took about as long as they were expected to."""

from __future__ import annotations

import pytest

from rmsplugin.calibration.agreement import NEWEST, agrees


@pytest.mark.parametrize(
    ("durations", "told"),
    [
        ([], False),
        ([(10.0, 11.0)] * 4, False),
        ([(10.0, 11.0)] * 5, True),
        ([(100.0, 199.0)] * 5, True),
        ([(100.0, 201.0)] * 5, False),
        ([(201.0, 100.0)] * 5, False),
        ([(0.5, 5.0)] * 5, True),  # a few seconds are about as long
        ([(100.0, 900.0)] * 1 + [(100.0, 110.0)] * 4, True),
        ([(100.0, 900.0)] * 2 + [(100.0, 110.0)] * 4, False),
        ([(100.0, 900.0)] * 50 + [(100.0, 110.0)] * NEWEST, True),
    ],
)
def test_most_of_the_newest_were_right_within_a_factor_of_two(durations: list[tuple[float, float]], told: bool) -> None:
    assert agrees(durations) is told
