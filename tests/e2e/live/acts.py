"""Acts of real engines: the journal that ``journal.check`` reads, made of ledgers and logs after the fact.

Real engines write no journal. Each writes what it begins into the ledger of its own epoch, and each writes into its
log when it leads; an engine of a group names the group. An action belongs to the epoch in whose ledger it was written
after that epoch began; its end may be in the ledger of the next one, which takes it up. The turn of an epoch ends with
the last action that it began, or with its last decision that was seen.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rmsplugin.engine.ledger.ledger_file import read_only
from rmsplugin.engine.ledger.shared_files import epoch_of, ledgers_in

_ROWS = "select id, vm, kind, source, destination, state, created, ended from actions"
_LEADS = r"^(\S+ \S+?),(\d+) \S+ \S+ {}this {} leads, with epoch (\d+) of the ensemble$"


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


@dataclass(frozen=True)
class Lead:
    """The begin of a turn, as the log of its host tells it; ``began``: by the clock."""

    epoch: int
    host: str
    began: float


def leads(logs: Mapping[str, str], of: str = "", who: str = "engine") -> list[Lead]:
    """All turns, in the order of time.

    Args:
        logs: by host.
        of: the group whose engines are meant; empty: of no group.
        who: ``engine`` or ``manager``.
    """
    found, said = [], _LEADS.format(f"group {re.escape(of)}: " if of else "", who)
    for host, log in logs.items():
        for moment, milli, epoch in re.findall(said, log, re.M):
            seconds = time.mktime(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))
            found.append(Lead(int(epoch), host, seconds + int(milli) / 1000))
    return sorted(found, key=lambda lead: lead.began)


def turns(logs: Mapping[str, str], of: str = "") -> dict[int, tuple[str, float]]:
    """By epoch: the host of its engine, and when its turn began. ``logs``: by host; ``of``: the group, if any."""
    return {lead.epoch: (lead.host, lead.began) for lead in leads(logs, of)}


def two_of_one(found: Iterable[Lead]) -> list[str]:
    """A sentence for each epoch that two had, and for each that came after a higher one."""
    said, highest = [], Lead(0, "", 0.0)
    for lead in found:
        if lead.epoch < highest.epoch or (lead.epoch == highest.epoch and lead.host != highest.host):
            said.append(f"epoch {lead.epoch} of {lead.host} comes after epoch {highest.epoch} of {highest.host}")
        highest = max(highest, lead, key=lambda each: each.epoch)
    return said


class Acts:
    """All actions that were seen in any ledger."""

    def __init__(self, of: str = "", hosts: Collection[str] = ()) -> None:
        """Those of all engines; or of the engines of the group ``of``, which has these hosts.

        A vjob that comes from another group brings its actions there along: they are not of this one.
        """
        self._of, self._hosts = of, frozenset(hosts)
        self._own: dict[tuple[int, float], int] = {}  # by number and time: the epoch
        self._rows: dict[tuple[int, float], Row] = {}
        self._decided: dict[int, float] = {}  # by epoch: when its engine decided last

    def decided(self, epoch: int, moment: float) -> None:
        """The engine of an epoch has decided then: its turn is not over before."""
        self._decided[epoch] = max(moment, self._decided.get(epoch, 0.0))

    def read(self, epoch: int, began: float, rows: Iterable[Row]) -> None:
        """Take in the ledger of an epoch; those of lower epochs come first."""
        for row in rows:
            if self._of and (row.source or row.destination) not in self._hosts:
                continue
            key = (row.id, row.created)
            if row.created >= began:
                self._own.setdefault(key, epoch)
            known = self._rows.get(key)
            if known is None or not known.ended:
                self._rows[key] = row

    def read_all(self, directory: Path, known: Mapping[int, tuple[str, float]]) -> None:
        """Read the ledgers in a directory that are of epochs whose turn is known."""
        for path in ledgers_in(directory):
            if (epoch := epoch_of(path)) in known:
                with contextlib.closing(read_only(path, busy_s=20)) as connection:
                    rows = [Row(*row) for row in connection.execute(_ROWS)]
                self.read(epoch, known[epoch][1], rows)

    def lines(self, known: Mapping[int, tuple[str, float]]) -> Iterator[str]:
        """The lines of the journal: turns, and acts in them."""
        last = {epoch: max(began, self._decided.get(epoch, 0.0)) for epoch, (_, began) in known.items()}
        acts = []
        for key, row in self._rows.items():
            epoch = self._own.get(key)
            if epoch is None or epoch not in known:
                continue
            last[epoch] = max(last[epoch], row.created)
            acts.append(self._act(row, epoch, known[epoch][0]))
        for epoch, (host, began) in known.items():
            # A turn holds the moment of its last act.
            lead = {"kind": "lead", "who": host, "epoch": epoch, "begin": began, "end": last[epoch] + 1e-3}
            yield json.dumps(lead | self._group())
        for act in sorted(acts, key=lambda each: float(str(each["asked"]))):
            yield json.dumps(act)

    def _act(self, row: Row, epoch: int, host: str) -> dict[str, object]:
        found = re.fullmatch(r"vjob(\d+)-\d+", row.vm)
        nodes = {row.source, row.destination} - {""}
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
            # A copy to a node of another group is an act of its source.
            "nodes": sorted(nodes & self._hosts if self._of else nodes),
        } | self._group()

    def _group(self) -> dict[str, object]:
        return {"of": self._of} if self._of else {}


def fates(job: int, submitted: float, starts: int, ended: float) -> Iterator[str]:
    """The lines of one vjob: how often its script began, and whether it ended."""
    yield json.dumps({"kind": "vjob", "vjob": job, "time": submitted, "is": "submitted"})
    for _ in range(starts):
        yield json.dumps({"kind": "script", "vjob": job, "time": submitted, "is": "begins"})
    if ended:
        yield json.dumps({"kind": "script", "vjob": job, "time": ended, "is": "ends"})
        yield json.dumps({"kind": "vjob", "vjob": job, "time": ended, "is": "ended"})
