"""The times of the schedule, by a real APScheduler and a clock that is handed in: none is lost, none are a burst."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

import apscheduler.schedulers.base
import pytest
from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.base import BaseScheduler
from fresh_ledger import laid_down

from rmsplugin.cron import Cron, zone_of
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.context.steady_clock import SteadyClock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import RunState
from rmsplugin.engine.schedule.job import ScheduledJob
from rmsplugin.engine.schedule.runs import Runs
from rmsplugin.engine.schedule.timetable import DEFAULTS, Timetable
from rmsplugin.errors import LedgerUnavailableError, OperationFailedError

HOUR_S, DAY_S = 3600.0, 86400.0
STEP_S = 60.0


class Driven(BaseScheduler):
    """APScheduler without a thread: the test has it look at the times when its thread would."""

    due: float | None = None

    def wakeup(self) -> None:
        self.due = 0.0

    def shutdown(self, wait: bool = True) -> None:
        super().shutdown(wait)

    def drive(self, passed: float) -> None:
        """Have it look if so many seconds of real time, at which it wanted to, have passed."""
        if self.due is not None and self.due <= passed:
            wait_s = self._process_jobs()
            self.due = None if wait_s is None else passed + wait_s


class Host:
    """A host whose clock may be set, with an engine on it."""

    def __init__(self, path: Path, begin: str, monkeypatch: pytest.MonkeyPatch, zone: str = "UTC") -> None:
        self.passed = 0.0  # seconds of real time
        self.set_by = 0.0
        self._begin = datetime.fromisoformat(begin).replace(tzinfo=UTC).timestamp()
        self._path, self._zone = path, zone_of(zone)
        self.ran: list[float] = []  # seconds of real time
        self.fails = False
        monkeypatch.setattr(apscheduler.schedulers.base, "datetime", self._datetime())

    def _datetime(self) -> type[datetime]:
        host = self

        class OfTheHost(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> OfTheHost:
                return cls.fromtimestamp(host.time(), tz)

        return OfTheHost

    def time(self) -> float:
        return self._begin + self.passed + self.set_by

    def start(self, expression: str, act: Callable[[], str] | None = None) -> None:
        """Start an engine on the ledger, which may be another engine's."""
        steady = SteadyClock(wall=self.time, monotonic=lambda: self.passed)
        self.ledger = Ledger(laid_down(self._path), clock=steady.now)
        steady.not_before(self.ledger.newest_time())
        clock = Clock(now=steady.now, ahead_s=steady.ahead_s)
        self.scheduler = Driven(timezone="UTC", executors={"default": DebugExecutor()}, job_defaults=DEFAULTS)
        self.job = ScheduledJob("job", "does it", expression, act or self._run, cron=Cron.parse(expression, self._zone))
        self.runs = Runs(self.ledger, clock)
        last = self.ledger.schedule.last
        self.timetable = Timetable([self.job], self.runs, last, clock.of_the_host, self.scheduler)
        self.timetable.start()

    def _run(self) -> str:
        self.ran.append(self.passed)
        if self.fails:
            raise OperationFailedError("the disk is full")
        return "done"

    def kill(self) -> None:
        self.ledger.close()

    def live(self, seconds: float) -> None:
        """Time passes; the engine looks at the clock as it does."""
        end = self.passed + seconds
        while self.passed < end:
            self.passed += STEP_S
            self.scheduler.drive(self.passed)
            self.timetable.follow_host_clock()
            self.scheduler.drive(self.passed)

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.ran, self.ran[1:], strict=False)]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "ledger.sqlite", "2026-01-10T12:30", monkeypatch)


def test_a_job_runs_at_its_times(host: Host) -> None:
    host.start("0 * * * *")
    host.live(3 * HOUR_S)
    assert host.ran == [1800.0, 1800.0 + HOUR_S, 1800.0 + 2 * HOUR_S]
    last = host.ledger.schedule.last("job")
    assert last is not None and (last.state, last.result, last.failures) == (RunState.DONE, "done", 0)
    assert host.timetable.next_run(host.job) == host.time() + 1800.0


def fires(host: Host, since: float, until: float) -> int:
    """How many times of the job are after one time of the host's clock, and not after the other."""
    cron, number = host.job.cron, 0
    assert cron is not None
    while (since := cron.next_after(since)) <= until:
        number += 1
    return number


JUMPS = [6 * HOUR_S, 6.4 * HOUR_S, 600.0, 400 * DAY_S, -6 * HOUR_S, -6.4 * HOUR_S, -600.0, -DAY_S]


@pytest.mark.parametrize("jump_s", JUMPS)
@pytest.mark.parametrize("expression", ["0 * * * *", "*/20 * * * *", "0 2 * * *", "30 19 * * sun"])
def test_a_clock_that_is_set_loses_no_run_and_bursts_none(host: Host, jump_s: float, expression: str) -> None:
    host.start(expression)
    host.live(1.3 * DAY_S)
    set_at, before = host.time(), len(host.ran)
    host.set_by = jump_s
    missed = fires(host, set_at, host.time()) > 0
    expected = missed + fires(host, host.time(), host.time() + 1.7 * DAY_S)
    host.live(STEP_S)
    assert len(host.ran) - before == missed, "what was missed is done at once, and once"
    host.live(1.7 * DAY_S - STEP_S)
    assert len(host.ran) - before == expected


def test_a_clock_that_is_corrected_by_seconds_repeats_nothing(host: Host) -> None:
    host.start("0 * * * *")
    host.live(1800.0)
    assert len(host.ran) == 1
    host.set_by = -20.0
    host.timetable.follow_host_clock()  # at 12:59:40 again
    host.live(1000.0)
    assert len(host.ran) == 1
    host.live(HOUR_S)
    assert len(host.ran) == 2


@pytest.mark.parametrize(("day", "hours"), [("2026-03-27T12:00", 23), ("2026-10-23T12:00", 25)])
def test_summer_time_loses_no_run_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: str, hours: int
) -> None:
    for expression in ("30 2 * * *", "30 4 * * *"):
        host = Host(tmp_path / f"{expression[3]}.sqlite", day, monkeypatch, "Europe/Prague")
        host.start(expression)
        host.live(4 * DAY_S)
        assert len(host.ran) == 4
        assert {round(gap / HOUR_S) for gap in host.gaps} == {24, hours}


def test_what_was_missed_while_no_engine_ran_is_done_once(host: Host) -> None:
    host.start("0 * * * *")
    host.live(2 * HOUR_S)
    host.kill()
    host.passed += 5.25 * HOUR_S
    host.start("0 * * * *")
    host.live(600.0)
    assert len(host.ran) == 3 and host.ran[-1] == pytest.approx(7.25 * HOUR_S, abs=2 * STEP_S)
    host.live(HOUR_S)
    assert len(host.ran) == 4


def test_a_job_that_never_ran_waits_for_its_time_and_one_with_other_times_for_those(host: Host) -> None:
    host.start("0 12 * * *")
    host.live(600.0)
    assert host.ran == []
    host.live(DAY_S)
    host.kill()
    host.start("0 11 * * *")
    host.live(HOUR_S)
    assert len(host.ran) == 1


def test_a_run_that_was_killed_is_seen_as_interrupted_and_tried_again_at_its_time(host: Host) -> None:
    def killed() -> str:
        raise KeyboardInterrupt

    host.start("0 * * * *", killed)
    host.live(1800.0)
    killed_run = host.ledger.schedule.last("job")
    assert killed_run is not None and killed_run.state is RunState.RUNNING
    host.kill()
    host.passed += 60.0
    host.start("0 * * * *")
    last = host.ledger.schedule.last("job")
    assert last is not None and (last.id, last.state) == (killed_run.id, RunState.INTERRUPTED)
    assert [event.kind for event in host.ledger.events()] == ["schedule-interrupted"]
    host.live(1800.0)
    assert host.ran == []
    host.live(HOUR_S)
    assert len(host.ran) == 1


def test_a_run_that_fails_is_told_and_tried_again_later_and_later(host: Host) -> None:
    host.fails = True
    host.start("* * * * *")
    host.live(DAY_S)
    assert host.gaps[0] == 60.0, "at its next time"
    assert host.gaps == sorted(host.gaps) and host.gaps[-1] <= 6 * HOUR_S + 60.0
    assert len(host.ran) < 20
    told = [event.message for event in host.ledger.events() if event.kind == "schedule-failed"]
    assert told == ["job: the disk is full"] * len(host.ran)
    host.fails = False
    host.live(6 * HOUR_S + 60.0)
    last = host.ledger.schedule.last("job")
    assert last is not None and (last.state, last.failures) == (RunState.DONE, 0)


def test_what_fails_once_a_day_is_tried_each_day(host: Host) -> None:
    host.fails = True
    host.start("0 2 * * *")
    host.live(5 * DAY_S)
    assert host.gaps == [DAY_S] * 4


def test_a_fault_of_a_job_or_of_the_ledger_leaves_the_schedule_alive(host: Host) -> None:
    def faulty() -> str:
        raise ZeroDivisionError("by nothing")

    host.start("0 * * * *", faulty)
    host.live(HOUR_S)
    last = host.ledger.schedule.last("job")
    assert last is not None and last.result == "internal error: ZeroDivisionError('by nothing')"


def test_a_ledger_that_cannot_be_used_now_stops_one_run_and_not_the_schedule(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any) -> int:
        raise LedgerUnavailableError("another process has it locked")

    host.start("0 * * * *")
    with monkeypatch.context() as patch:
        patch.setattr(host.ledger.schedule, "begin", locked)
        host.live(HOUR_S)
        assert host.ran == []
    host.live(HOUR_S)
    assert len(host.ran) == 1


def test_after_the_end_nothing_begins_and_what_is_under_way_is_interrupted(host: Host) -> None:
    seen: list[Any] = []

    def ends() -> str:
        host.runs.close()
        seen.append(host.ledger.schedule.last("job"))
        return "too late"

    host.start("0 * * * *", ends)
    host.live(HOUR_S)
    assert [run.state for run in seen] == [RunState.INTERRUPTED]
    last = host.ledger.schedule.last("job")
    assert last is not None and last.state is RunState.INTERRUPTED
    host.timetable.close()
    host.runs.do_job(host.job)
    assert host.ledger.schedule.last("job") == last


def test_old_runs_are_forgotten_but_for_the_last(host: Host) -> None:
    host.start("0 * * * *")
    host.live(5 * HOUR_S)
    last = host.ledger.schedule.last("job")
    host.ledger.prune(host.time() + DAY_S)
    assert host.ledger.schedule.last("job") == last
    assert host.ledger._rows("select count(*) as number from scheduled_runs") == [{"number": 1}]
