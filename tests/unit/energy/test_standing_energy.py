"""The watts of nodes on which nothing changes."""

from __future__ import annotations

from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.standing import Standing, standing

POWER = PowerClass(120.0, 300.0, 8.0, 150.0, off_s=30.0, on_s=120.0)
CLASSES = dict.fromkeys(("n1", "n2", "n3"), POWER)


def test_a_node_takes_no_more_than_with_all_its_cpus_busy() -> None:
    found = standing(CLASSES, {"n1": 4, "n2": 0}, {"n1": 9, "n2": 1}, {"n1", "n2"}, ())
    assert found == Standing(420, 420, 420)


def test_a_node_that_is_off_takes_less_than_an_idle_one_that_could_be() -> None:
    found = standing(CLASSES, {"n1": 4, "n2": 4, "n3": 4}, {"n1": 2}, {"n1"}, {"n2"})
    assert found == Standing(210 + 8 + 120, 210 + 240, 210 + 16)
