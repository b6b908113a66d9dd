"""Ledger: reads a report's columns from the file of the engine's ledger by plain SQL, whether or not an engine runs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator

import numpy as np

from rmsplugin.engine.ledger.table import called
from rmsplugin.errors import ReportError
from rmsplugin.model.job_names import parse
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
from rmsplugin.report.document import Loss, Switch
from rmsplugin.simulation.measured import Went


def _quoted(words: Iterable[str]) -> str:
    """Our own words as a list in SQL."""
    return ", ".join(f"'{word}'" for word in words)


def _codes(column: str, words: Iterable[str]) -> str:
    """SQL for the place of a column's word among these."""
    return f"case {column} " + " ".join(f"when '{word}' then {code}" for code, word in enumerate(words)) + " end"


_K = OperationKind
#: Operations that take time on a cluster, and those that make earlier work void.
_TIMED = (_K.START, _K.STOP, _K.SUSPEND, _K.RESUME, _K.MIGRATE, _K.PAUSE, _K.UNPAUSE, _K.RESTART)

#: SQL turns all that it can count or compare into numbers before Python sees it: a year has millions of rows.
_THERE = "submitted < ? and (state != 'terminated' or state_since >= ?)"
_JOBS = f"""
    select job_id, user, partition, geometry, submitted, state_since, state = 'terminated', state = 'stopping',
        state in ('pausing', 'paused', 'unpausing', 'suspending', 'sleeping', 'resuming'), losses + returns > 0
    from vjobs where {_THERE} order by job_id"""
_NAMES = f"select job_id, display_id from vjobs where {_THERE} and display_id != cast(job_id as text)"
_OPERATIONS = f"""
    select job_id, {_codes("kind", KINDS)}, {_codes("state", OUTCOMES)}, created, ended from operations
    where created >= ? and created < ? and kind in ({_quoted(KINDS)}) order by id"""
_ACTIONS = """
    select job_id, cast(substr(vm, instr(vm, '-') + 1) as integer), actions.kind, destination, actions.created,
        actions.ended, bytes_done
    from actions join operations on operations.id = operation_id
    where actions.state = 'done' and actions.created >= ? and actions.created < ? and actions.kind in ({kinds})
    order by actions.id"""
_DURATIONS = f"""
    select job_id, kind, created, ended, operations.state = 'failed' from operations join vjobs using (job_id)
    where operations.state != 'running' and created >= submitted and ended >= created and ended < ?
        and kind in ({_quoted(_TIMED)}) order by id"""
#: A row for each VM: a row for each sample would take three times as long.
_SAMPLES = """
    select vm, count(*), group_concat(time), group_concat(centi_cpus) from samples
    where {time} >= ? and {time} < ? group by vm order by vm"""
_SAMPLED = "select (select min(time) from samples), (select max(time) from samples)"
_SWITCHES = """
    select plans.id, time, plans.state, cost_mib, plans.ended, sum(kind = 'start'), sum(kind = 'suspend'),
        sum(kind = 'resume'), sum(kind = 'migrate'), sum(kind = 'pause'), sum(kind = 'unpause')
    from plans join steps on plan_id = plans.id
    where time >= ? and time < ? and plans.state in ('running', 'done', 'failed') group by plans.id order by plans.id"""
_LOSSES = """
    select job_id, time, kind, message from events join vjobs on display_id = vjob
    where kind in ('lost', 'went-back') and time >= submitted and time >= ? and time < ? order by events.id"""
_NODE_EVENTS = "('room-gone', 'room-given-back', 'room-requested', 'node-gone', 'node-back')"


_RULED = "select distinct vjob, sentence from decisions where code = 'rule' and time < ?"
#: The names of placement rules in the sentence of a decision: "..., but rule db: spread of ... bars it from 3".
_RULE = re.compile(r" (?:but|and) rule ([^:]+): ")


class LedgerReader:
    """Reads one ledger, all of it as it was at one moment."""

    def __init__(self, connection: sqlite3.Connection, until: float, owner: int | None = None) -> None:
        """Take a connection of ``rmsplugin.engine.ledger.history.reading``.

        Args:
            connection: to the ledger.
            until: later entries are not read.
            owner: the uid of the user whose jobs may be told; None: all jobs may be told.
        """
        self.connection = connection
        self._until = until
        self.owner = owner

    def jobs(self, since: float) -> Jobs:
        """The jobs that were there then, or later."""
        users, partitions, geometries = Words(), Words(), Words()
        span = [self._until, since]
        numbers = arrays(self.connection.execute(_JOBS, span), ("i", users, partitions, geometries, *"ffcccc"))
        job_id, user, partition, geometry, submit, state_since, *flags = numbers
        images, wishes = Words(), Words()
        shapes = np.array([_shape(word, images, wishes) for word in geometries.words], dtype=np.int64).reshape(-1, 9)
        vms, cpus, memory_mib, large, small_cpus, small_memory_mib, image, wish, switches = shapes[geometry].T
        terminated, stopping, sleeps, repeated = (each.astype(bool) for each in flags)
        jobs = Jobs(
            *(job_id, {}, user, partition, users, partitions, vms, cpus, memory_mib, large, small_cpus),
            *(small_memory_mib, image, images, wish, wishes, switches),
            *(submit, terminated, stopping, state_since, sleeps, repeated),
        )
        names = list(self.connection.execute(_NAMES, span))
        rows = jobs.rows_of(np.array([job_id for job_id, _ in names], dtype=np.int64))
        jobs.names.update(zip(rows.tolist(), (name for _, name in names), strict=True))
        return jobs

    def may_be_told(self, jobs: Jobs) -> Flags:
        """The jobs among these that belong to the owner; all, if all jobs may be told."""
        if self.owner is None:
            return np.ones(len(jobs), dtype=bool)
        found = self.connection.execute("select job_id from vjobs where uid = ?", [self.owner])
        return np.isin(jobs.job_id, np.array([job_id for (job_id,) in found], dtype=np.int64))

    def operations(self, jobs: Jobs) -> Operations:
        """The operations on these jobs since their first submission."""
        found = self.connection.execute(_OPERATIONS, self._span(jobs))
        job_id, kind, outcome, created, ended = arrays(found, "iccff")
        rows, order = _of_jobs(jobs, job_id, created)
        return Operations(rows[order], kind[order], outcome[order], created[order], ended[order])

    def actions(self, jobs: Jobs, kinds: tuple[str, ...]) -> Actions:
        """Actions of these kinds on the VMs of these jobs."""
        words, nodes = Words(), Words()
        found = self.connection.execute(_ACTIONS.format(kinds=",".join("?" * len(kinds))), [*self._span(jobs), *kinds])
        job_id, vm, kind, node, created, ended, moved = arrays(found, ("i", "c", words, nodes, *"ffi"))
        rows, order = _of_jobs(jobs, job_id, created)
        return Actions(
            *(rows[order], vm[order], kind[order], node[order], created[order], ended[order], moved[order]),
            *(words, nodes),
        )

    def _span(self, jobs: Jobs) -> tuple[float, float]:
        """The span from the first submission of these jobs to the end of the report's time."""
        return (jobs.begins(self._until), self._until)

    def durations(self) -> Iterator[tuple[int, OperationKind, Went]]:
        """The courses of operations on vjobs, in their order, by job id and kind; and the vjobs that began anew."""
        for job_id, kind, created, ended, failed in self.connection.execute(_DURATIONS, [self._until]):
            yield job_id, OperationKind(kind), Went(ended - created, bool(failed))

    def samples(self, since: float) -> Iterator[tuple[Ints, Codes, Floats, Codes]]:
        """Demands that were observed, in pieces: job id, number of the VM, time, centi CPUs; ordered by VM and time."""
        span = [since - _EARLIER_S, self._until]
        # The table is ordered by VM; the index by time, from which +time keeps SQLite, suits only a small part of the
        # table.
        first, last = self.connection.execute(_SAMPLED).fetchone()
        small = first is None or span[0] > last - _SMALL_PART * (last - first)
        found = self.connection.execute(_SAMPLES.format(time="time" if small else "+time"), span)
        while batch := found.fetchmany(_VMS):
            names, counts, times, demands = zip(*batch, strict=True)
            vm = np.array([_vm(name) for name in names], dtype=np.int64).repeat(counts, axis=0)
            time, centi_cpus = _numbers(times), _numbers(demands)
            order = np.lexsort((time, vm[:, 1], vm[:, 0]))  # SQLite does not promise the order in which it concatenates
            job_id, index = vm[order].T
            yield job_id, index.astype(np.int32), time[order].astype(np.float64), centi_cpus[order].astype(np.int32)

    def switches(self, since: float) -> Iterator[Switch]:
        """The context switches that were decided since then."""
        found = self.connection.execute(_SWITCHES, [since, self._until])
        for number, at, state, cost_mib, ended, *counts in found:
            yield Switch(number, at, state, cost_mib, round(ended - at, 1) if ended else None, *counts)

    def losses(self, since: float, jobs: Jobs, chosen: Flags) -> Iterator[Loss]:
        """What the chosen ones among these jobs have lost since then."""
        for job_id, at, kind, sentence in self.connection.execute(_LOSSES, [since, self._until]):
            row = int(jobs.rows_of(np.array([job_id], dtype=np.int64))[0])
            if row >= 0 and chosen[row]:
                yield Loss(at, jobs.name(row), kind, sentence)

    def begins(self) -> float:
        """The time of the ledger's oldest entry; ``until`` if it has none before."""
        first = ("select time from events order by id limit 1", "select min(submitted) from vjobs")
        rows = [row for sql in first for row in self.connection.execute(sql)]
        return float(min([self._until, *(time for (time,) in rows if time is not None)]))

    def node_changes(self, since: float) -> int:
        """The number of times that a node came or went since then."""
        sql = f"select count(*) from events where kind in {_NODE_EVENTS} and time >= ? and time < ?"
        return int(self.connection.execute(sql, [since, self._until]).fetchone()[0])

    def ruled(self, jobs: Jobs) -> dict[str, Flags]:
        """By placement rule, the jobs that one kept out at any time, by its name."""
        found: dict[str, Flags] = {}
        rows = {jobs.names.get(row, str(job_id)): row for row, job_id in enumerate(jobs.job_id.tolist())}
        for vjob, sentence in self.connection.execute(_RULED, [self._until]):
            for rule in _RULE.findall(sentence) if vjob in rows else ():
                found.setdefault(rule, np.zeros(len(jobs), dtype=bool))[rows[vjob]] = True
        return found

    def require(self, column: str, values: list[str]) -> None:
        """Raise ReportError unless the ledger knows jobs of each of these users or partitions, at whatever time."""
        for value in values:
            if not self._has(f"{column} = ?", value):
                raise ReportError(f"the ledger has no job{self.of_yours} of {column} {value!r}")

    def require_jobs(self, names: list[str]) -> None:
        """Raise ReportError unless the ledger knows each of these jobs, by its name or that of its array."""
        for name in names:
            condition, parameters = called("display_id", parse(name))
            if not self._has(f"({condition} or job_id = ?)", *parameters, name):
                raise ReportError(f"the ledger has no job{self.of_yours} {name}")

    def _has(self, condition: str, *values: str) -> bool:
        """Whether there is such a job that may be told: the existence of others is not told either."""
        sql = f"select 1 from vjobs where {condition} and ifnull(uid = ?, 1) limit 1"
        return self.connection.execute(sql, [*values, self.owner]).fetchone() is not None

    @property
    def of_yours(self) -> str:
        """The rest of a sentence on jobs after that word."""
        return "" if self.owner is None else " of yours"


def _of_jobs(jobs: Jobs, job_id: Ints, created: Floats) -> tuple[Ints, Ints]:
    """The row of each operation's job; and the places of the operations on one of these jobs, ordered by row."""
    rows = jobs.rows_of(job_id)
    # Ids are given out again: an operation that is older than the job was on another job.
    kept = (rows >= 0) & (created >= jobs.submit[rows]) if len(jobs) else np.zeros(len(rows), dtype=bool)
    return rows, np.flatnonzero(kept)[np.argsort(rows[kept], kind="stable")]


#: A demand that does not change is not recorded again: a demand that counts may be older than the report's time.
_EARLIER_S = 7 * 86400
#: Up to this part of the time of all samples, looking each of them up is faster than passing over all.
_SMALL_PART = 0.1
#: The number of VMs whose samples are text at a time.
_VMS = 500


def _numbers(texts: Iterable[str]) -> Ints:
    """The whole numbers in these texts, separated by commas."""
    return np.fromstring(",".join(texts), dtype=np.int64, sep=",")


def _vm(name: str) -> tuple[int, int]:
    """Job id and number of a VM."""
    job_id, _, index = name.removeprefix("vjob").rpartition("-")
    return int(job_id), int(index)


def _shape(geometry: str, images: Words, wishes: Words) -> tuple[int, ...]:
    """VMs, CPUs and MiB of each, the number of VMs that have so much, the others' CPUs and MiB, codes, and switches.

    The codes are those of the image and of the wishes. Raises ReportError.
    """
    try:
        read = Geometry.parse(geometry)
    except ValueError as error:
        raise ReportError(f"the ledger has a job that this release cannot read: {error}") from None
    last = read.vms - 1
    sizes = (read.vms, read.cpus, read.memory_mib, read.large, read.cpus_of(last), read.memory_mib_of(last))
    return (*sizes, images.code(read.image), wishes.code(" ".join(sorted(read.wishes))), read.switches)
