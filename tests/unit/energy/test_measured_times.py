"""The times of nodes that were measured take the place of those of the settings."""

from __future__ import annotations

from rmsplugin.energy.measured import ENOUGH, Measured, measured, with_measured
from rmsplugin.energy.power import PowerClass

POWER = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0)


def test_the_median_counts_once_there_are_enough() -> None:
    few = [40.0] * (ENOUGH - 1)
    assert measured(few) == Measured(ENOUGH - 1, None)
    assert measured([*few, 9000.0]) == Measured(ENOUGH, 40.0), "one that hung changes nothing"


def test_only_the_newest_count() -> None:
    assert measured([*[40.0] * 100, *[600.0] * 500]) == Measured(600, 40.0)


def test_each_time_takes_the_place_of_its_own() -> None:
    none, both = Measured(3, None), Measured(10, 50.0)
    assert with_measured(POWER, none, none) == POWER
    assert with_measured(POWER, both, none) == PowerClass(120.0, 300.0, 8.0, 150.0, 50.0, 120.0)
    found = with_measured(POWER, none, Measured(10, 60.0))
    assert (found.off_s, found.on_s) == (30.0, 60.0)
    assert found.threshold_s < POWER.threshold_s, "a node that comes on sooner is worth it sooner"
