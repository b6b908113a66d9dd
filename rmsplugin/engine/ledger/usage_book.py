"""Usage book: the usage of the processes of vjobs in their VMs, as last seen. A part of the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from rmsplugin.adapters.guests.used import COLUMNS, Used
from rmsplugin.engine.ledger.table import LedgerTable


@dataclass(frozen=True, slots=True)
class VMUsage:
    """One VM of a vjob, by its number, and its usage up to a time, in seconds since the epoch."""

    idx: int
    time: float
    used: Used


class UsageBook(LedgerTable):
    """The ledger's table of usage."""

    def record(self, job_id: int, idx: int, used: Used) -> None:
        """Replace the known usage of a VM by its usage up to now."""
        row = {"job_id": job_id, "idx": idx, "time": self._clock(), **asdict(used)}
        marks = ",".join("?" * len(row))
        with self._write() as db:
            db.execute(f"insert or replace into usage ({','.join(row)}) values ({marks})", list(row.values()))

    def of_vjob(self, job_id: int) -> list[VMUsage]:
        """The usage of each VM of the vjob that was ever asked, by number."""
        rows = self._rows("select * from usage where job_id = ? order by idx", [job_id])
        return [VMUsage(row["idx"], row["time"], Used(**{name: row[name] for name in COLUMNS})) for row in rows]

    def forget(self, job_ids: Iterable[int]) -> None:
        """Forget the usage of these vjobs, which begin anew."""
        with self._write() as db:
            for job_id in job_ids:
                db.execute("delete from usage where job_id = ?", [job_id])
