"""Schedule book: the part of the ledger with the runs of the jobs of the schedule, and how each ended."""

from __future__ import annotations

from typing import Any

from rmsplugin.engine.ledger.rows import RunState, ScheduledRun
from rmsplugin.engine.ledger.table import LedgerTable, insert, update


class ScheduleBook(LedgerTable):
    """The ledger's table of scheduled runs."""

    def begin(self, job: str, cron: str, host_time: float) -> int:
        """Record that a run begins, before it does anything. Returns the run's id.

        Args:
            job: name of the job.
            cron: the expression by which it runs.
            host_time: of the host's clock now, in seconds since the epoch.
        """
        with self._write() as db:
            before = self.last(job)
            row = {
                "job": job,
                "cron": cron,
                "host_time": host_time,
                "began": self._clock(),
                "ended": 0.0,
                "state": str(RunState.RUNNING),
                "result": "",
                "failures": before.failures if before else 0,
            }
            return insert(db, "scheduled_runs", row)

    def end(self, number: int, state: RunState, result: str) -> None:
        """Record how a run ended, in a sentence."""
        with self._write() as db:
            rows = self._rows("select failures from scheduled_runs where id = ?", [number])
            failures = rows[0]["failures"] if rows else 0
            failures = 0 if state is RunState.DONE else failures + (state is RunState.FAILED)
            changes = {"state": str(state), "result": result, "ended": self._clock(), "failures": failures}
            update(db, "scheduled_runs", {"id": number}, changes)

    def running(self) -> list[ScheduledRun]:
        """The runs that have not ended, oldest first."""
        return [_run_of(row) for row in self._rows("select * from scheduled_runs where state = 'running' order by id")]

    def last(self, job: str) -> ScheduledRun | None:
        """The last run of a job; None if it has never run."""
        rows = self._rows("select * from scheduled_runs where job = ? order by id desc limit 1", [job])
        return _run_of(rows[0]) if rows else None

    def forget_before(self, before: float) -> None:
        """Forget runs that began before this time, but for the last of each job."""
        kept = "select max(id) from scheduled_runs group by job"
        with self._write() as db:
            db.execute(f"delete from scheduled_runs where began < ? and id not in ({kept})", [before])


def _run_of(row: dict[str, Any]) -> ScheduledRun:
    return ScheduledRun(**{**row, "state": RunState(row["state"])})
