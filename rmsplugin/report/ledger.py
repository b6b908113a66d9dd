"""Ledger: a report's columns, read from the file of the engine's ledger by plain SQL, whether or not an engine runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from rmsplugin.errors import ReportError
from rmsplugin.model.operation import OperationKind
from rmsplugin.model.vjob import Geometry
from rmsplugin.report.columns import (
    KINDS,
    OUTCOMES,
    Actions,
    Codes,
    Flags,
    Floats,
    Ints,
    Jobs,
    Operations,
    Words,
    arrays,
)
from rmsplugin.report.document import Switch
from rmsplugin.simulation.measured import Went

_K = OperationKind
#: What takes time on a cluster, and what makes what was done before void.
_TIMED = (_K.START, _K.STOP, _K.SUSPEND, _K.RESUME, _K.MIGRATE, _K.RESTART)

_JOBS = """
    select job_id, display_id, user, partition, geometry, submitted, state, state_since, losses + returns from vjobs
    where submitted < ? and (state != 'terminated' or state_since >= ?) order by job_id"""
_OPERATIONS = (
    "select job_id, kind, state, created, ended from operations where created >= ? and created < ? order by id"
)
_ACTIONS = """
    select job_id, vm, actions.kind, destination, actions.created, actions.ended, bytes_done
    from actions join operations on operations.id = operation_id
    where actions.state = 'done' and actions.created >= ? and actions.created < ? and actions.kind in ({kinds})
    order by actions.id"""
_DURATIONS = f"""
    select job_id, kind, created, ended, operations.state = 'failed' from operations join vjobs using (job_id)
    where operations.state != 'running' and created >= submitted and ended >= created and ended < ?
        and kind in ({", ".join(f"'{kind}'" for kind in _TIMED)}) order by id"""
_SAMPLES = "select vm, time, centi_cpus from samples where time >= ? and time < ? order by vm, time"
_SWITCHES = """
    select plans.id, time, plans.state, cost_mib, plans.ended, sum(kind = 'start'), sum(kind = 'suspend'),
        sum(kind = 'resume'), sum(kind = 'migrate')
    from plans join steps on plan_id = plans.id
    where time >= ? and time < ? and plans.state in ('running', 'done', 'failed') group by plans.id order by plans.id"""
_NODE_EVENTS = "('room-gone', 'room-given-back', 'room-requested', 'node-gone', 'node-back')"


class LedgerReader:
    """Reads one ledger, all of it as it was at one moment."""

    def __init__(self, connection: sqlite3.Connection, until: float, owner: int | None = None) -> None:
        """Take a connection of ``rmsplugin.engine.history.reading``.

        Args:
            connection: to the ledger.
            until: what came later is not read.
            owner: the uid of the user whose jobs may be asked for; None: everybody's may.
        """
        self._connection = connection
        self._until = until
        self.owner = owner

    def jobs(self, since: float) -> Jobs:
        """The jobs that were there then, or later."""
        users, partitions = Words(), Words()
        names: dict[int, str] = {}
        numbers = arrays(self._job_rows(since, users, partitions, names), "iiiiccffcccc")
        job_id, vms, cpus, memory_mib, user, partition, submit, state_since, *flags = numbers
        terminated, stopping, sleeps, repeated = (each.astype(bool) for each in flags)
        return Jobs(
            *(job_id, names, user, partition, users, partitions, vms, cpus, memory_mib),
            *(submit, terminated, stopping, state_since, sleeps, repeated),
        )

    def _job_rows(
        self, since: float, users: Words, partitions: Words, names: dict[int, str]
    ) -> Iterator[tuple[Any, ...]]:
        for row, values in enumerate(self._connection.execute(_JOBS, [self._until, since])):
            job_id, name, user, partition, geometry, submitted, state, state_since, repeated = values
            if name != str(job_id):
                names[row] = name
            yield (
                *(job_id, *_shape(geometry), users.code(user), partitions.code(partition), submitted, state_since),
                *(
                    state == "terminated",
                    state == "stopping",
                    state in _ASLEEP,
                    repeated,
                ),
            )

    def may_be_told(self, jobs: Jobs) -> Flags:
        """Which of these jobs are the owner's; all, if everybody's may be asked for."""
        if self.owner is None:
            return np.ones(len(jobs), dtype=bool)
        found = self._connection.execute("select job_id from vjobs where uid = ?", [self.owner])
        return np.isin(jobs.job_id, np.array([job_id for (job_id,) in found], dtype=np.int64))

    def operations(self, jobs: Jobs) -> Operations:
        """What was done to these jobs since their first submission."""
        kinds = {kind: code for code, kind in enumerate(KINDS)}
        outcomes = {outcome: code for code, outcome in enumerate(OUTCOMES)}
        found = (
            (job_id, kinds[kind], outcomes[state], created, ended)
            for job_id, kind, state, created, ended in self._connection.execute(_OPERATIONS, self._span(jobs))
            if kind in kinds
        )
        job_id, kind, outcome, created, ended = arrays(found, "iccff")
        rows, order = _of_jobs(jobs, job_id, created)
        return Operations(rows[order], kind[order], outcome[order], created[order], ended[order])

    def actions(self, jobs: Jobs, kinds: tuple[str, ...]) -> Actions:
        """Actions of these kinds on the VMs of these jobs."""
        words, nodes = Words(), Words()
        marks = ",".join("?" * len(kinds))
        found = (
            (job_id, int(vm.rpartition("-")[2]), words.code(kind), nodes.code(node), created, ended, moved)
            for job_id, vm, kind, node, created, ended, moved in self._connection.execute(
                _ACTIONS.format(kinds=marks), [*self._span(jobs), *kinds]
            )
        )
        job_id, vm, kind, node, created, ended, moved = arrays(found, "icccffi")
        rows, order = _of_jobs(jobs, job_id, created)
        return Actions(
            *(rows[order], vm[order], kind[order], node[order], created[order], ended[order], moved[order]),
            *(words, nodes),
        )

    def _span(self, jobs: Jobs) -> tuple[float, float]:
        """From the first submission of these jobs to the end of the report's time."""
        return (jobs.begins(self._until), self._until)

    def durations(self) -> Iterator[tuple[int, OperationKind, Went]]:
        """How operations on vjobs went, in their order, by job id and kind; and who began anew (restarts)."""
        for job_id, kind, created, ended, failed in self._connection.execute(_DURATIONS, [self._until]):
            yield job_id, OperationKind(kind), Went(ended - created, bool(failed))

    def samples(self, since: float) -> Iterator[tuple[Ints, Codes, Floats, Floats]]:
        """Demands that were observed, in pieces: job id, number of the VM, time, CPUs; ordered by VM and time."""
        found: Iterator[tuple[Any, ...]] = self._connection.execute(_SAMPLES, [since - _EARLIER_S, self._until])
        piece: list[tuple[Any, ...]] = []
        last = ""
        for vm, time, centi_cpus in found:
            if vm != last:
                if len(piece) >= _PIECE:  # a VM is in one piece
                    yield _samples(piece)
                    piece = []
                last = vm
                job_text, _, index_text = vm.removeprefix("vjob").rpartition("-")
                job_id, index = int(job_text), int(index_text)
            piece.append((job_id, index, time, centi_cpus / 100))
        if piece:
            yield _samples(piece)

    def switches(self, since: float) -> Iterator[Switch]:
        """The context switches that were decided since then."""
        found = self._connection.execute(_SWITCHES, [since, self._until])
        for number, at, state, cost_mib, ended, *counts in found:
            yield Switch(number, at, state, cost_mib, round(ended - at, 1) if ended else None, *counts)

    def begins(self) -> float:
        """The time of the oldest thing that the ledger has; ``until`` if it has nothing before."""
        first = ("select time from events order by id limit 1", "select min(submitted) from vjobs")
        rows = [row for sql in first for row in self._connection.execute(sql)]
        return float(min([self._until, *(time for (time,) in rows if time is not None)]))

    def node_changes(self, since: float) -> int:
        """How often a node came or went since then."""
        sql = f"select count(*) from events where kind in {_NODE_EVENTS} and time >= ? and time < ?"
        return int(self._connection.execute(sql, [since, self._until]).fetchone()[0])

    def require(self, column: str, values: list[str]) -> None:
        """Raise ReportError unless the ledger knows jobs of each of these users or partitions, at whatever time."""
        for value in values:
            if not self._has(f"{column} = ?", value):
                raise ReportError(f"the ledger has no job{self.of_yours} of {column} {value!r}")

    def require_jobs(self, names: list[str]) -> None:
        """Raise ReportError unless the ledger knows each of these jobs, by its name or that of its array."""
        for name in names:
            if not self._has("(display_id = ? or display_id glob ? or job_id = ?)", name, f"{name}_*", name):
                raise ReportError(f"the ledger has no job{self.of_yours} {name}")

    def _has(self, condition: str, *values: str) -> bool:
        """Whether there is such a job that may be asked for: others are not even known to exist."""
        sql = f"select 1 from vjobs where {condition} and ifnull(uid = ?, 1) limit 1"
        return self._connection.execute(sql, [*values, self.owner]).fetchone() is not None

    @property
    def of_yours(self) -> str:
        """What a sentence on jobs says after that word."""
        return "" if self.owner is None else " of yours"


def _of_jobs(jobs: Jobs, job_id: Ints, created: Floats) -> tuple[Ints, Ints]:
    """The row of the job of each thing that was done, and which of them were done to one of these jobs, by its row."""
    rows = jobs.rows_of(job_id)
    # Ids are given out again: what is older than the job was done to another.
    kept = (rows >= 0) & (created >= jobs.submit[rows]) if len(jobs) else np.zeros(len(rows), dtype=bool)
    return rows, np.flatnonzero(kept)[np.argsort(rows[kept], kind="stable")]


def _samples(piece: list[tuple[Any, ...]]) -> tuple[Ints, Codes, Floats, Floats]:
    job_id, vm, time, cpus = arrays(piece, "icff")
    return job_id, vm, time, cpus


_ASLEEP = ("suspending", "sleeping", "resuming")
#: So many samples are looked at together, at least.
_PIECE = 200_000
#: A demand that does not change is not recorded again: one that counts may have been recorded before the report's time.
_EARLIER_S = 7 * 86400


@lru_cache(maxsize=4096)
def _shape(geometry: str) -> tuple[int, int, int]:
    """VMs, CPUs and MiB of each. Raises ReportError."""
    try:
        read = Geometry.parse(geometry)
    except ValueError as error:
        raise ReportError(f"the ledger has a job that this release cannot read: {error}") from None
    return read.vms, read.cpus, read.memory_mib
