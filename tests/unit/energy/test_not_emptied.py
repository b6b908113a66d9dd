"""When nodes would have been off if none had been emptied."""

from __future__ import annotations

from rmsplugin.energy.account import OffTime
from rmsplugin.energy.not_emptied import EmptiedNode, as_if_not_emptied


def test_a_node_goes_off_when_its_last_vjob_would_have_ended() -> None:
    off = [OffTime("a", 100.0, 900.0), OffTime("b", 100.0, None)]
    found = as_if_not_emptied(off, [EmptiedNode("a", 50.0, 400.0), EmptiedNode("b", 50.0, 400.0)])
    assert found == [OffTime("a", 400.0, 900.0), OffTime("b", 400.0, None)]


def test_or_not_at_all() -> None:
    assert as_if_not_emptied([OffTime("a", 100.0, 900.0)], [EmptiedNode("a", 50.0, 950.0)]) == []


def test_only_the_off_time_after_it_is_another() -> None:
    off = [OffTime("a", 100.0, 200.0), OffTime("a", 500.0, 900.0)]
    assert as_if_not_emptied(off, [EmptiedNode("a", 50.0, 700.0)]) == [off[1]]
    assert as_if_not_emptied(off, [EmptiedNode("a", 300.0, 700.0)]) == [off[0], OffTime("a", 700.0, 900.0)]
    assert as_if_not_emptied(off, [EmptiedNode("b", 50.0, 700.0)]) == off
