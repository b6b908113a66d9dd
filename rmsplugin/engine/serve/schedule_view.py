"""Schedule view: what is done at times of day, with its next and its last run, as JSON to be shown. No secrets."""

from __future__ import annotations

from typing import Any

from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.decide.quiet_hours import Window
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import ScheduledRun
from rmsplugin.engine.schedule.job import ScheduledJob
from rmsplugin.engine.schedule.timetable import Timetable

View = dict[str, Any]


def schedule_views(
    ledger: Ledger, clock: Clock, timetable: Timetable | None, windows: tuple[Window, ...]
) -> list[View]:
    """The jobs of the schedule, then the windows of quiet hours. Times to come are of the host's clock."""
    now, last = clock.of_the_host(), ledger.schedule.last
    jobs = [_job(job, timetable.next_run(job), last(job.name)) for job in timetable.jobs] if timetable else []
    return [*jobs, *(_window(window, now) for window in windows)]


def _job(job: ScheduledJob, coming: float | None, last: ScheduledRun | None) -> View:
    return {
        "job": job.name,
        "what": job.what,
        "cron": job.expression,
        "state": str(last.state) if last else "waiting" if job.cron else "off",
        "next": coming,
        "last": last.began if last else None,
        "took_s": round(last.ended - last.began, 2) if last and last.ended else None,
        "failures": last.failures if last else 0,
        "result": (last.result if last else "") or job.off,
    }


def _window(window: Window, now: float) -> View:
    until = window.until(now)
    how = "no vjob that runs makes way or moves" if window.starts else "none does, and none starts"
    return {
        "job": "quiet-hours",
        "what": how,
        "cron": f"{window.begins.expression} - {window.ends.expression}",
        "state": "waiting" if until is None else "running",
        "next": window.begins.next_after(now),
        "last": None,
        "took_s": None,
        "failures": 0,
        "result": "" if until is None else f"until {window.ends.local(until):%a %H:%M}",
    }
