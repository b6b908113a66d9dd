"""The CPUs that are booked for overbooked VMs."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.model.overbooking import MOST_OVERBOOKING, overbooked

RATIOS = st.integers(100, round(MOST_OVERBOOKING * 100))


def test_as_many_vms_of_one_cpu_share_a_cpu_as_the_ratio_says() -> None:
    for ratio in range(1, round(MOST_OVERBOOKING) + 1):
        assert ratio * overbooked(1, ratio) <= 1 < (ratio + 1) * overbooked(1, ratio) + 0.05


@given(st.integers(0, 10_000), RATIOS)
def test_less_than_a_hundredth_of_a_cpu_is_booked_too_little(centi_cpus: int, centi_ratio: int) -> None:
    exact = Fraction(centi_cpus, centi_ratio)
    booked = Fraction(round(overbooked(centi_cpus / 100, centi_ratio / 100) * 100), 100)
    assert exact - Fraction(1, 100) < booked <= max(exact, Fraction(min(1, centi_cpus), 100))


@given(st.integers(0, 10_000))
def test_a_ratio_of_one_changes_nothing(centi_cpus: int) -> None:
    assert overbooked(centi_cpus / 100, 1) == centi_cpus / 100
