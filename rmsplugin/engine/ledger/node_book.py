"""Node book: nodes that are gone, VMs and files left behind, and failures of fencing; kept in the ledger.

A node is *gone* when somebody who can know said so: its VMs do not exist any more, whatever it was doing. A node that
is gone is asked nothing until somebody says that it is back. A VM or file that should have been ended or removed there
is *left behind*: that is done when the node answers again, and until then the node takes no VMs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlite_utils

from rmsplugin.engine.ledger.steady import Steady
from rmsplugin.engine.ledger.table import LedgerTable, Rows
from rmsplugin.errors import NotFoundError, RefusedError


class Left(enum.StrEnum):
    """The things of a VM that may be left on a node."""

    VM = "vm"
    FILES = "files"  # configuration, disk
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Gone:
    """A node that is gone. ``since`` is in seconds since the epoch."""

    node: str
    since: float
    by: str

    @property
    def sentence(self) -> str:
        """For a person."""
        when = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{self.node} is gone since {when} ({self.by}); when it is back: rmsplugin node back {self.node}"


@dataclass(frozen=True, slots=True)
class FenceFailures:
    """How often in a row a node could not be fenced, the last time, and the last reason."""

    failures: int
    last: float
    error: str


class NodeBook(LedgerTable):
    """The ledger's tables of nodes. Several threads may call."""

    def __init__(
        self,
        write: Callable[[], AbstractContextManager[sqlite_utils.Database]],
        rows: Rows,
        clock: Callable[[], float],
        gone: Steady[Mapping[str, Gone]],
    ) -> None:
        """As of each part of the ledger; ``gone`` keeps which nodes are gone."""
        super().__init__(write, rows, clock)
        self._gone = gone

    def gone(self) -> Mapping[str, Gone]:
        """The nodes that are gone, by name; nobody changes it."""
        return self._gone.get(self._read_gone)

    def _read_gone(self) -> Mapping[str, Gone]:
        rows = self._rows("select name, gone_at, gone_by from nodes where gone_at > 0 order by name")
        return {row["name"]: Gone(row["name"], row["gone_at"], row["gone_by"]) for row in rows}

    def set_gone(self, node: str, by: str) -> None:
        """Record that the node is gone, as ``by`` says. Raises RefusedError if it is gone already."""
        with self._write() as db:
            if known := self.gone().get(node):
                raise RefusedError(known.sentence)
            self._gone.changes()
            db.execute(
                "insert into nodes (name, gone_at, gone_by) values (?,?,?) on conflict (name) do update set "
                "gone_at = excluded.gone_at, gone_by = excluded.gone_by, fence_failures = 0, fence_error = ''",
                [node, self._clock(), by],
            )

    def set_back(self, node: str) -> None:
        """Record that the node is back. Raises NotFoundError if it is not gone."""
        with self._write() as db:
            if node not in self.gone():
                raise NotFoundError(f"{node} is not gone; `rmsplugin nodes` lists those that are")
            self._gone.changes()
            db.execute("update nodes set gone_at = 0, gone_by = '' where name = ?", [node])

    # -- what was left behind ------------------------------------------------------------------------------------

    def leave(self, node: str, vm: str, what: Left) -> None:
        """Remember to end or remove ``what`` of the VM when the node answers again."""
        with self._write() as db:
            db.execute("insert or ignore into left_behind (node, vm, what) values (?,?,?)", [node, vm, str(what)])

    def left(self, node: str, vm: str) -> bool:
        """Whether the VM was left behind there."""
        sql = "select 1 from left_behind where node = ? and vm = ? and what = 'vm'"
        return bool(self._rows(sql, [node, vm]))

    def left_behind(self) -> Mapping[tuple[str, str], frozenset[Left]]:
        """All that was left behind, by node and VM."""
        found: dict[tuple[str, str], set[Left]] = {}
        for row in self._rows("select node, vm, what from left_behind order by node, vm"):
            found.setdefault((row["node"], row["vm"]), set()).add(Left(row["what"]))
        return {key: frozenset(what) for key, what in found.items()}

    def cleared(self, node: str, vm: str) -> None:
        """Record that nothing of the VM is left behind there any more."""
        with self._write() as db:
            db.execute("delete from left_behind where node = ? and vm = ?", [node, vm])

    # -- fencing -------------------------------------------------------------------------------------------------

    def fence_failed(self, node: str, error: str) -> None:
        """Count a failure to fence the node."""
        with self._write() as db:
            db.execute(
                "insert into nodes (name, fence_failures, fence_last, fence_error) values (?,1,?,?) "
                "on conflict (name) do update set fence_failures = fence_failures + 1, "
                "fence_last = excluded.fence_last, fence_error = excluded.fence_error",
                [node, self._clock(), error],
            )

    def fence_failures(self) -> Mapping[str, FenceFailures]:
        """The nodes whose last fencing failed, by name."""
        sql = "select name, fence_failures, fence_last, fence_error from nodes where fence_failures > 0"
        return {
            row["name"]: FenceFailures(row["fence_failures"], row["fence_last"], row["fence_error"])
            for row in self._rows(sql)
        }
