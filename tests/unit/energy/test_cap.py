"""Which nodes may be used within a bound on watts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.energy.cap import CappedNode, Use, capped
from rmsplugin.energy.power import PowerClass

POWER = PowerClass(100.0, 300.0, 10.0, 150.0, 30.0, 120.0)
LARGE = PowerClass(200.0, 900.0, 20.0, 250.0, 30.0, 120.0)


def node(name: str, use: Use, power: PowerClass = POWER) -> CappedNode:
    return CappedNode(name, power, use)


@pytest.mark.parametrize(
    ("use", "watts"), [(Use.USED, 300.0), (Use.IDLE, 100.0), (Use.SWITCHING, 150.0), (Use.OFF, 10.0)]
)
def test_a_node_counts_with_what_it_may_take(use: Use, watts: float) -> None:
    assert capped([node("a", use)], 1000.0).watts == watts


def test_nodes_that_are_had_soonest_may_be_used_first() -> None:
    uses = {"a": Use.OFF, "b": Use.IDLE, "c": Use.SWITCHING, "d": Use.USED, "e": Use.IDLE}
    nodes = [node(name, use) for name, use in uses.items()]
    base = 10.0 + 2 * 100.0 + 150.0 + 300.0
    assert capped(nodes, base + 199.0).closed == {"a", "b", "e"}, "one that comes on takes less more"
    assert capped(nodes, base + 200.0).closed == {"a", "c", "e"}
    assert capped(nodes, base + 400.0 + 150.0 + 289.0).closed == {"a"}
    assert capped(nodes, base + 400.0 + 150.0 + 290.0).closed == set()


def test_a_smaller_node_is_used_where_a_larger_one_would_exceed_the_bound() -> None:
    assert capped([node("a", Use.IDLE, LARGE), node("b", Use.IDLE)], 600.0).closed == {"a"}


def test_what_runs_is_not_closed_where_the_bound_is_exceeded_already() -> None:
    found = capped([node("a", Use.USED), node("b", Use.IDLE)], 100.0)
    assert (found.watts, found.closed) == (400.0, {"b"})


def test_a_node_that_takes_most_while_it_boots_has_to_fit_then() -> None:
    boots = replace(POWER, transition_w=500.0)
    assert capped([node("a", Use.OFF, boots)], 499.0).closed == {"a"}
    assert capped([node("a", Use.OFF, boots)], 500.0).closed == set()


cluster = st.lists(st.tuples(st.sampled_from(Use), st.sampled_from([POWER, LARGE])), min_size=1, max_size=9)


@settings(max_examples=few(300))
@given(cluster, st.floats(10.0, 6000.0))
def test_all_that_may_be_used_may_be_used_at_once(drawn: list[tuple[Use, PowerClass]], cap_w: float) -> None:
    nodes = [node(str(number), use, power) for number, (use, power) in enumerate(drawn)]
    found = capped(nodes, cap_w)
    most_w = sum(each.now_w if each.name in found.closed else each.most_w for each in nodes)
    assert most_w <= max(cap_w, found.watts) + 1e-6
    for each in nodes:  # and none is closed that would fit besides
        if each.name in found.closed:
            assert most_w + each.most_w - each.now_w > cap_w
