"""Handed: all rows of a vjob, as they go out of one group's ledger and into another's, or back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import sqlite_utils

from rmsplugin.engine.ledger.table import LedgerTable, Rows, insert
from rmsplugin.errors import LedgerError

#: The tables whose rows of a vjob have its job id. Rows are put in in this order, and go out in the other one.
_BY_JOB = ("vjobs", "vms", "operations", "vjob_failures", "usage")
#: The tables whose rows have numbers that each ledger gives itself.
_NUMBERED = ("operations", "actions")

#: By table, the rows.
Content = Mapping[str, list[dict[str, Any]]]


class HandedVJobs(LedgerTable):
    """Takes vjobs out of the ledger, and puts them in. Several threads may call."""

    def __init__(
        self,
        write: Callable[[], AbstractContextManager[sqlite_utils.Database]],
        rows: Rows,
        clock: Callable[[], float],
        changed: Callable[[int], None],
    ) -> None:
        """``changed``: told the job id of each vjob that the open transaction takes out or puts in."""
        super().__init__(write, rows, clock)
        self._changed = changed

    def take_out(self, job_id: int) -> Content:
        """Remove a vjob and all that belongs to it. Returns its rows; the caller has begun a transaction."""
        found: dict[str, list[dict[str, Any]]] = {
            table: self._rows(f"select * from {table} where job_id = ?", [job_id]) for table in _BY_JOB
        }
        of_vjob = "operation_id in (select id from operations where job_id = ?)"
        of_vms = "vm in (select name from vms where job_id = ?)"
        found["actions"] = self._rows(f"select * from actions where {of_vjob} order by id", [job_id])
        found["samples"] = self._rows(f"select * from samples where {of_vms}", [job_id])
        with self._write() as db:
            db.execute(f"delete from actions where {of_vjob}", [job_id])
            db.execute(f"delete from samples where {of_vms}", [job_id])
            for table in reversed(_BY_JOB):
                db.execute(f"delete from {table} where job_id = ?", [job_id])
            self._changed(job_id)
        return found

    def put_in(self, content: Content) -> None:
        """Add a vjob that another ledger had; the caller has begun a transaction.

        Raises:
            LedgerError: a newer release has packed it; or the ledger has the vjob.
        """
        self._require_known(content)
        numbers: dict[int, int] = {}
        (vjob,) = content["vjobs"]
        with self._write() as db:
            job_id = vjob["job_id"]
            if self._rows("select 1 from vjobs where job_id = ? and state != 'terminated'", [job_id]):
                raise LedgerError(f"vjob {vjob['display_id']} is in the ledger already")
            # Its id may have been that of a job that has ended here long ago.
            self.take_out(job_id)
            for table in (*_BY_JOB, "actions", "samples"):
                for row in content[table]:
                    known = dict(row)
                    number = known.pop("id", 0) if table in _NUMBERED else 0
                    if table == "actions":
                        known["operation_id"] = numbers[known["operation_id"]]
                    made = insert(db, table, known)
                    if table == "operations":
                        numbers[number] = made
            self._changed(job_id)

    def _require_known(self, content: Content) -> None:
        for table, rows in content.items():
            known = {row["name"] for row in self._rows("select name from pragma_table_info(?)", [table])}
            if unknown := _columns(rows) - known:
                raise LedgerError(
                    f"a newer release of rmsplugin has packed the vjob: {table} has {', '.join(sorted(unknown))}"
                )


def _columns(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {name for row in rows for name in row}
