"""Equations 4 to 9 of RR-7398 (section 2.2), and times of day."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.energy.daily import DAY_S, Daily
from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.prediction import Average, Need, need_of, needed_in_s, predicted_s

P_I, P_S, P_SW, T_D, T_W = 120.0, 8.0, 150.0, 30.0, 120.0
POWER = PowerClass(idle_w=P_I, busy_w=300.0, off_w=P_S, transition_w=P_SW, off_s=T_D, on_s=T_W)


@pytest.mark.parametrize("idle_s", [30.0, 200.0, 3600.0])
def test_the_profit_is_the_same_by_all_forms_of_the_equation(idle_s: float) -> None:
    by_4 = P_I * idle_s - (T_D + T_W) * P_SW - P_S * (idle_s - T_D)
    by_6 = idle_s * (P_I - P_S) - T_D * (P_SW - P_S) - P_SW * T_W
    assert POWER.profit_j(idle_s) == pytest.approx(by_4) == pytest.approx(by_6)


def test_the_threshold_is_where_the_profit_is_0() -> None:
    assert POWER.threshold_s == pytest.approx((T_D * (P_SW - P_S) + P_SW * T_W) / (P_I - P_S))
    assert POWER.threshold_s == pytest.approx(198.75)
    assert POWER.profit_j(POWER.threshold_s) == pytest.approx(0.0)
    assert POWER.profit_j(POWER.threshold_s - 1) < 0 < POWER.profit_j(POWER.threshold_s + 1)


def test_a_node_that_takes_as_much_when_it_is_off_never_pays() -> None:
    assert math.isinf(PowerClass(8.0, 300.0, 8.0, 150.0, 30.0, 120.0).threshold_s)


def test_no_period_is_of_use_in_which_the_node_cannot_go_off() -> None:
    """The report assumes that a period is longer than the delay to enter the state."""
    assert PowerClass(120.0, 300.0, 0.0, 0.0, 30.0, 0.0).threshold_s == 30.0


def test_the_prediction_is_the_moving_average_of_equation_9() -> None:
    average = Average(0.25)
    assert average.expected_s is None
    average.see(100.0)
    assert average.expected_s == 100.0
    average.see(500.0)
    assert average.expected_s == pytest.approx(0.25 * 500 + 0.75 * 100)
    average.see(0.0)
    assert average.expected_s == pytest.approx(0.75 * 200)


@pytest.mark.parametrize(("weight", "expected_s"), [(1.0, 7.0), (0.0, 90.0)])
def test_the_constant_weighs_the_latest_period_against_the_earlier_ones(weight: float, expected_s: float) -> None:
    average = Average(weight, 90.0)
    average.see(7.0)
    assert average.expected_s == expected_s


def test_what_is_known_comes_before_the_average_and_what_was_idle_already_is_no_less() -> None:
    average = Average(0.5, 600.0)
    assert predicted_s(average, 20.0) == 600.0
    assert predicted_s(average, 700.0) == 700.0
    assert predicted_s(average, 20.0, needed_in_s=40.0) == 60.0
    assert predicted_s(average, 20.0, needed_in_s=9000.0) == 9020.0
    assert predicted_s(Average(0.5), 20.0) == 20.0


def test_the_need_of_who_waits_is_when_limits_end_that_leave_it_room() -> None:
    ends = [(300.0, 4), (100.0, 2), (200.0, 2)]
    assert need_of(6, 2, ends, 4) == Need(200.0, 2)
    assert need_of(2, 2, ends, 4) == Need(-math.inf, 1)
    assert need_of(11, 2, ends, 4) is None


def test_the_nodes_that_are_taken_first_are_needed() -> None:
    needs = [Need(150.0, 2), Need(120.0, 1)]
    assert [needed_in_s(needs, rank, 100.0) for rank in range(3)] == [20.0, 50.0, math.inf]
    assert needed_in_s(needs, 0, 500.0) == 0.0


# -- times of day ------------------------------------------------------------------------------------------------------

TARIFF = Daily([(0.0, 0.2), (6 * 3600.0, 0.3), (22 * 3600.0, 0.2)])


@pytest.mark.parametrize(
    ("begin_h", "end_h", "mean"),
    [
        (7, 8, 0.3),
        (5, 7, 0.25),
        (23, 24 + 7, (7 * 0.2 + 0.3) / 8),
        (0, 24, (8 * 0.2 + 16 * 0.3) / 24),
        (5, 24 * 10 + 5, (8 * 0.2 + 16 * 0.3) / 24),
        (-2, 0, 0.2),
        (12, 12, 0.3),
    ],
)
def test_the_mean_price_of_a_time(begin_h: float, end_h: float, mean: float) -> None:
    assert TARIFF.mean(3600.0 * begin_h, 3600.0 * end_h) == pytest.approx(mean)


@given(st.integers(-200_000, 200_000), st.integers(1, 200_000), st.integers(1, 200_000))
def test_means_of_parts_make_up_that_of_the_whole(begin_s: int, first_s: int, second_s: int) -> None:
    middle_s, end_s = begin_s + first_s, begin_s + first_s + second_s
    parts = TARIFF.mean(begin_s, middle_s) * first_s + TARIFF.mean(middle_s, end_s) * second_s
    assert TARIFF.mean(begin_s, end_s) * (first_s + second_s) == pytest.approx(parts)
    assert TARIFF.at(begin_s % DAY_S) in (0.2, 0.3)
