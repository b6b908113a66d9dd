"""Quiet hours: whether a window of the settings has begun, and until when. Times of day are of the host's clock."""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.cron import Cron, zone_of
from rmsplugin.proposing.quiet import Quiet
from rmsplugin.settings.schedule import Schedule

#: A window that began longer ago has ended.
_LONGEST_S = 7 * 86400.0
_DAY_S = 86400.0


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
        then = now - _LONGEST_S
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
        form = "%H:%M" if last - now < _DAY_S else "%a %H:%M"
        end = f"{self.windows[0].begins.local(last):{form}}"
        return changes, Quiet(f"quiet hours until {end}", all(window.starts for window in ends))
