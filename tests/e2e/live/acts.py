"""Acts of real engines: the journal that ``journal.check`` reads, made of ledgers and logs after the fact.

Real engines write no journal. Each writes what it begins into the ledger of its own epoch, and each writes into its
log when it leads. An action belongs to the epoch in whose ledger it was written after that epoch began; its end may be
in the ledger of the next one, which takes it up. The turn of an epoch ends with the last action that it began.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_LEADS = re.compile(r"^(\S+ \S+?),(\d+) .*this engine leads, with epoch (\d+) of the ensemble$", re.M)


@dataclass(frozen=True)
class Row:
    """An action as a ledger has it; times are seconds of the clock, 0: not yet."""

    id: int
    vm: str
    kind: str
    source: str
    destination: str
    state: str
    created: float
    ended: float


def turns(logs: Mapping[str, str]) -> dict[int, tuple[str, float]]:
    """By epoch: the host of its engine, and when its turn began. ``logs``: by host."""
    found = {}
    for host, log in logs.items():
        for moment, milli, epoch in _LEADS.findall(log):
            seconds = time.mktime(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))
            found[int(epoch)] = (host, seconds + int(milli) / 1000)
    return found


class Acts:
    """All actions that were seen in any ledger."""

    def __init__(self) -> None:
        self._own: dict[tuple[int, float], int] = {}  # by number and time: the epoch
        self._rows: dict[tuple[int, float], Row] = {}
        self.late: list[str] = []

    def read(self, epoch: int, began: float, rows: Iterable[Row]) -> None:
        """Take in the ledger of an epoch; those of lower epochs come first."""
        for row in rows:
            key = (row.id, row.created)
            if row.created >= began:
                self._own.setdefault(key, epoch)
            known = self._rows.get(key)
            if known is None or not known.ended:
                self._rows[key] = row

    def lines(self, known: Mapping[int, tuple[str, float]]) -> Iterator[str]:
        """The lines of the journal: turns, and acts in them."""
        last: dict[int, float] = {epoch: began for epoch, (_, began) in known.items()}
        acts = []
        for key, row in self._rows.items():
            epoch = self._own.get(key)
            if epoch is None or epoch not in known:
                continue
            last[epoch] = max(last[epoch], row.created)
            acts.append(_act(row, epoch, known[epoch][0]))
        for epoch, (host, began) in known.items():
            # A turn holds the moment of its last act.
            yield json.dumps({"kind": "lead", "who": host, "epoch": epoch, "begin": began, "end": last[epoch] + 1e-3})
        for act in sorted(acts, key=lambda each: float(str(each["asked"]))):
            yield json.dumps(act)


def _act(row: Row, epoch: int, host: str) -> dict[str, object]:
    found = re.fullmatch(r"vjob(\d+)-\d+", row.vm)
    return {
        "kind": "act",
        "who": host,
        "epoch": epoch,
        "asked": row.created,
        "begin": row.created,
        "end": row.ended or None,
        "outcome": {"done": "done", "failed": "failed"}.get(row.state, "open"),
        "where": "hypervisor",
        "what": row.kind,
        "vm": row.vm,
        "vjob": int(found[1]) if found else None,
        "nodes": sorted({row.source, row.destination} - {""}),
    }


def fates(job: int, submitted: float, starts: int, ended: float) -> Iterator[str]:
    """The lines of one vjob: how often its script began, and whether it ended."""
    yield json.dumps({"kind": "vjob", "vjob": job, "time": submitted, "is": "submitted"})
    for _ in range(starts):
        yield json.dumps({"kind": "script", "vjob": job, "time": submitted, "is": "begins"})
    if ended:
        yield json.dumps({"kind": "script", "vjob": job, "time": ended, "is": "ends"})
        yield json.dumps({"kind": "vjob", "vjob": job, "time": ended, "is": "ended"})
