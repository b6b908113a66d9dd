"""History: how long the operations of a ledger took, read from its file, whether or not an engine runs."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmsplugin import __version__
from rmsplugin.calibration.samples import MeasuredAction, MeasuredOperation
from rmsplugin.engine.ledger.ledger_file import read_only, schema_steps, with_newest_schema
from rmsplugin.errors import LedgerError
from rmsplugin.model.vjob import Geometry
from rmsplugin.model.vm_names import parse_vm_name
from rmsplugin.presence import is_file

_OPERATIONS = "select id, kind, created, ended from operations where state = 'done' and created >= ? order by id"
_ACTIONS = """
    select operation_id, vm, actions.kind, source, destination, actions.state, actions.created, actions.ended, geometry,
        actions.memory_mib
    from actions join operations on operations.id = operation_id join vjobs using (job_id)
    where operations.created >= ? and actions.ended > 0 order by actions.id"""


@dataclass(frozen=True, slots=True)
class History:
    """The actions that succeeded, and all operations."""

    operations: tuple[MeasuredOperation, ...]
    actions: tuple[MeasuredAction, ...]


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to the ledger at ``path``; everything that is read inside is of one moment. Changes nothing.

    Raises:
        LedgerError: there is no ledger, it cannot be read, or it is not of this release.
    """
    try:
        if not is_file(path):
            raise LedgerError(f"there is no ledger {path}")
        with closing(read_only(path)) as connection:
            _require_schema(path, connection)
            connection.execute("begin")
            yield connection
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


@contextmanager
def reading_older(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to what the ledger at ``path`` was at one moment, with the schema of this release. Changes nothing.

    Raises:
        LedgerError: there is no ledger, it cannot be read, or it is of a newer release.
    """
    try:
        with closing(read_only(path)) as connection:
            applied, known = schema_steps(connection)
            if not applied or not applied < known:
                _require_schema(path, connection)
                connection.execute("begin")
                yield connection
                return
            with closing(sqlite3.connect("")) as copy:  # a temporary one without a name
                connection.backup(copy)
                with_newest_schema(copy)
                yield copy
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"{path} cannot be read: {error}") from error


def read_history(path: Path, since: float = 0.0) -> History:
    """Read the operations that were begun since that time, in seconds since the epoch. Changes nothing.

    Raises:
        LedgerError: there is no ledger, it cannot be read, or it is not of this release.
    """
    with reading(path) as connection:
        return history_in(connection, since)


def history_in(connection: sqlite3.Connection, since: float = 0.0) -> History:
    """As ``read_history``, of a ledger that is connected to. Raises sqlite3.Error."""
    connection.row_factory = sqlite3.Row
    operations = connection.execute(_OPERATIONS, [since]).fetchall()
    actions = connection.execute(_ACTIONS, [since]).fetchall()
    by_operation: dict[int, list[MeasuredAction]] = defaultdict(list)
    for row in actions:
        by_operation[row["operation_id"]].append(_action(row))
    return History(
        tuple(
            MeasuredOperation(row["kind"], row["created"], row["ended"], tuple(by_operation[row["id"]]))
            for row in operations
        ),
        tuple(action for each in by_operation.values() for action in each),
    )


def _action(row: Any) -> MeasuredAction:
    memory_mib = row["memory_mib"] or _requested_mib(row["vm"], row["geometry"])
    nodes = (row["source"], row["destination"])
    return MeasuredAction(
        row["vm"], row["kind"], nodes, memory_mib, row["created"], row["ended"], row["state"] == "done"
    )


def _requested_mib(vm: str, geometry: str) -> int:
    named = parse_vm_name(vm)
    return Geometry.parse(geometry).memory_mib_of(named[1] if named else 0)


def _require_schema(path: Path, connection: sqlite3.Connection) -> None:
    applied, known = schema_steps(connection)
    if not applied:
        raise LedgerError(f"{path} is no ledger of rmsplugin's")
    if applied != known:
        release = "a newer" if applied - known else "an older"
        raise LedgerError(
            f"{path} is of {release} release than this rmsplugin ({__version__}); use that release's command"
        )
