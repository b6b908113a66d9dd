"""Set aside: saved states that were put aside. The ledger keeps each until somebody has resumed or dropped it."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rmsplugin.engine.ledger import records
from rmsplugin.engine.ledger.rows import SetAsideState, VJobRow, VMRow
from rmsplugin.engine.ledger.table import LedgerTable, insert
from rmsplugin.errors import NotFoundError


class SetAsideStates(LedgerTable):
    """The ledger's table of saved states put aside."""

    def open(self, vjob: VJobRow, vms: Sequence[VMRow], reason: str) -> SetAsideState:
        """Record that the saved states of a vjob are being put aside; a record that was left open is gone on with."""
        with self._write() as db:
            rows = self._rows("select * from asides where job_id = ? and not complete", [vjob.job_id])
            if rows:
                return records.read_aside(rows[0])
            row = {
                "job_id": vjob.job_id,
                "display_id": vjob.display_id,
                "user": vjob.user,
                "uid": vjob.uid,
                "time": self._clock(),
                "reason": reason,
                "complete": 0,
                "losses": vjob.losses,
                "private_key": vjob.private_key,
                "public_key": vjob.public_key,
                "vms": json.dumps([records.vm_record(vm) for vm in vms]),
            }
            return self.numbered(insert(db, "asides", row))

    def close(self, job_id: int) -> None:
        """Record that the restart that put states of the vjob aside has finished doing so."""
        with self._write() as db:
            db.execute("update asides set complete = 1 where job_id = ?", [job_id])

    def drop(self, number: int) -> None:
        """Forget these saved states; nothing happens if they are forgotten already."""
        with self._write() as db:
            db.execute("delete from asides where id = ?", [number])

    def numbered(self, number: int) -> SetAsideState:
        """The saved states with this number. Raises NotFoundError."""
        rows = self._rows("select * from asides where id = ?", [number])
        if not rows:
            raise NotFoundError(f"no saved states were put aside as number {number}; `rmsplugin states` lists them")
        return records.read_aside(rows[0])

    def of_vjob(self, job_id: int) -> list[SetAsideState]:
        """All that was put aside of one vjob, oldest first."""
        sql = "select * from asides where job_id = ? order by id"
        return [records.read_aside(row) for row in self._rows(sql, [job_id])]

    def after(self, number: int, limit: int, uid: int | None = None) -> list[SetAsideState]:
        """The first ``limit`` that were put aside after this number, oldest first: of this user, or of all."""
        sql = "select * from asides where id > ? and (? is null or uid = ?) order by id limit ?"
        return [records.read_aside(row) for row in self._rows(sql, [number, uid, uid, limit])]

    def all(self) -> list[SetAsideState]:
        """All saved states that were put aside, oldest first."""
        return [records.read_aside(row) for row in self._rows("select * from asides order by id")]
