"""Runs: does a job of the schedule, and records that it began, and how it ended. No fault of a job leaves here."""

from __future__ import annotations

import logging

from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import RunState, ScheduledRun
from rmsplugin.engine.schedule.job import ScheduledJob
from rmsplugin.errors import RmspluginError

log = logging.getLogger(__name__)

#: From its second failure in a row on a job rests for so long, twice as long after each further one, ...
_REST_S = 120.0
#: ... and for so long at most: what runs once a day is tried again each day.
_REST_MAX_S = 6 * 3600.0
_ENDED = "the engine ended meanwhile"


class Runs:
    """The runs of all jobs. One job is done at a time, in a thread of the scheduler."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._closed = False

    def recover(self) -> None:
        """Record that the runs that a former engine had begun were interrupted."""
        for run in self._ledger.schedule.running():
            self._end(run.id, run.job, RunState.INTERRUPTED, _ENDED)

    def do_job(self, job: ScheduledJob) -> None:
        """Do the job, unless it rests after failures."""
        try:
            if not self._closed and self.rests_until(job.name) <= self._clock.now():
                self._record_run(job)
        except RmspluginError as error:  # the ledger cannot be used now
            log.warning("%s is not done: %s", job.name, error)

    def rests_until(self, name: str) -> float:
        """Until when a job that has failed several times in a row is not tried again; 0 if it does not rest."""
        last = self._ledger.schedule.last(name)
        return _rests_until(last) if last else 0.0

    def close(self) -> None:
        """Begin no more runs, and record that the one under way is interrupted."""
        self._closed = True
        try:
            self.recover()
        except RmspluginError as error:  # the next engine does so, too
            log.warning("what the schedule was doing is not recorded: %s", error)

    def _record_run(self, job: ScheduledJob) -> None:
        number = self._ledger.schedule.begin(job.name, job.expression, self._clock.of_the_host())
        try:
            state, result = RunState.DONE, job.act()
        except RmspluginError as error:
            state, result = RunState.FAILED, str(error)
        except Exception as bug:
            log.exception("%s failed", job.name)
            state, result = RunState.FAILED, f"internal error: {bug!r}"
        if not self._closed:
            self._end(number, job.name, state, " ".join(result.split()))

    def _end(self, number: int, name: str, state: RunState, result: str) -> None:
        with self._ledger.transaction():
            self._ledger.schedule.end(number, state, result)
            if state is not RunState.DONE:
                self._ledger.event(f"schedule-{state}", f"{name}: {result}")


def _rests_until(run: ScheduledRun) -> float:
    if run.failures < 2:
        return 0.0
    return run.ended + min(_REST_MAX_S, _REST_S * 2.0 ** min(run.failures - 2, 30))
