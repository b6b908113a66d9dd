"""Times of day as five fields of a crontab: in a time zone, once each, whatever summer time does."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from rmsplugin.cron import Cron, zone_of

ZONE = zone_of("Europe/Prague")


def moment(text: str) -> float:
    """Seconds since the epoch of a time of UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def times(expression: str, after: str, number: int) -> list[str]:
    cron, now, found = Cron.parse(expression, ZONE), moment(after), []
    for _ in range(number):
        now = cron.next_after(now)
        found.append(f"{datetime.fromtimestamp(now, UTC):%d %H:%M}")
    return found


def test_a_time_of_day_is_of_the_time_zone() -> None:
    assert times("30 2 * * *", "2026-01-10", 2) == ["10 01:30", "11 01:30"]
    assert times("30 2 * * *", "2026-07-10", 2) == ["10 00:30", "11 00:30"]
    assert times("0 0 * * sun", "2026-01-10", 1) == ["10 23:00"]


def test_a_time_that_summer_time_skips_comes_once_after_the_gap() -> None:
    assert times("30 2 * * *", "2026-03-28T12:00", 3) == ["29 01:30", "30 00:30", "31 00:30"]


def test_several_times_that_one_gap_skips_come_once_after_it() -> None:
    assert times("15,45 2 * * *", "2026-03-29", 3) == ["29 01:15", "30 00:15", "30 00:45"]
    assert times("15,45 2,3 * * *", "2026-03-29", 3) == ["29 01:15", "29 01:45", "30 00:15"]


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("30 0 * * *", ["28 23:30", "29 22:30", "30 22:30"]),
        ("0 0 * * *", ["28 23:00", "29 22:00", "30 22:00"]),
        ("50 0 * * mon", ["29 22:50", "05 22:50", "12 22:50"]),
        ("0 0 1 * *", ["31 22:00", "30 22:00", "31 22:00"]),
    ],
)
def test_the_first_hour_after_a_day_that_lacks_one_has_its_times(expression: str, found: list[str]) -> None:
    assert times(expression, "2026-03-28T12:00", 3) == found


def test_a_time_that_a_day_which_begins_at_one_skips_comes_after_the_gap() -> None:
    cron = Cron.parse("10 0 * * sun", zone_of("America/Santiago"))
    assert f"{cron.local(cron.next_after(moment('2026-09-05'))):%d %H:%M}" == "06 01:10"


def test_a_time_that_is_repeated_at_the_end_of_summer_time_comes_once() -> None:
    assert times("30 2 * * *", "2026-10-24T12:00", 3) == ["25 00:30", "26 01:30", "27 01:30"]
    assert times("*/30 1-3 * * *", "2026-10-24T23:00", 5) == [
        "24 23:30",
        "25 00:00",
        "25 00:30",
        "25 02:00",
        "25 02:30",
    ]


@pytest.mark.parametrize("hours", ["*", "*/1", "0-23", "0-11,12-23"])
@pytest.mark.parametrize("day", ["2026-03-28T22:30", "2026-10-24T22:30"])
def test_every_hour_comes_each_hour(day: str, hours: str) -> None:
    found = times(f"0 {hours} * * *", day, 6)
    assert found == [f"{int(found[0][:2]) + (hour >= 24):02} {hour % 24:02}:00" for hour in range(23, 29)]


def test_what_was_missed_is_one_time() -> None:
    cron = Cron.parse("* * * * *", ZONE)
    missed, now = (cron.local(moment(text)) for text in ("2026-01-01", "2036-01-01"))
    found = cron.get_next_fire_time(missed, now)
    assert found is not None and found > now


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("* * * *", "got 4, expected 5"),
        ("61 * * * *", "61"),
        ("@daily", "five fields"),
        ("x 2 * * *", "x"),
        ("0 0 31 2 *", "never comes"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_reason(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"cron|never") as refused:
        Cron.parse(expression, ZONE)
    assert why in str(refused.value) and expression in str(refused.value)


@pytest.mark.parametrize("name", ["Europe/Nowhere", "../etc/passwd", "Europe", "a\0b"])
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no time zone"):
        zone_of(name)


def test_time_zones_are_known_where_the_system_has_none() -> None:
    program = "from rmsplugin.cron import zone_of; print(zone_of('Europe/Prague'))"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONTZPATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert found.stdout.strip() == "Europe/Prague", found.stderr
