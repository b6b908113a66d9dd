"""Timetable: when each job of the schedule runs. One APScheduler, in threads of its own, beside cycles.

Times of day are those of the host's clock, which may be set. APScheduler waits for as long as it took to the next time
when it last looked. So ``look`` is called now and then: what is overdue, since the clock was set forward, is done once,
and what would come too late, since it was set back, has its next time found anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from rmsplugin.cron import Cron
from rmsplugin.engine.ledger.rows import ScheduledRun
from rmsplugin.engine.schedule.job import ScheduledJob
from rmsplugin.engine.schedule.runs import Runs

log = logging.getLogger(__name__)

#: A clock that was set back by no more is corrected, and not set: what was done in these seconds is not done again.
_CORRECTED_S = 60.0

#: What was missed while no engine ran is done so long after the start: by then a cycle has looked at the cluster.
_FIRST_LOOK_S = 60.0

#: Whatever was missed is done once, however late that is.
DEFAULTS = {"coalesce": True, "misfire_grace_time": None, "max_instances": 1}


def background() -> Any:
    """A scheduler that does one job after the other in a thread of its own."""
    # Its own messages repeat what the ledger has of each run.
    logging.getLogger("apscheduler").setLevel(logging.WARNING)
    return BackgroundScheduler(timezone="UTC", executors={"default": ThreadPoolExecutor(1)}, job_defaults=DEFAULTS)


class Timetable:
    """The times of all jobs."""

    def __init__(
        self,
        jobs: Sequence[ScheduledJob],
        runs: Runs,
        last: Callable[[str], ScheduledRun | None],
        host_time: Callable[[], float],
        scheduler: Any = None,
    ) -> None:
        """Begin nothing yet.

        Args:
            jobs: all of them, also those that never run.
            runs: does them.
            last: the last run of a job, by its name; None: it has never run.
            host_time: the host's clock, in seconds since the epoch.
            scheduler: an APScheduler; None: ``background()``.
        """
        self.jobs = tuple(jobs)
        self._runs = runs
        self._last = last
        self._host_time = host_time
        self._scheduler = scheduler or background()

    def start(self) -> None:
        """Record what was interrupted; do what was missed while no engine ran, once; and go on."""
        self._runs.recover()
        for job in self.jobs:
            if job.cron is not None:
                first = job.cron.local(self._first(job, job.cron))
                self._scheduler.add_job(self._runs.do_job, job.cron, args=[job], id=job.name, next_run_time=first)
        self._scheduler.start()

    def _first(self, job: ScheduledJob, cron: Cron) -> float:
        """When a job runs first; soon if it was missed."""
        now, last = self._host_time(), self._last(job.name)
        if last is None or last.cron != job.expression or last.host_time > now + _CORRECTED_S:
            return cron.next_after(now)
        planned = cron.next_after(last.host_time)
        return planned if planned > now else now + _FIRST_LOOK_S

    def follow_host_clock(self) -> None:
        """See to it that nothing is late because the host's clock was set."""
        now, overdue = self._host_time(), False
        for job in self.jobs:
            scheduled = self._scheduler.get_job(job.name)
            if job.cron is None or scheduled is None or scheduled.next_run_time is None:
                continue
            planned, anew = scheduled.next_run_time.timestamp(), job.cron.next_after(now)
            if anew < planned and not self._is_done(job, anew, now):
                log.info("%s: its next time is %s, for the clock was set back", job.name, job.cron.local(anew))
                scheduled.modify(next_run_time=job.cron.local(anew))
            overdue = overdue or planned <= now
        if overdue:
            self._scheduler.wakeup()

    def _is_done(self, job: ScheduledJob, at: float, now: float) -> bool:
        """Whether that time has come already, before the clock was corrected."""
        last = self._last(job.name)
        return last is not None and at <= last.host_time <= now + _CORRECTED_S

    def next_run(self, job: ScheduledJob) -> float | None:
        """When a job runs next, by the host's clock; None if it never does."""
        scheduled = self._scheduler.get_job(job.name) if job.cron is not None else None
        if scheduled is None or scheduled.next_run_time is None:
            return None
        return float(scheduled.next_run_time.timestamp())

    def close(self) -> None:
        """Begin no more jobs, and wait for none."""
        self._runs.close()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
