"""What a tariff costs across the changes of summer time: by each zone's own clock, minute by minute."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmsplugin.energy.daily import Daily
from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.meter import Meter
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.report.local_time import clock_of, local_clock
from rmsplugin.report.power import period_of

PRICES = [("06:00", 0.3), ("22:00", 0.2)]
TARIFF = Daily.of(PRICES)
MINUTE_S = 60
#: The days before and after the changes of 2026.
SPRING, AUTUMN = ("2026-03-28", "2026-03-30"), ("2026-10-24", "2026-10-26")
#: Here clocks are set in October and in April, by half an hour.
LORD_HOWE = ("2026-10-03", "2026-10-05"), ("2026-04-04", "2026-04-06")


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def ahead(zone: ZoneInfo, at: float) -> float:
    found = datetime.fromtimestamp(at, zone).utcoffset()
    assert found is not None
    return found.total_seconds()


def price_at(zone: ZoneInfo, at: int) -> float:
    """What the zone's clock says, read anew."""
    return 0.3 if 6 <= datetime.fromtimestamp(at, zone).hour < 22 else 0.2


def cost(clock: LocalClock, begin_s: float, end_s: float) -> float:
    """Of a kilowatt, by the tariff."""
    meter = Meter(EnergyParameters({}, price=TARIFF), begin_s, end_s, clock)
    meter.add(1000.0, begin_s, end_s)
    found = meter.read().cost
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "span"),
    [
        ("Europe/Prague", SPRING),
        ("Europe/Prague", AUTUMN),
        ("Australia/Lord_Howe", LORD_HOWE[0]),
        ("Australia/Lord_Howe", LORD_HOWE[1]),
        ("UTC", SPRING),
    ],
)
def test_a_kilowatt_costs_what_each_minutes_clock_says(name: str, span: tuple[str, str]) -> None:
    zone, (begin, end) = ZoneInfo(name), map(moment, span)
    clock = clock_of(lambda at: ahead(zone, at), begin, end)
    assert len(clock.ahead) == (1 if name == "UTC" else 2)
    minutes = [price_at(zone, at) for at in range(begin, end, MINUTE_S)]
    assert cost(clock, begin, end) == pytest.approx(sum(minutes) / 60)
    # Also where the time begins, or ends, after the change: by then an hour is worth nothing, or twice.
    for since in range(begin, end, 7 * 3600):
        expected = sum(minutes[(since - begin) // MINUTE_S :]) / 60
        assert cost(clock, since, end) == pytest.approx(expected)


@pytest.mark.parametrize(("span", "hours"), [(SPRING, 23), (AUTUMN, 25)])
def test_a_day_of_a_change_has_an_hour_less_or_more_at_night(span: tuple[str, str], hours: int) -> None:
    """The local day of the change, from midnight to midnight: 16 h by day, and the rest by night."""
    zone = ZoneInfo("Europe/Prague")
    begin = datetime.fromisoformat(span[0]).replace(day=int(span[0][-2:]) + 1, tzinfo=zone).timestamp()
    end = begin + 3600 * hours
    assert datetime.fromtimestamp(end, zone).hour == 0
    clock = clock_of(lambda at: ahead(zone, at), begin, end)
    assert cost(clock, begin, end) == pytest.approx(16 * 0.3 + (hours - 16) * 0.2)


@given(st.integers(0, 3 * 86400), st.integers(1, 3 * 86400), st.integers(1, 3 * 86400))
def test_parts_of_a_time_cost_what_the_whole_does(after_s: int, first_s: int, second_s: int) -> None:
    zone, begin = ZoneInfo("Europe/Prague"), moment(AUTUMN[0]) - 86400 + after_s
    clock = clock_of(lambda at: ahead(zone, at), begin, begin + first_s + second_s)
    middle, end = begin + first_s, begin + first_s + second_s
    assert cost(clock, begin, end) == pytest.approx(cost(clock, begin, middle) + cost(clock, middle, end))


def test_clocks_are_set_at_the_very_second_of_each_change() -> None:
    zone = ZoneInfo("Europe/Prague")
    found = clock_of(lambda at: ahead(zone, at), moment("2026-01-01") + 0.25, moment("2027-12-31T23:59") + 0.5)
    assert [f"{datetime.fromtimestamp(at, UTC):%F %T} +{ahead_s / 3600:g}" for at, ahead_s in found.ahead[1:]] == [
        "2026-03-29 01:00:00 +2",
        "2026-10-25 01:00:00 +1",
        "2027-03-28 01:00:00 +2",
        "2027-10-31 01:00:00 +1",
    ]
    assert found.ahead[0] == (moment("2026-01-01") + 0.25, 3600.0)


@pytest.fixture
def in_prague(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Prague")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_prague")
@pytest.mark.parametrize("span", [SPRING, AUTUMN])
def test_a_report_goes_by_the_clock_of_its_host(span: tuple[str, str]) -> None:
    zone, (begin, end) = ZoneInfo("Europe/Prague"), map(moment, span)
    period = period_of(begin, end)
    assert period.clock == local_clock(begin, end) == clock_of(lambda at: ahead(zone, at), begin, end)
    expected = sum(price_at(zone, at) for at in range(begin, end, MINUTE_S)) / 60
    assert cost(period.clock, begin, end) == pytest.approx(expected)


def test_a_clock_that_nobody_sets_is_as_far_ahead_at_all_times() -> None:
    assert list(LocalClock.steady(3600.0).spans(-50.0, 1e9)) == [(3550.0, 1e9 + 3600.0)]
