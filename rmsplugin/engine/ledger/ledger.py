"""Ledger: the plugin's own database of vjobs, VMs, operations, actions and events (SQLite, WAL).

Intent is recorded here before anything acts, so that a restarted engine can go on where a killed one stopped.
All methods may be called from several threads.
"""

from __future__ import annotations

import heapq
import json
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sqlite_utils

from rmsplugin.engine.ledger import records
from rmsplugin.engine.ledger.address_claims import AllMine, Claims
from rmsplugin.engine.ledger.checkpoints import Checkpoints
from rmsplugin.engine.ledger.epoch_book import EpochBook
from rmsplugin.engine.ledger.failures import Failures
from rmsplugin.engine.ledger.fair_lock import FairLock
from rmsplugin.engine.ledger.given_book import GivenBook
from rmsplugin.engine.ledger.handed import HandedVJobs
from rmsplugin.engine.ledger.kept import Kept
from rmsplugin.engine.ledger.ledger_file import BUSY_S, available, open_database
from rmsplugin.engine.ledger.live import Live, numbers
from rmsplugin.engine.ledger.markers import Markers
from rmsplugin.engine.ledger.node_book import NodeBook
from rmsplugin.engine.ledger.parcel_book import ParcelBook
from rmsplugin.engine.ledger.plans import Plans
from rmsplugin.engine.ledger.power_book import PowerBook
from rmsplugin.engine.ledger.reservation_book import ReservationBook
from rmsplugin.engine.ledger.room_reports import RoomReports
from rmsplugin.engine.ledger.rows import ActionRow, Event, Operation, OperationKind, Outcome, VJobRow, VMRow, by_job
from rmsplugin.engine.ledger.samples import Samples
from rmsplugin.engine.ledger.schedule_book import ScheduleBook
from rmsplugin.engine.ledger.sensor_book import SensorBook
from rmsplugin.engine.ledger.set_aside import SetAsideStates
from rmsplugin.engine.ledger.shared_files import hold, let_go
from rmsplugin.engine.ledger.steady import Steady
from rmsplugin.engine.ledger.table import called, insert, update
from rmsplugin.engine.ledger.tally import Tally
from rmsplugin.engine.ledger.usage_book import UsageBook
from rmsplugin.errors import NotFoundError, RefusedError
from rmsplugin.model.copied import copied
from rmsplugin.model.job_names import JobName, parse
from rmsplugin.model.vjob import VJobState, check_transition
from rmsplugin.model.vm_phase import PLACES, VMPhase, check_phase, places_in

T = TypeVar("T")

#: The subject of a change: ("vjob", its job id) or ("operation", its id).
Subject = tuple[str, int]

_SELECT = "select * from vjobs"
#: SQLite's limit of parameters in one statement is at least 999.
_CHUNK = 500
#: So few vjobs are looked up one by one.
_FEW = 50
#: The most answers that are remembered, and the most rows of each.
_ANSWERS, _ROWS = 4096, 100
#: So many display ids are remembered with the job ids of their vjobs.
_NAMES = 100_000


class _Reader(threading.local):
    """Whether this thread only reads now."""

    only_reads = False


class Ledger:
    """The database; ``clock`` gives seconds since the epoch."""

    def __init__(
        self, path: Path, *, clock: Callable[[], float] = time.time, busy_s: float = BUSY_S, exclusive: bool = False
    ) -> None:
        """Open, or make, the database at ``path``. Raises LedgerError if it cannot be a ledger of this release.

        ``exclusive``: it is the ledger of this engine's epoch, on a shared directory: no other process opens it.

        From then on every method raises LedgerUnavailableError while the database cannot be read or written: another
        process has locked it for longer than ``busy_s`` (seconds), or its disk is full.
        """
        self._clock = clock
        self._lock = FairLock()
        self._reader = _Reader()
        self._depth = 0  # of transactions inside each other
        self._changed: set[Subject] = set()
        self._subscribers: list[Callable[[frozenset[Subject]], None]] = []
        #: What this process has recorded, counted.
        self.tally = Tally()
        self._noted: list[Callable[[], None]] = []  # what the open transaction gives to the tally if it succeeds
        self._changed_vms: set[int] = set()  # ids of the jobs of VMs that the open transaction has changed
        #: The vjobs that have not ended, in order of first submission. A cycle asks often.
        self._current = Kept(self._read_current, lambda job_id, vjob: (vjob.submitted, job_id))
        #: The VMs of each vjob that has some, by index.
        self._vms_of = Kept(self._read_vms_of, lambda job_id, vms: job_id)
        #: The VMs of all vjobs that may have VMs or saved states, and the addresses of all.
        self._live = Live()
        self._job_ids: dict[str, int] = {}  # of vjobs that were found by their display ids
        #: The answers since the last change, by question: a cycle asks the same many times.
        self._answers: dict[Hashable, Any] = {}
        self._answers_of = -1  # the number of changes that had been made then
        self.path, self.exclusive = path, exclusive
        if exclusive:
            hold(path)
        self._db = open_database(path, busy_s=busy_s, exclusive=exclusive)
        #: How often in a row something failed, and until when it is not tried again.
        self.failures = Failures(self._write, self._rows, clock)
        #: The decisions of cycles, and the plans that carry them out.
        self.plans = Plans(self._write, self._rows, clock)
        #: The demands of running VMs.
        self.samples = Samples(self._write, self._rows, clock, self._changed_vms)
        #: The checkpoints of running vjobs, and their files.
        self.checkpoints = Checkpoints(self._write, self._rows, clock)
        #: The stores of saved states that are known, each by its marker.
        self.markers = Markers(self._write, self._rows, clock)
        #: Saved states that were put aside.
        self.set_aside = SetAsideStates(self._write, self._rows, clock)
        #: The reports of the hooks of rooms.
        self.room_reports = RoomReports(self._write, self._rows, clock)
        #: The nodes that are gone, and the VMs and files left behind on nodes.
        self.nodes = NodeBook(self._write, self._rows, clock, Steady(self._lock, lambda: self._depth > 0))
        #: The usage of the processes of vjobs.
        self.usage = UsageBook(self._write, self._rows, clock)
        #: The nodes that are reserved for VMs that have outgrown their own.
        self.reservations = ReservationBook(self._write, self._rows, clock)
        #: The runs of what is done at times of day.
        self.schedule = ScheduleBook(self._write, self._rows, clock)
        #: The epochs of the engines that have led.
        self.epochs = EpochBook(self._write, self._rows, clock)
        #: What the leader of several groups has said, and this group has given up.
        self.given = GivenBook(self._write, self._rows, clock)
        #: Vjobs on their way to other groups, and from them.
        self.parcels = ParcelBook(self._write, self._rows, clock)
        #: The nodes that are switched off and on.
        self.power = PowerBook(self._write, self._rows, clock)
        self.sensors = SensorBook(self._write, self._rows, clock)
        #: Takes vjobs out, and puts them in.
        self.handed = HandedVJobs(self._write, self._rows, clock, self._handed)
        #: Whose the addresses of VMs are.
        self.claims: Claims = AllMine()

    def newest_time(self) -> float:
        """The latest time at which, by the ledger, anything happened; 0 if it has nothing."""
        times = "select time from events union all select max(state_since, wrapper_seen) from vjobs"
        return float(self._rows(f"select coalesce(max(time), 0) as newest from ({times})")[0]["newest"])

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._db.close()
            let_go(self.path)

    @contextmanager
    def only_reading(self) -> Iterator[None]:
        """Refuse all that this thread would write meanwhile, with an AssertionError; other threads go on writing."""
        before, self._reader.only_reads = self._reader.only_reads, True
        try:
            yield
        finally:
            self._reader.only_reads = before

    @contextmanager
    def _write(self) -> Iterator[sqlite_utils.Database]:
        assert not self._reader.only_reads, "something that changes nothing would write to the ledger"
        with self._lock:
            self._depth += 1
            noted = len(self._noted)
            try:
                with available(), self._db.atomic():
                    yield self._db
            except BaseException:
                del self._noted[noted:]  # it is undone
                raise
            finally:
                self._depth -= 1
                if self._depth == 0:
                    for note in self._noted:
                        note()
                    self._noted.clear()
                    # Subscribers are told of rollbacks too, and read again.
                    changed, self._changed = frozenset(self._changed), set()
                    self._answers.clear()
                    self._current.changed([number for what, number in changed if what == "vjob"])
                    self._vms_of.changed(self._changed_vms)
                    self._changed_vms.clear()
                    for tell in self._subscribers if changed else ():
                        tell(changed)

    def subscribe(self, tell: Callable[[frozenset[Subject]], None]) -> None:
        """Have ``tell`` called with the subjects of each transaction that changed vjobs or ended operations.

        ``tell`` is called in the thread that made the change, with the ledger locked: it must not wait for anything.
        """
        self._subscribers.append(tell)

    @contextmanager
    def asked_at_once(self) -> Iterator[None]:
        """Several questions are asked inside, and wait for other threads once: for a request, which asks for little."""
        with self._lock:
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes made inside are made together, or not at all."""
        with self._write():
            yield

    def _rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[dict[str, Any]]:
        values = tuple(parameters)
        return list(self._answer((sql, values), lambda: self._read(sql, values)))

    def _read(self, sql: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        cursor = self._db.execute(sql, values)  # query() of sqlite-utils takes three statements for each query
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def _answer(self, question: Hashable, read: Callable[[], list[T]]) -> list[T]:
        """What ``read`` reads, read anew only when something has changed. Nobody changes the list, or what is in it."""
        with self._lock:
            if self._depth:
                with available():
                    return read()  # changes of an open transaction may be undone
            changes = self._db.conn.total_changes
            if changes != self._answers_of or len(self._answers) >= _ANSWERS:
                self._answers.clear()
                self._answers_of = changes
            found: list[T] | None = self._answers.get(question)
            if found is None:
                with available():
                    found = read()
                if len(found) <= _ROWS:
                    self._answers[question] = found
            return found

    # -- vjobs ---------------------------------------------------------------------------------------------------

    def add_vjob(self, vjob: VJobRow) -> None:
        """Remember a vjob at first sight; a row that is there already stays."""
        with self._write() as db:
            if self._rows("select 1 from vjobs where job_id = ?", [vjob.job_id]):
                return
            insert(db, "vjobs", records.vjob_record(vjob))
            self._changed.add(("vjob", vjob.job_id))

    def renew_vjob(self, vjob: VJobRow) -> None:
        """Let an ended vjob begin anew, as ``vjob``. Raises IllegalTransitionError if it has not ended."""
        with self._write() as db:
            check_transition(vjob.display_id, self.vjob(vjob.job_id).state, vjob.state)
            db.execute("delete from vms where job_id = ?", [vjob.job_id])
            self._changed_vms.add(vjob.job_id)
            db.execute("delete from vjob_failures where job_id = ?", [vjob.job_id])
            update(db, "vjobs", {"job_id": vjob.job_id}, records.vjob_record(vjob))
            self._changed.add(("vjob", vjob.job_id))

    def vjob(self, job_id: int) -> VJobRow:
        """One vjob. Raises NotFoundError."""
        if kept := self._kept_of(self._current, job_id):
            return kept[0]
        sql = f"{_SELECT} where job_id = ?"
        found = self._answer(("vjob", job_id), lambda: [*map(records.read_vjob, self._read(sql, (job_id,)))])
        if not found:
            raise NotFoundError(f"no vjob {job_id}")
        return found[0]

    def find_vjob(self, display_id: str) -> VJobRow:
        """One vjob by its display id, ``12`` or ``12_3``. Raises NotFoundError."""
        known = self._kept_of(self._current, self._job_ids.get(display_id, 0))
        if known and known[0].display_id == display_id:
            return known[0]
        rows = self._rows("select * from vjobs where display_id = ?", [display_id])
        if not rows and display_id.isdecimal():
            return self.vjob(int(display_id))
        if not rows:
            raise NotFoundError(f"no vjob {display_id}")
        self._remember(display_id, rows[0]["job_id"])
        return records.read_vjob(rows[0])

    def _kept_of(self, kept: Kept[T], job_id: int) -> list[T] | None:
        """What is kept of one job, if anything; None: the database has to be asked, as in an open transaction.

        A question to it is several turns among the threads that compute; a request has a dozen questions.
        """
        with self._lock:
            if self._depth or not kept.is_read:
                return None
            with available():
                found = kept.of(job_id)
        return [] if found is None else [found]

    def _remember(self, display_id: str, job_id: int) -> None:
        if len(self._job_ids) >= _NAMES:
            self._job_ids = {}
        self._job_ids[display_id] = job_id

    def named(self, name: JobName) -> list[VJobRow]:
        """The vjob with this name, or the known elements of the job array that it names; also ended ones.

        Job ids are given out again one day: a vjob with this name comes before elements of an array with that id.
        """
        if name.text.isdecimal():  # of no array; a vjob that is kept is told without the database
            known = self._kept_of(self._current, int(name.text))
            if known and known[0].display_id == name.text:
                return known
        sql, parameters = called("display_id", name)
        found = [records.read_vjob(row) for row in self._rows(f"{_SELECT} where {sql} order by job_id", parameters)]
        exact = [vjob for vjob in found if vjob.display_id == name.text]
        return exact or sorted(found, key=lambda vjob: int(vjob.display_id.partition("_")[2]))

    def vjobs(self, *, ended: bool = False) -> list[VJobRow]:
        """All vjobs, in order of first submission; terminated vjobs only with ``ended``."""
        if not ended:
            return list(self._current_vjobs().values())
        return [records.read_vjob(row) for row in self._rows(f"{_SELECT} order by submitted, job_id")]

    def living(self) -> Mapping[int, VJobRow]:
        """All vjobs that have not ended, by job id, in order of first submission; nobody changes the mapping."""
        return self._current_vjobs()

    def vjobs_after(self, job_id: int, limit: int) -> list[VJobRow]:
        """The first ``limit`` vjobs that have not ended and whose job id is greater, by job id."""
        current = self._current_vjobs()
        return [current[each] for each in heapq.nsmallest(limit, (each for each in current if each > job_id))]

    def newest_ended(self, limit: int, before: int = 0, at_us: int = 0) -> list[VJobRow]:
        """The ``limit`` terminated vjobs that were submitted last, in order of first submission.

        Args:
            limit: the most vjobs.
            before: only vjobs that come before this job id in that order; none if the id is not known any more.
            at_us: its first submission, in microseconds, where another ledger has it; 0: this one has it.
        """
        older = "and (submitted, job_id) < (select submitted, job_id from vjobs where job_id = ?)" if before else ""
        sql = f"{_SELECT} where state = 'terminated' {older} order by submitted desc, job_id desc limit ?"
        parameters = [before, limit] if before else [limit]
        if before and at_us:
            older = "and (cast(submitted * 1e6 as integer), job_id) < (?, ?)"
            sql = f"{_SELECT} where state = 'terminated' {older} order by submitted desc, job_id desc limit ?"
            parameters = [at_us, before, limit]
        return [records.read_vjob(row) for row in reversed(self._rows(sql, parameters))]

    def _current_vjobs(self) -> Mapping[int, VJobRow]:
        """The vjobs that have not ended, by job id; only those that have changed are read anew."""
        with self._lock, available():
            return self._current.all([number for what, number in self._changed if what == "vjob"])

    def read_ahead(self) -> None:
        """Read some vjobs and VMs that have changed. Who changes thousands does so now and then, with pauses.

        Otherwise the next question would read all of them, and all others would wait for the ledger meanwhile.
        """
        with self._lock, available():
            self._current.read_ahead(_CHUNK)
            self._vms_of.read_ahead(_CHUNK)

    def _read_current(self, job_ids: Collection[int] | None) -> dict[int, VJobRow]:
        rows = self._rows_of(f"{_SELECT} where state != 'terminated'", job_ids)
        return {row["job_id"]: records.read_vjob(row) for row in rows}

    def _rows_of(self, sql: str, job_ids: Collection[int] | None) -> Iterator[dict[str, Any]]:
        """The rows of a query with a condition; only those of these jobs, if they are given."""
        if job_ids is None:
            yield from self._read(sql, ())
            return
        wanted = list(job_ids)
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            yield from self._read(f"{sql} and job_id in ({','.join('?' * len(chunk))})", tuple(chunk))

    def vjobs_among(self, job_ids: Iterable[int]) -> dict[int, VJobRow]:
        """The vjobs, in any state, that the ledger knows of these jobs, by job id."""
        asked = list(job_ids)
        current = self._current_among(asked) if len(asked) <= _FEW else self._current_vjobs()
        found = {job_id: current[job_id] for job_id in asked if job_id in current}
        wanted = [job_id for job_id in asked if job_id not in current]
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            found |= {
                row["job_id"]: records.read_vjob(row)
                for row in self._rows(f"{_SELECT} where job_id in ({marks})", chunk)
            }
        return found

    def _current_among(self, job_ids: Collection[int]) -> Mapping[int, VJobRow]:
        """Those of a few vjobs that have not ended, by job id; to put changes in order would go through all others."""
        kept = {job_id: self._kept_of(self._current, job_id) for job_id in job_ids}
        if any(found is None for found in kept.values()):
            return self._current_vjobs()
        return {job_id: found[0] for job_id, found in kept.items() if found}

    def prune(self, before: float) -> int:
        """Forget vjobs that ended before this time, with their operations, and older events and samples.

        Returns the number of vjobs forgotten.
        """
        old = "select job_id from vjobs where state = 'terminated' and state_since < ?"
        operations = f"select id from operations where job_id in ({old})"
        with self._write() as db:
            db.execute(f"delete from actions where operation_id in ({operations})", [before])
            db.execute(f"delete from operations where job_id in ({old})", [before])
            db.execute(f"delete from vjob_failures where job_id in ({old})", [before])
            db.execute("delete from node_failures where last < ?", [before])
            # The newest one stays: of an empty table the numbers would begin again, and readers go on from theirs.
            db.execute("delete from events where time < ? and id < (select max(id) from events)", [before])
            db.execute("delete from room_reports where time < ?", [before])
            self.plans.prune(before)
            self.checkpoints.forget_before(before)
            self.schedule.forget_before(before)
            self.parcels.forget_before(before)
            self.power.prune(before)
            self.sensors.prune(before)
            db.execute("delete from samples where time < ?", [before])
            db.execute(f"delete from usage where job_id in ({old})", [before])
            return int(db.execute(f"delete from vjobs where job_id in ({old})", [before]).rowcount)

    def has_begun(self, job_id: int) -> bool:
        """Whether anything of the vjob has ever begun: an operation on it, or a VM."""
        begun = "operations where job_id = ? union all select 1 from vms where job_id = ?"
        waits = self.vjob(job_id).state is VJobState.WAITING
        return not waits or bool(self._rows(f"select 1 from {begun}", [job_id, job_id]))

    def forget_vjob(self, job_id: int) -> None:
        """Forget a vjob of which nothing has begun, as if it had never been met."""
        with self._write() as db:
            assert not self.has_begun(job_id), f"vjob {job_id} has begun"
            for table in ("vjob_failures", "usage", "vjobs"):
                db.execute(f"delete from {table} where job_id = ?", [job_id])
            self._changed.add(("vjob", job_id))

    def _handed(self, job_id: int) -> None:
        """Note that a vjob and its VMs have come or gone."""
        self._changed.add(("vjob", job_id))
        self._changed_vms.add(job_id)

    def transition(self, job_id: int, target: VJobState, reason: str, **changes: Any) -> VJobRow:
        """Move a vjob to another state, with other changes of its row, in one transaction.

        Raises:
            IllegalTransitionError: the life cycle of vjobs has no such move.
        """
        with self._write() as db:
            vjob = self.vjob(job_id)
            lost = changes.get("losses", vjob.losses) > vjob.losses
            if vjob.state is not target:
                check_transition(vjob.display_id, vjob.state, target)
                self._noted.append(partial(self.tally.entered, vjob.partition, target))
                changes["state_since"] = self._clock()
                changes["ran_s"] = records.ran_s(vjob, target, self._clock())
                if target is VJobState.TERMINATED:
                    changes |= {"preference": "", "resized_cpus": 0, "resized_memory_mib": 0}
                changes["paused"] = target is VJobState.PAUSED or (vjob.paused and target is VJobState.SUSPENDING)
            update(db, "vjobs", {"job_id": job_id}, {"state": str(target), "reason": reason, **changes})
            self._changed.add(("vjob", job_id))
            if lost:
                self._noted.append(partial(self.tally.lost, vjob.partition))
            if (vjob.state, vjob.reason) != (target, reason):
                self._event(f"vjob-{target}", reason, vjob=vjob.display_id)
            return self.vjob(job_id)

    def update_vjob(self, job_id: int, **changes: Any) -> None:
        """Change columns of a vjob other than its state."""
        assert "state" not in changes, "states change by transition only"
        with self._write() as db:
            update(db, "vjobs", {"job_id": job_id}, changes)
            self._changed.add(("vjob", job_id))

    def tell_reasons(self, reasons: Mapping[int, str]) -> None:
        """Record the reason of each of these vjobs, by job id, in one transaction. Raises NotFoundError."""
        with self._lock:
            before = {job_id: self._kept_of(self._current, job_id) for job_id in reasons}
            self._write_reasons(reasons)
            # Thousands may change at once: none of them has to be read again. In a transaction none was kept before.
            told = {job_id: copied(kept[0], reason=reasons[job_id]) for job_id, kept in before.items() if kept}
            self._current.put(told)

    def _write_reasons(self, reasons: Mapping[int, str]) -> None:
        with self._write() as db:
            told = ((reason, job_id) for job_id, reason in reasons.items())
            changed = db.conn.executemany("update vjobs set reason = ? where job_id = ?", told).rowcount
            if reasons and changed != len(reasons):
                raise NotFoundError(f"the ledger knows {changed} of {len(reasons)} vjobs that were to be told a reason")
            self._changed.update(("vjob", job_id) for job_id in reasons)

    # -- VMs -----------------------------------------------------------------------------------------------------

    def set_vms(self, job_id: int, vms: Iterable[VMRow]) -> None:
        """Replace all VMs of a vjob. Raises IllegalPhaseError for a VM in a phase in which none begins."""
        with self._write() as db:
            db.execute("delete from vms where job_id = ?", [job_id])
            self._changed_vms.add(job_id)
            for vm in vms:
                check_phase(vm.name, None, vm.phase)
                record = records.vm_record(vm)
                insert(db, "vms", {**record, **places_in(vm.name, vm.phase, record)})

    def vms(self, job_id: int | None = None) -> list[VMRow]:
        """VMs of one vjob, or of all vjobs, by job and index."""
        if job_id is None:
            return [vm for vms in self.vms_by_job().values() for vm in vms]
        if (kept := self._kept_of(self._vms_of, job_id)) is not None:
            return [vm for vms in kept for vm in vms]
        return list(self._answer(("vms", job_id), lambda: self._read_vms_of([job_id]).get(job_id, [])))

    def vms_by_job(self) -> Mapping[int, list[VMRow]]:
        """The VMs of each vjob that has some, by job id, each one's by index; nobody changes it.

        Only those of vjobs whose VMs have changed are read anew.
        """
        with self._lock, available():
            return self._vms_of.all(self._changed_vms)

    def _read_vms_of(self, job_ids: Collection[int] | None) -> dict[int, list[VMRow]]:
        found = by_job(map(records.read_vm, self._rows_of("select * from vms where true", job_ids)))
        return {job_id: sorted(vms, key=lambda vm: vm.idx) for job_id, vms in found.items()}

    def addresses(self) -> set[str]:
        """The addresses that VMs have, also packed ones, and those of other groups; no other VM gets one of them."""
        with self._lock:
            return self._followed().addresses() | self.parcels.addresses() | self.claims.others()

    def numbers_of_addresses(self) -> set[int]:
        """The same, each as the number of an address of IPv4."""
        with self._lock:
            return self._followed().numbers().union(numbers(self.parcels.addresses()), numbers(self.claims.others()))

    def vms_among(self, job_ids: Iterable[int]) -> dict[int, list[VMRow]]:
        """The VMs of the named jobs, by job id."""
        found = ((job_id, self.vms(job_id)) for job_id in sorted({*job_ids}))
        return {job_id: vms for job_id, vms in found if vms}

    def live_vms(self) -> list[VMRow]:
        """VMs of all vjobs that may have VMs or saved states, by job and index."""
        with self._lock:
            return self._followed().all()

    def live_vms_by_job(self) -> Mapping[int, list[VMRow]]:
        """The same by job id, each vjob's by index; nobody changes it. A vjob that has none is not there."""
        with self._lock:
            return self._followed().by_job

    def places_of_live_vms(self) -> set[str]:
        """The nodes on which they are, or to which they are on their way."""
        with self._lock:
            return self._followed().places()

    def live_vms_on(self, nodes: Iterable[str]) -> list[VMRow]:
        """Those of them that are on one of these nodes, or on their way there, by job and index."""
        with self._lock:
            return self._followed().on(nodes)

    def _followed(self) -> Live:
        """What follows from vjobs and VMs as they are now; the caller holds the lock."""
        vjobs, vms = self._current, self._vms_of
        with available():
            of_vjobs = vjobs.take_altered([number for what, number in self._changed if what == "vjob"])
            of_vms = vms.take_altered(self._changed_vms)
            if of_vjobs is None or of_vms is None:
                altered = {*self._live.jobs, *vms.all(self._changed_vms)}
            else:
                altered = of_vjobs | of_vms
        self._live.follow(vjobs.as_read, vms.as_read, altered)
        return self._live

    def update_vm(self, name: str, **changes: Any) -> VMRow:
        """Change columns of a VM other than its phase and its places."""
        assert not changes.keys() & {"phase", "booted_on", *PLACES}, "these change by enter_phase only"
        with self._write() as db:
            update(db, "vms", {"name": name}, changes)
            return self._changed_vm(name)

    def enter_phase(self, name: str, target: VMPhase, **changes: Any) -> VMRow:
        """Bring a VM to another phase, with other changes of its row, in one transaction.

        Places that belong to the phase, and are not among ``changes``, stay; all others are cleared.

        Raises:
            IllegalPhaseError: the phases of a VM have no such edge, or a place that belongs to ``target`` is missing.
            NotFoundError: there is no such VM.
        """
        with self._write() as db:
            vm = self._vm(name)
            if vm.phase is not target:
                check_phase(name, vm.phase, target)
            if target is VMPhase.BOOTING:
                changes["booted_on"] = vm.host
                self.touch(name, vm.host)
            places = {place: changes.get(place, getattr(vm, place)) for place in PLACES}
            changes |= {"phase": str(target), **places_in(name, target, places)}
            update(db, "vms", {"name": name}, changes)
            return self._changed_vm(name)

    def _changed_vm(self, name: str) -> VMRow:
        """The VM as it is after a change."""
        vm = self._vm(name)
        self._changed_vms.add(vm.job_id)
        return vm

    def _vm(self, name: str) -> VMRow:
        rows = self._rows("select * from vms where name = ?", [name])
        if not rows:
            raise NotFoundError(f"the ledger has no VM {name}")
        return records.read_vm(rows[0])

    def touch(self, name: str, node: str) -> None:
        """Record, before anything is put there, that ``node`` may hold a file or a domain of the VM."""
        with self._write() as db:
            touched = self._vm(name).touched
            if node not in touched:
                update(db, "vms", {"name": name}, {"touched": json.dumps([*touched, node])})
                self._changed_vm(name)

    def untouch(self, name: str, node: str) -> None:
        """Record that ``node``, where the VM is not, was seen to hold nothing of it any more."""
        with self._write() as db:
            vm = self._vm(name)
            assert node not in (vm.host, vm.destination, vm.image_node), "something of it is there"
            left = [each for each in vm.touched if each != node]
            update(db, "vms", {"name": name}, {"touched": json.dumps(left)})
            self._changed_vm(name)

    # -- operations and actions ----------------------------------------------------------------------------------

    def begin_operation(
        self, job_id: int, kind: OperationKind, requested_by: str, arguments: dict[str, str] | None = None
    ) -> Operation:
        """Record the intent to do something to a vjob.

        Raises:
            RefusedError: another operation on the vjob has not ended.
        """
        with self._write() as db:
            busy = self._rows("select kind from operations where job_id = ? and state = 'running'", [job_id])
            if busy:
                raise RefusedError(f"vjob {self.vjob(job_id).display_id} is busy: {busy[0]['kind']} is under way")
            row = {
                "job_id": job_id,
                "kind": str(kind),
                "state": "running",
                "requested_by": requested_by,
                "arguments": json.dumps(arguments or {}),
                "error": "",
                "created": self._clock(),
                "ended": 0.0,
            }
            return self.operation(insert(db, "operations", row))

    def end_operation(self, operation_id: int, error: str = "") -> None:
        """Record how an operation ended; its actions that are still under way end with it."""
        outcome = {"state": "failed" if error else "done", "error": error, "ended": self._clock()}
        with self._write() as db:
            operation = self.operation(operation_id)
            update(db, "operations", {"id": operation_id}, outcome)
            self._changed.add(("operation", operation_id))
            took_s = self._clock() - operation.created
            self._noted.append(partial(self.tally.operation_ended, operation.kind, bool(error), took_s))
            for action in self.actions(operation_id):
                if action.state is Outcome.RUNNING:
                    self._note_end(action.id, failed=True)
            db.execute(
                "update actions set state = 'failed', error = ?, ended = ? "
                "where operation_id = ? and state = 'running'",
                [error or "interrupted", self._clock(), operation_id],
            )

    def operation(self, operation_id: int) -> Operation:
        """One operation. Raises NotFoundError."""
        rows = self._rows("select * from operations where id = ?", [operation_id])
        if not rows:
            raise NotFoundError(f"no operation {operation_id}")
        return records.read_operation(rows[0])

    def has_slept(self, job_id: int) -> bool:
        """Whether the vjob has had saved states before, of which a node may still have a file."""
        sql = "select 1 from operations where job_id = ? and kind in ('suspend', 'restart') and state = 'done' limit 1"
        return bool(self._rows(sql, [job_id]))

    def running_operations(self) -> list[Operation]:
        """Operations that have not ended, oldest first: after a crash, these have to be finished."""
        # With `order by id` SQLite goes through all operations, in their order.
        rows = self._rows("select * from operations where state = 'running' order by +id")
        return [records.read_operation(row) for row in rows]

    def starts(self, job_id: int) -> int:
        """How many starts of the vjob were begun."""
        return self._begun(job_id, OperationKind.START)

    def relocations(self, job_id: int) -> int:
        """How often its saved states were to be copied to other nodes."""
        return self._begun(job_id, OperationKind.RELOCATE)

    def _begun(self, job_id: int, kind: OperationKind) -> int:
        sql = "select count(*) as n from operations where job_id = ? and kind = ?"
        return int(self._rows(sql, [job_id, str(kind)])[0]["n"])

    def begin_action(self, operation_id: int, kind: str, vm: str, source: str = "", destination: str = "") -> int:
        """Record the intent to act on a VM; returns the action's id."""
        row = {
            "operation_id": operation_id,
            "vm": vm,
            "kind": kind,
            "source": source,
            "destination": destination,
            "state": "running",
            "bytes_done": 0,
            "bytes_total": 0,
            "error": "",
            "created": self._clock(),
            "ended": 0.0,
        }
        with self._write() as db:
            size = self._rows("select memory_mib from vms where name = ?", [vm])
            number = insert(db, "actions", {**row, "memory_mib": size[0]["memory_mib"] if size else 0})
            self._noted.append(partial(self.tally.action_began, number, kind))
            return number

    def action_progress(self, action_id: int, done: int, total: int) -> None:
        """Record how many bytes an action has moved."""
        with self._write() as db:
            update(db, "actions", {"id": action_id}, {"bytes_done": done, "bytes_total": total})

    def end_action(self, action_id: int, error: str = "") -> None:
        """Record how an action ended."""
        outcome = {"state": "failed" if error else "done", "error": error, "ended": self._clock()}
        with self._write() as db:
            update(db, "actions", {"id": action_id}, outcome)
            self._note_end(action_id, failed=bool(error))

    def _note_end(self, action_id: int, *, failed: bool) -> None:
        """Have an action counted that ends now."""
        for row in self._rows("select kind, created, bytes_done from actions where id = ?", [action_id]):
            took_s = self._clock() - row["created"]
            ended = partial(self.tally.action_ended, action_id, row["kind"], failed, took_s, row["bytes_done"])
            self._noted.append(ended)

    def actions(self, operation_id: int) -> list[ActionRow]:
        """Actions of an operation, in the order of their start."""
        rows = self._rows("select * from actions where operation_id = ? order by id", [operation_id])
        return [ActionRow(**{**row, "state": Outcome(row["state"])}) for row in rows]

    def last_arrival(self, vm: str, node: str) -> float:
        """When the last action that may have brought the VM to the node began or ended; 0 if none did."""
        sql = (
            "select max(max(created, ended)) as time from actions where vm = ? and destination = ? "
            "and kind in ('run', 'resume', 'migrate')"
        )
        return float(self._rows(sql, [vm, node])[0]["time"] or 0.0)

    # -- events --------------------------------------------------------------------------------------------------

    def event(self, kind: str, message: str, *, vjob: str = "", vm: str = "", node: str = "") -> None:
        """Record what happened."""
        with self._write():
            self._event(kind, message, vjob=vjob, vm=vm, node=node)

    def _event(self, kind: str, message: str, *, vjob: str = "", vm: str = "", node: str = "") -> None:
        row = {"time": self._clock(), "vjob": vjob, "vm": vm, "node": node, "kind": kind, "message": message}
        insert(self._db, "events", row)
        self._noted.append(partial(self.tally.happened, kind))

    @property
    def identity(self) -> str:
        """The ledger whose numbers of events these are, in eight hexadecimal digits: copies of it have the same."""
        return str(self._rows("select id from identity", [])[0]["id"])

    def newest_event(self) -> int:
        """The id of the newest event; 0: there is none."""
        return int(self._rows("select ifnull(max(id), 0) as newest from events", [])[0]["newest"])

    def events(
        self,
        *,
        since: int = 0,
        vjob: str = "",
        limit: int = 1000,
        begin: float = 0.0,
        nodes: Collection[str] = (),
        users: Collection[str] = (),
        kinds: Collection[str] = (),
        oldest: bool = False,
    ) -> list[Event]:
        """The newest ``limit`` events that fit, oldest first.

        Args:
            since: only events after the one with this id.
            vjob: only those of this vjob (display id, or a name of several); empty: all.
            limit: the most events.
            begin: only those that happened at this time, in seconds since the epoch, or later.
            nodes: only those that name one of these nodes; none: all.
            users: only those of vjobs of these users, as long as the ledger remembers the vjob; none: all.
            kinds: only those of these kinds; none: all.
            oldest: the oldest ``limit`` events in place of the newest.
        """
        conditions = ["id > ?", "time >= ?"]
        parameters: list[Any] = [since, begin]
        if vjob:
            where, of_vjob = called("vjob", parse(vjob))
            conditions.append(where)
            parameters += of_vjob
        wanted = "(select value from json_each(?))"
        for condition, values in (
            (f"node in {wanted}", nodes),
            (f"vjob in (select display_id from vjobs where user in {wanted})", users),
            (f"kind in {wanted}", kinds),
        ):
            if values:
                conditions.append(condition)
                parameters.append(json.dumps(list(values)))
        order = "asc" if oldest else "desc"
        sql = f"select * from events where {' and '.join(conditions)} order by id {order} limit ?"
        found = [Event(**row) for row in self._rows(sql, [*parameters, limit])]
        return found if oldest else found[::-1]
