"""Cron: times of day in a time zone, as five fields of a crontab (APScheduler's ``CronTrigger.from_crontab``).

Moments are seconds since the epoch. A time of day that a change to summer time skips comes right after the gap; of
several times in one gap the first does, and the others count as missed with it. A time
that is repeated at the end of summer time comes once, unless the expression is for every hour.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from tzlocal import get_localzone

_HOUR = CronTrigger.FIELD_NAMES.index("hour")


def zone_of(name: str) -> tzinfo:
    """The time zone with this name, as in Europe/Prague; for an empty name, that of the host.

    Raises:
        ValueError: there is no such time zone.
    """
    if not name:
        return get_localzone()
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone; write one as in Europe/Prague or UTC") from None


class Cron(CronTrigger):  # type: ignore[misc]  # APScheduler has no types
    """The times of one expression. Times that were missed count as one time."""

    expression: str

    @classmethod
    def parse(cls, expression: str, zone: tzinfo) -> Cron:
        """Read an expression.

        Raises:
            ValueError: the text is no expression, or one for a time that never comes.
        """
        try:
            found: Cron = cls.from_crontab(expression, timezone=zone)
        except ValueError as error:
            raise ValueError(
                f"{expression!r} is no cron expression ({str(error).rstrip('.')}); write five fields (minute, hour, "
                "day of month, month, day of week) as in '30 2 * * sun'"
            ) from None
        found.expression = " ".join(expression.split())
        if found.get_next_fire_time(None, datetime(2024, 1, 1, tzinfo=zone)) is None:
            raise ValueError(f"{expression!r} never comes: no year has such a day")
        return found

    def get_next_fire_time(self, previous_fire_time: datetime | None, now: datetime) -> datetime | None:
        """The first time after both; without a previous time, the first one that is not before ``now``."""
        after = None if previous_fire_time is None else max(previous_fire_time, now)
        found: datetime | None = super().get_next_fire_time(after, now if after is None else after)
        while found is not None and _is_repeated(found) and not self._is_for_every_hour:
            found = super().get_next_fire_time(found, found)
        return found

    def _increment_field_value(self, dateval: datetime, fieldnum: int) -> tuple[datetime, int]:
        """APScheduler's step to the begin of the next month, day or hour, which its search for a time goes on from.

        It adds what clocks would show in between as time that passes. On a day that lacks an hour it so comes to 01:00
        of the next one, past what is to come in the hour before; then it is taken back to the begin that clocks show.
        """
        found, field = super()._increment_field_value(dateval, fieldnum)
        shown = dateval.replace(tzinfo=None) + (found.astimezone(UTC) - dateval.astimezone(UTC))
        begin = shown.replace(tzinfo=self.timezone)
        return (begin if dateval.timestamp() < begin.timestamp() <= found.timestamp() else found), field

    def next_after(self, moment: float) -> float:
        """The first time after ``moment``."""
        then = datetime.fromtimestamp(moment, self.timezone)
        found = self.get_next_fire_time(then, then)
        assert found is not None  # ``parse`` has seen to it
        return found.timestamp()

    def local(self, moment: float) -> datetime:
        """The moment in the time zone of the expression."""
        return datetime.fromtimestamp(moment, self.timezone)

    @property
    def _is_for_every_hour(self) -> bool:
        hours = self.fields[_HOUR]
        return all(hours.get_next_value(datetime(2024, 1, 1, hour)) == hour for hour in range(24))


def _is_repeated(moment: datetime) -> bool:
    """Whether the clock showed the same time an hour before, because it was set back at the end of summer time."""
    return bool(moment.fold) and moment.replace(fold=0).utcoffset() != moment.utcoffset()
