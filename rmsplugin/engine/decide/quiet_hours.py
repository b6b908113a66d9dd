"""Quiet hours: whether a window of the settings has begun, and until when. Times of day are of the host's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rmsplugin.cron import Cron, zone_of
from rmsplugin.proposing.quiet import Quiet
from rmsplugin.settings.schedule import Schedule

#: A window that began longer ago has ended, by time that passes and by what clocks show.
_LONGEST = timedelta(days=7)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """One window of the settings.

    Attributes:
        begins: the times at which it begins.
        ends: the times at which it ends.
        starts: whether vjobs start in it.
    """

    begins: Cron
    ends: Cron
    starts: bool

    def until(self, now: float) -> float | None:
        """The end of the window that has begun; None if none has. All in seconds since the epoch."""
        shown = self.begins.local(now) - _LONGEST  # a change to summer time may have skipped it
        then = min(shown.timestamp(), now - _LONGEST.total_seconds())
        while (begin := self.begins.next_after(then)) <= now:
            then = self.ends.next_after(begin)
            if then > now:
                return then
        return None


class QuietHours:
    """All windows of the settings."""

    def __init__(self, schedule: Schedule) -> None:
        zone = zone_of(schedule.timezone)
        self.windows = tuple(
            Window(Cron.parse(each.begins, zone), Cron.parse(each.ends, zone), each.starts) for each in schedule.quiet
        )
        self._known: tuple[float, float, Quiet | None] = (0.0, 0.0, None)  # from, until, the answer then

    def at(self, now: float) -> Quiet | None:
        """What is quiet at a time of the host's clock; None if nothing is."""
        if not self.windows:
            return None
        since, until, quiet = self._known
        if not since <= now < until:
            since, until, quiet = self._known = (now, *self._answer_until(now))
        return quiet

    def _answer_until(self, now: float) -> tuple[float, Quiet | None]:
        """Until when the answer is the same, and the answer."""
        ends = {window: until for window in self.windows if (until := window.until(now)) is not None}
        changes = min((*ends.values(), *(window.begins.next_after(now) for window in self.windows)))
        if not ends:
            return changes, None
        last = max(ends.values())
        here, end = (self.windows[0].begins.local(each) for each in (now, last))
        sentence = f"quiet hours until {end:{_form(here, end)}}"
        return changes, Quiet(sentence, all(window.starts for window in ends))


def _form(now: datetime, end: datetime) -> str:
    """How an end is written, so that it means one time: a change of summer time makes a day longer, or shorter."""
    return "%H:%M" if end.replace(tzinfo=None) - now.replace(tzinfo=None) < _DAY else "%a %H:%M"
