"""How long ago something was, as people write it, around the changes of summer time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from rmsplugin.cli.shared.arguments import past_time

PRAGUE = ZoneInfo("Europe/Prague")


@pytest.fixture(autouse=True)
def in_prague(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Prague")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("now", ["2026-03-29T10:00", "2026-10-25T10:00", "2026-07-01T10:00"])
@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 12 * 3600), ("720m", 12 * 3600), ("30m", 1800), ("0h", 0), ("240h", 240 * 3600)]
)
def test_hours_and_minutes_are_as_long_as_ever(now: str, text: str, seconds: int) -> None:
    here = datetime.fromisoformat(now)
    assert past_time(text, here) == here.timestamp() - seconds


def test_half_an_hour_ago_is_so_in_the_hour_that_comes_twice() -> None:
    again = datetime.fromtimestamp(datetime(2026, 10, 25, 1, 10, tzinfo=UTC).timestamp())
    assert (again.hour, again.fold) == (2, 1)
    assert past_time("30m", again) == datetime(2026, 10, 25, 0, 40, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "then"),
    [
        ("1d", "2026-10-24T10:00"),
        ("7d", "2026-10-18T10:00"),
        ("today", "2026-10-25T00:00"),
        ("yesterday", "2026-10-24T00:00"),
        ("2026-10-24T22:15", "2026-10-24T22:15"),
    ],
)
def test_days_go_by_what_clocks_show(text: str, then: str) -> None:
    expected = datetime.fromisoformat(then).replace(tzinfo=PRAGUE).timestamp()
    assert past_time(text, datetime.fromisoformat("2026-10-25T10:00")) == expected


@pytest.mark.parametrize("text", ["2026-03-29T02:00", "2026-03-29 02:30", "2026-03-29T02:59:59"])
def test_a_time_that_clocks_skipped_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="clocks skipped it"):
        past_time(text, datetime(2026, 3, 30))


@pytest.mark.parametrize(
    "text", ["2026-03-29T03:00", "2026-03-29T01:59:59", "2026-10-25T02:30", "2026-03-29T02:30+01:00"]
)
def test_times_beside_a_gap_and_those_with_an_offset_are_taken(text: str) -> None:
    found = datetime.fromisoformat(text)
    assert past_time(text, datetime(2026, 11, 1)) == found.timestamp()


def test_a_day_that_begins_at_one_is_taken_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Santiago")
    time.tzset()
    assert past_time("2026-09-06", datetime(2026, 9, 7)) == datetime(2026, 9, 6, 4, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("text", "now", "days"), [("1d", "2026-03-30T02:30", 1), ("7d", "2026-04-05T02:30", 7)])
def test_days_before_a_time_that_clocks_skipped_are_no_shorter(text: str, now: str, days: int) -> None:
    here = datetime.fromisoformat(now)
    assert past_time(text, here) == here.timestamp() - days * 86400


def test_days_before_a_time_that_clocks_showed_twice_begin_with_the_first() -> None:
    assert past_time("1d", datetime(2026, 10, 26, 2, 30)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()
