"""Room reports: the reports of the hooks of rooms; kept in the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from rmsplugin.engine.ledger.rows import RoomReport
from rmsplugin.engine.ledger.table import LedgerTable, insert


class RoomReports(LedgerTable):
    """The ledger's table of room reports."""

    def add(self, report: RoomReport) -> None:
        """Remember the report of a hook of a room."""
        row = {**asdict(report), "ended": json.dumps(list(report.ended))}
        with self._write() as db:
            insert(db, "room_reports", row)

    def of(self, rooms: Iterable[int]) -> list[RoomReport]:
        """The reports of the hooks of these rooms (job ids), oldest first."""
        wanted = set(rooms)
        marks = ",".join("?" * len(wanted))
        sql = f"select time, room, node, hook, problem, ended from room_reports where room in ({marks}) order by id"
        return [RoomReport(**{**row, "ended": tuple(json.loads(row["ended"]))}) for row in self._rows(sql, wanted)]

    def clean_epilog(self, node: str) -> float:
        """When the epilog of a room last reported that no VM of the engine is left on the node; 0 if none did."""
        sql = "select max(time) as time from room_reports where node = ? and hook = 'epilog' and problem = ''"
        return float(self._rows(sql, [node])[0]["time"] or 0.0)
