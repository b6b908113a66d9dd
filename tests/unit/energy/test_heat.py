"""When a node is hot, and when it has cooled."""

from __future__ import annotations

import pytest

from rmsplugin.energy.heat import Heat, Thermometer

HEAT = Heat(hot_c=45.0, cool_c=40.0)


def after(*readings: float | None, is_hot: bool = False) -> bool:
    thermometer = Thermometer()
    for celsius in readings:
        is_hot = thermometer.read(HEAT, celsius, is_hot=is_hot)
    return is_hot


@pytest.mark.parametrize(
    ("readings", "is_hot"),
    [
        ((45.0, 45.0), True),
        ((44.9, 44.9), False),
        ((99.0,), False),
        ((99.0, 20.0, 99.0, 20.0), False),
        ((99.0, None, 99.0, None), False),
        ((20.0, None, 46.0, 47.0), True),
        ((50.0, 50.0, 41.0, 41.0, 41.0), True),
        ((50.0, 50.0, 40.0, 45.0, 40.0), True),
        ((50.0, 50.0, None, None, None), True),
        ((50.0, 50.0, 40.0, 39.0), False),
        ((50.0, 50.0, 50.0, 40.0, 39.0, 50.0), False),
        ((50.0, 50.0, 50.0, 40.0, 39.0, 50.0, 51.0), True),
    ],
)
def test_two_readings_in_a_row_prove_it(readings: tuple[float | None, ...], is_hot: bool) -> None:
    assert after(*readings) is is_hot


def test_a_node_that_was_hot_before_cools_by_two_readings() -> None:
    assert after(30.0, is_hot=True)
    assert not after(30.0, 30.0, is_hot=True)
