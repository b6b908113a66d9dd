"""Settings of what is done at times of day."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from rmsplugin.settings.section import Section

# Every command, and the wrapper of every job, reads the settings: only a file that names times needs what reads them.


def _zone(text: str) -> str:
    from rmsplugin.cron import zone_of

    zone_of(text)
    return text


def _cron(text: str) -> str:
    from rmsplugin.cron import Cron, zone_of

    Cron.parse(text, zone_of("UTC"))
    return text


def _cron_or_never(text: str) -> str:
    return _cron(text) if text else text


Zone = Annotated[str, AfterValidator(_zone)]
Cron = Annotated[str, AfterValidator(_cron)]
#: Empty: never.
CronOrNever = Annotated[str, AfterValidator(_cron_or_never)]


class QuietHours(Section):
    """A window of quiet hours: no vjob that runs makes way or moves, unless its node has to be left.

    What users and operators ask for themselves is done as ever, and so is the end of a job.
    """

    begins: Cron = Field(description="cron expression of the times at which it begins")
    ends: Cron = Field(description="cron expression of the times at which it ends, within 7 days")
    starts: bool = Field(
        True, description="vjobs start, and are resumed, where there is room as it is; false: none is, either"
    )

    @model_validator(mode="after")
    def _is_a_window(self) -> QuietHours:
        if self.begins == self.ends:
            raise ValueError(f"begins and ends at the same times ({self.begins}): it would never end")
        return self


class Schedule(Section):
    """What is done at times of day. A cron expression has five fields: minute, hour, day, month, day of the week."""

    timezone: Zone = Field(
        "",
        description="name of the time zone of all times here, as in Europe/Prague; empty: that of the host. In cron "
        "expressions name days of the week (mon ... sun): as numbers they count from 0 for Monday",
    )
    quiet: tuple[QuietHours, ...] = Field((), description="windows of quiet hours; see [[schedule.quiet]]")
