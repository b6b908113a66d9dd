"""Emptying: what it saves, and what it costs, by hand."""

from __future__ import annotations

import math

import pytest

from rmsplugin.energy.emptying import (
    Emptying,
    expected_rest_s,
    idle_after_s,
    may_pay,
    migrating_w,
    pays,
    repaid_after_s,
)
from rmsplugin.energy.power import PowerClass

#: Its threshold is 198.75 s; off it takes 112 W less than idle.
POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)


def test_a_vjob_is_expected_to_run_as_long_again_within_its_limit() -> None:
    assert expected_rest_s(600, 3600) == 600
    assert expected_rest_s(3000, 3600) == 600
    assert expected_rest_s(4000, 3600) == 0
    assert expected_rest_s(600, None) == 600


def test_a_node_gains_the_time_until_its_last_vjob_would_have_ended() -> None:
    assert idle_after_s([100, 700, 300], None, 0) == 700
    assert idle_after_s([700], 500, 0) == 500
    assert idle_after_s([700], 900, 0) == 700


def test_a_node_has_nothing_for_as_long_as_one_that_is_used_before_it() -> None:
    assert idle_after_s([700], 30, 600) == 600
    assert idle_after_s([700], None, 600) == 700


def test_a_known_need_is_believed_whatever_the_average_says() -> None:
    assert idle_after_s([700], 100, 0, 400) == 400
    assert idle_after_s([700], 900, 5000, -5) == 0


def test_without_migrations_emptying_is_repaid_after_the_threshold() -> None:
    assert repaid_after_s(POWER, 0.0) == pytest.approx(POWER.threshold_s)


def test_migrations_are_repaid_by_the_watts_that_a_node_takes_less() -> None:
    assert repaid_after_s(POWER, 112.0 * 60) == pytest.approx(POWER.threshold_s + 60)


def test_nothing_repays_what_a_node_takes_that_saves_nothing_when_off() -> None:
    assert repaid_after_s(PowerClass(8.0, 300.0, 8.0, 150.0, 30.0, 120.0), 0.0) == math.inf


def test_a_node_goes_off_wholly() -> None:
    quick = PowerClass(120.0, 300.0, 8.0, 120.0, off_s=900.0, on_s=0.0)
    assert repaid_after_s(quick, 0.0) == 900


def test_a_migration_takes_a_cpu_at_each_end() -> None:
    assert migrating_w(POWER, 4) == 45
    assert migrating_w(POWER, 0.5) == 180


@pytest.mark.parametrize(
    ("idle_s", "moves_s", "moves_j", "repaid_s", "does"),
    [
        (200, 0, 0, 1800, True),
        (198, 0, 0, 1800, False),
        (258, 60, 0, 1800, False),  # it has nothing only after the migrations
        (260, 60, 0, 1800, True),
        (258, 0, 112 * 60, 1800, False),
        (260, 0, 112 * 60, 1800, True),
        (9000, 0, 112 * 1600, 1800, True),
        (9000, 0, 112 * 1602, 1800, False),  # it would take too long, however long the node is idle
        (9000, 0, 112 * 1602, 3600, True),
    ],
)
def test_a_node_is_emptied_if_that_is_repaid(
    idle_s: float, moves_s: float, moves_j: float, repaid_s: float, does: bool
) -> None:
    assert pays(Emptying(0.2, repaid_s), POWER, idle_s, moves_s, moves_j) is does


@pytest.mark.parametrize(("idle_s", "may"), [(132.0, False), (133.0, True), (3600.0, True)])
def test_a_node_that_has_nothing_too_short_a_time_never_pays(idle_s: float, may: bool) -> None:
    power = PowerClass(100.0, 200.0, 5.0, 85.0, off_s=30.0, on_s=120.0)
    assert may_pay(Emptying(0.2), power, idle_s) is may
    assert pays(Emptying(0.2), power, idle_s, 0.0, 0.0) is may
