"""Settings of the tasks at times of day."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from rmsplugin.settings.section import Section

# Every command, and the wrapper of every job, reads the settings: only a file with times imports the module for them.


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


_Address = Annotated[str, Field(pattern=r"^[^@\s,;<>()]+@[^@\s,;<>()]+$")]
_Server = Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$")]


class QuietHours(Section):
    """A window of quiet hours: no vjob that runs makes way or moves, unless its node has to be left.

    Requests of users and operators are carried out as always, and so is the end of a job.
    """

    begins: Cron = Field(description="cron expression of the times at which it begins")
    ends: Cron = Field(description="cron expression of the times at which it ends, within 7 days")
    starts: bool = Field(
        True,
        description="vjobs start, and are resumed, where there is room without moving any; false: none starts "
        "or is resumed",
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
    ledger_backup: CronOrNever = Field(
        "15 2 * * *",
        description="the ledger is copied, and the copy checked; empty, here and for all that follow: never. "
        "By default each night: a ledger is lost with its disk, and copies cost little",
    )
    backup_dir: Path | None = Field(
        None,
        description="directory of the copies, which hold private keys; none: `backups` in engine.state_dir, or in "
        "cluster.shared_dir. Copies on another disk outlive that of the ledger. The engine's unit has to allow writing "
        "there (ReadWritePaths=)",
    )
    backup_keep: int = Field(7, ge=1, le=10000, description="the number of copies that are kept")
    ledger_retention: CronOrNever = Field(
        "45 2 * * *",
        description="what ended more than engine.keep_days ago is forgotten, the ledger's file made smaller where much "
        "of it is empty (VACUUM), and the ledger checked. Without it the ledger grows for ever",
    )
    report: CronOrNever = Field(
        "0 6 * * *", description="the summary of yesterday is mailed to report_to; by default it names nobody"
    )
    report_to: tuple[_Address, ...] = Field((), description="addresses to which reports are mailed")
    mail_server: _Server = Field(
        "localhost", description="HOST or HOST:PORT of the server that takes mail from the engine's host by SMTP"
    )
    mail_from: _Address | Literal[""] = Field(
        "", description="address from which mail comes; empty: rmsplugin at the engine's host"
    )
    calibration: CronOrNever = Field(
        "30 3 * * sun",
        description="the durations of actions are compared with what was measured, and others proposed in an event "
        "where they miss; nothing is changed",
    )
    sweep: CronOrNever = Field(
        "0 4 * * *",
        description="saved states of vjobs that ended, and old checkpoints, are removed from the nodes; only "
        "those of which the ledger knows that nobody needs them",
    )
    gate: CronOrNever = Field(
        "30 4 * * *",
        description="the reservation of the gate is renewed when it ends within half a year. A cycle makes it at once "
        "where it is missing, or ends within 120 days",
    )
    quiet: tuple[QuietHours, ...] = Field((), description="windows of quiet hours; see [[schedule.quiet]]")
