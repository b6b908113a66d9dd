"""Which idle nodes are switched off, and which come on for a known need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from rmsplugin.energy.power import PowerClass
from rmsplugin.energy.prediction import Average, Need
from rmsplugin.energy.switching import Choice, IdleNode, OffNode, choose

#: Its threshold is 198.75 s.
POWER = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0)
NOW = 100_000.0


def chosen(
    idle: Sequence[IdleNode],
    off: Sequence[OffNode] = (),
    needs: Sequence[Need] = (),
    expected_s: float | None = None,
    reserve: int = 0,
    held: int = 0,
    coming: int = 0,
) -> Choice:
    powers = {node.power for node in (*idle, *off)}
    return choose(idle, off, needs, {power: Average(0.5, expected_s) for power in powers}, reserve, NOW, held, coming)


def idle(
    name: str, for_s: float = 0.0, power: PowerClass = POWER, on_s: float = 1e6, off: Sequence[float] = ()
) -> IdleNode:
    return IdleNode(name, power, NOW - for_s, NOW - on_s, off)


def test_a_node_goes_off_at_once_where_a_long_period_is_predicted() -> None:
    assert chosen([idle("a")], expected_s=199.0) == Choice(("a",), (), math.inf)


def test_else_once_it_has_been_idle_for_the_threshold() -> None:
    waits = chosen([idle("a", 10.0)], expected_s=198.0)
    assert (waits.off, waits.on) == ((), ())
    assert waits.again_s == pytest.approx(NOW + 188.75)
    assert chosen([idle("a", 199.0)], expected_s=100.0).off == ("a",)


def test_it_goes_off_when_it_was_told_to_look_again() -> None:
    """Whatever rounding does, the node is not looked at for ever."""
    for since_s in (NOW - 0.1, NOW - 1 / 3, 7.7, 12_345.678):
        node = IdleNode("a", POWER, since_s, 0.0)
        again_s = choose([node], (), (), {POWER: Average(0.5)}, 0, since_s).again_s
        assert choose([node], (), (), {POWER: Average(0.5)}, 0, again_s).off == ("a",)


def test_a_reserve_stays_on() -> None:
    nodes = [idle("a", 500.0), idle("b", 500.0), idle("c", 500.0)]
    assert chosen(nodes, reserve=2).off == ("c",)


def test_a_reserve_that_is_used_is_filled_up() -> None:
    off = [OffNode("b", POWER, NOW - 500), OffNode("c", POWER, NOW - 500)]
    assert chosen([], off, reserve=1).on == ("b",)


def test_the_least_time_on_is_waited_for() -> None:
    power = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0, least_on_s=900.0)
    found = chosen([idle("a", 500.0, power, on_s=600.0)])
    assert found == Choice((), (), NOW + 300.0)


def test_no_more_than_the_cycles_of_a_day() -> None:
    power = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0, cycles_a_day=2)
    assert chosen([idle("a", 500.0, power, off=[NOW - 86_399, NOW - 90_000])]).off == ("a",)
    found = chosen([idle("a", 500.0, power, off=[NOW - 86_000, NOW - 600])])
    assert found == Choice((), (), NOW + 400.0)
    never = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0, cycles_a_day=0)
    assert chosen([idle("a", 500.0, never)]) == Choice((), (), math.inf)


def test_a_node_that_is_soon_needed_stays_on_whatever_the_average_says() -> None:
    nodes = [idle("a", 500.0), idle("b", 500.0)]
    assert chosen(nodes, needs=[Need(NOW + 100, 1)], expected_s=1e5).off == ("b",)
    assert chosen(nodes, needs=[Need(NOW + 100, 2)], expected_s=1e5) == Choice((), (), math.inf)


def test_a_node_that_is_needed_late_goes_off_whatever_the_average_says() -> None:
    assert chosen([idle("a")], needs=[Need(NOW + 5000, 1)], expected_s=10.0).off == ("a",)


def test_a_node_stays_on_that_would_not_be_on_again_in_time() -> None:
    cheap = PowerClass(120.0, 300.0, 8.0, 0.0, 30.0, 120.0)
    assert cheap.threshold_s == 30.0
    assert chosen([idle("a", 500.0, cheap)], needs=[Need(NOW + 150, 1)]).off == ()
    assert chosen([idle("a", 500.0, cheap)], needs=[Need(NOW + 151, 1)]).off == ("a",)


def test_a_node_comes_on_in_time_for_a_known_need() -> None:
    off = [OffNode("a", POWER, NOW - 500), OffNode("b", POWER, NOW - 500)]
    assert chosen([], off, [Need(NOW + 120, 1)]) == Choice((), ("a",), math.inf)
    assert chosen([], off, [Need(NOW + 500, 1)]) == Choice((), (), NOW + 380)
    assert chosen([idle("c", 1.0)], off, [Need(NOW + 120, 2)]).on == ("a",)


def test_a_begin_time_keeps_the_very_node_on_and_has_it_on_in_time() -> None:
    soon, later = NOW + 198.0, NOW + 199.0  # its threshold lies between
    for at_s, goes in ((soon, ("a",)), (later, ("a", "b"))):
        nodes = [idle("a", 500.0), replace(idle("b", 500.0), begins_s=at_s)]
        assert chosen(nodes).off == goes
    off = [OffNode("a", POWER, NOW - 500), OffNode("b", POWER, NOW - 500, NOW + 120)]
    assert chosen([], off).on == ("b",)
    off = [OffNode("a", POWER, NOW - 500), OffNode("b", POWER, NOW - 500, NOW + 500)]
    assert chosen([], off) == Choice((), (), NOW + 380)


def test_a_begin_time_is_no_promise_that_nobody_comes_before() -> None:
    node = replace(idle("a", 10.0), begins_s=NOW + 5000.0)
    assert chosen([node], expected_s=100.0).off == (), "arrivals are expected before"
    assert chosen([idle("a", 10.0)], needs=[Need(NOW + 5000, 1)], expected_s=100.0).off == ("a",)


def test_a_node_stays_off_for_the_least_time_before_a_known_need() -> None:
    power = PowerClass(120.0, 300.0, 8.0, 150.0, 30.0, 120.0, least_off_s=600.0)
    found = chosen([], [OffNode("a", power, NOW - 30)], [Need(NOW + 100, 1)])
    assert found == Choice((), (), NOW + 600)


def test_nodes_that_come_on_are_of_the_reserve_and_of_a_known_need() -> None:
    off = [OffNode("b", POWER, NOW - 500), OffNode("c", POWER, NOW - 500)]
    assert chosen([], off, reserve=2, coming=1).on == ("b",)
    assert chosen([], off, [Need(NOW + 100, 1)], coming=1) == Choice((), (), math.inf)
    assert chosen([idle("a", 500.0)], reserve=1, coming=1).off == ("a",)


def test_nodes_that_are_held_stay_on_and_are_looked_at_again() -> None:
    found = chosen([idle("a", 500.0), idle("b", 500.0), idle("c", 500.0)], held=2)
    assert found == Choice(("c",), (), NOW + 198.75)


def test_none_comes_on_to_be_held() -> None:
    assert chosen([], [OffNode("a", POWER, NOW - 500)], held=1) == Choice((), (), math.inf)


def test_a_node_that_is_kept_for_a_begin_time_is_none_of_the_reserve() -> None:
    """The vjob has it soon, and then the reserve would lack one that takes time to come on."""
    kept = replace(idle("a", 500.0), begins_s=NOW + 198.0)
    assert chosen([kept, idle("b", 500.0), idle("c", 500.0)], reserve=1).off == ("c",)
    assert chosen([kept], [OffNode("b", POWER, NOW - 500)], reserve=1) == Choice((), ("b",), math.inf)


def test_a_node_that_comes_on_for_a_begin_time_is_none_of_the_reserve() -> None:
    off = [OffNode("a", POWER, NOW - 500, NOW + 120), OffNode("b", POWER, NOW - 500), OffNode("c", POWER, NOW - 500)]
    assert chosen([], off, reserve=1).on == ("a", "b")


def test_the_reserve_is_looked_at_again_when_a_begin_time_takes_a_node_of_it() -> None:
    later = replace(idle("a", 500.0), begins_s=NOW + 298.75)
    found = chosen([later], [OffNode("b", POWER, NOW - 500)], reserve=1)
    assert found == Choice((), (), NOW + 100.0)
    found = choose([later], [OffNode("b", POWER, NOW - 500)], (), {POWER: Average(0.5)}, 1, found.again_s)
    assert found.on == ("b",)


def test_a_node_that_is_kept_for_a_begin_time_is_there_for_no_other_vjob() -> None:
    kept = replace(idle("a", 500.0), begins_s=NOW + 198.0)
    assert chosen([kept, idle("b", 500.0)], needs=[Need(NOW + 100, 1)], expected_s=1e5).off == ()
    assert chosen([kept], [OffNode("b", POWER, NOW - 500)], [Need(NOW + 100, 1)]).on == ("b",)
    assert chosen([kept, idle("b", 500.0), idle("c", 500.0)], held=1).off == ("c",)


def test_a_node_that_takes_no_vm_is_none_of_the_reserve() -> None:
    """It stays on as it would have: another one comes on."""
    hot, b, c = replace(idle("a", 500.0), takes_vms=False), idle("b", 500.0), idle("c", 500.0)
    assert chosen([hot, b], [OffNode("c", POWER, NOW - 500)], reserve=2) == Choice((), ("c",), math.inf)
    assert chosen([hot, b, c], reserve=1).off == ("c",)
    assert chosen([hot, b, c], needs=[Need(NOW + 100, 1)]).off == ("c",)
    assert chosen([b, hot], reserve=1).off == ("a",)


def test_a_node_that_saves_nothing_when_it_is_off_is_one_of_the_reserve() -> None:
    never = PowerClass(120.0, 300.0, 120.0, 150.0, 30.0, 120.0)
    assert never.threshold_s == math.inf
    assert chosen([idle("a", 500.0, never), idle("b", 500.0)], reserve=1).off == ("b",)
