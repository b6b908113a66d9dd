"""Kilowatt-hours of a schedule: by hand, and what holds for every schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.energy.account import Account, OffTime, Span, account, saved_share
from rmsplugin.energy.daily import Daily
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass

POWER = PowerClass(idle_w=100.0, busy_w=300.0, off_w=10.0, transition_w=200.0, off_s=60.0, on_s=120.0)
NIGHT = Daily([(0.0, 0.1), (6 * 3600.0, 0.4)])


def kwh(joules: float) -> float:
    return joules / 3.6e6


def counted(spans: list[Span], off: list[OffTime], end_s: float, names: str = "a", **more: Daily) -> Account:
    parameters = EnergyParameters(dict.fromkeys(names, POWER), **more)
    return account(parameters, 4, spans, off, 0.0, end_s, LocalClock.steady())


def test_a_node_that_is_on_takes_what_its_cpus_use_and_more_if_it_idles() -> None:
    found = counted([Span("a", 0.0, 1000.0, 1.0), Span("a", 500.0, 1000.0, 3.0)], [], 1000.0)
    assert found.all_on.kwh == found.switched.kwh == pytest.approx(kwh(1000 * 100 + 200 * (1000 + 1500) / 4))
    assert (found.all_on.cost, found.all_on.co2_kg) == (None, None)


def test_a_node_that_is_switched_takes_the_power_of_transitions_and_of_being_off() -> None:
    found = counted([Span("a", 0.0, 100.0), Span("a", 1120.0, 2000.0)], [OffTime("a", 100.0, 1000.0)], 2000.0)
    assert found.switched.kwh == pytest.approx(kwh(100 * 100 + 200 * 60 + 10 * 840 + 200 * 120 + 100 * 880))
    assert found.oracle.kwh == pytest.approx(found.switched.kwh)
    assert saved_share(found) == pytest.approx(1.0)


def test_a_node_that_stays_off_does_not_come_on() -> None:
    found = counted([Span("a", 0.0, 100.0)], [OffTime("a", 100.0, None)], 1100.0)
    assert found.switched.kwh == pytest.approx(kwh(100 * 100 + 200 * 60 + 10 * 940))
    assert found.oracle.kwh == pytest.approx(found.switched.kwh)


def test_an_oracle_leaves_a_node_on_in_a_period_that_is_too_short() -> None:
    """To switch costs (200 - 100) * 180 J, and 90 J a second off are saved: 200 s off are needed, 380 s in all."""
    short, long = (counted([Span("a", 0.0, 1.0), Span("a", 1.0 + s, 900.0)], [], 900.0) for s in (379.0, 381.0))
    assert short.oracle.kwh == short.all_on.kwh
    assert long.oracle.kwh == pytest.approx(long.all_on.kwh - kwh(90.0))
    assert saved_share(short) is None


def test_an_oracle_need_not_have_a_node_on_at_the_end() -> None:
    """60 s of transition cost 6,000 J, and 140 s off save 12,600 J; to come on would cost 12,000 J more."""
    found = counted([Span("a", 0.0, 100.0)], [], 300.0)
    assert found.oracle.kwh == pytest.approx(found.all_on.kwh - kwh(6600))


def test_nothing_after_the_end_is_counted() -> None:
    found = counted([Span("a", 0.0, 100.0)], [OffTime("a", 100.0, 1000.0)], 1050.0)
    assert found.switched.kwh == pytest.approx(kwh(100 * 100 + 200 * 60 + 10 * 840 + 200 * 50))


def test_a_node_without_anything_is_off_all_the_time_for_an_oracle() -> None:
    found = counted([Span("a", 0.0, 1000.0)], [], 1000.0, "ab")
    assert found.oracle.kwh == pytest.approx(kwh(1000 * 100 + 200 * 60 + 10 * 940))


def test_cost_and_co2_are_of_the_time_of_day() -> None:
    hour = 3600.0
    off = [OffTime("a", 8 * hour, None)]
    found = counted([Span("a", 0.0, 6 * hour)], off, 24 * hour, price=NIGHT, co2=Daily([(0.0, 500.0)]))
    assert found.all_on.cost == pytest.approx(0.6 * 0.1 + 1.8 * 0.4)
    off_j = 200 * 60 + 10 * (16 * hour - 60)
    assert found.switched.cost == pytest.approx(0.6 * 0.1 + (0.2 + kwh(off_j)) * 0.4)
    assert found.switched.co2_kg == pytest.approx(0.5 * found.switched.kwh)


@given(st.data())
def test_nothing_saves_more_than_the_oracle(data: st.DataObject) -> None:
    """Idle periods one after the other, each with or without the node switched off."""
    now, spans, off = 0.0, [Span("a", 0.0, 1.0)], []
    for _ in range(data.draw(st.integers(1, 5))):
        idle_s = data.draw(st.integers(1, 2000))
        waits_s = data.draw(st.integers(0, 2000))
        begin_s = now + 1.0
        if waits_s + POWER.off_s + POWER.on_s <= idle_s and data.draw(st.booleans()):
            off.append(OffTime("a", begin_s + waits_s, begin_s + idle_s - POWER.on_s))
        now = begin_s + idle_s
        spans.append(Span("a", now, now + 1.0, data.draw(st.sampled_from([0.0, 2.0]))))
    found = counted(spans, off, now + 1.0)
    assert found.oracle.kwh <= found.switched.kwh + 1e-12
    assert found.oracle.kwh <= found.all_on.kwh
