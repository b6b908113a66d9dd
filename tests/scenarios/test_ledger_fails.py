"""The ledger cannot be written for a while: locked by another process, or its disk is full. Nothing is lost by it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from scenarios.world import NODES, MortalLedger, World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import LedgerUnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
#: A statement waits so long for the lock.
BUSY_S = 0.01


class LockedForAWhile:
    """Another process that takes the ledger's lock when the engine writes for the n-th time, and keeps it a while."""

    def __init__(self, path: Path) -> None:
        self._other = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
        self._lock = threading.Lock()
        self.writes = 0
        self.first, self.count = 0, 0
        self.refused = 0

    def close(self) -> None:
        self._other.close()

    def plan(self, first: int, count: int) -> None:
        """Keep out ``count`` transactions from number ``first`` (from 1, counted from now)."""
        with self._lock:
            self.writes, self.first, self.count = 0, first, count

    @contextmanager
    def around(self, write: Callable[[], object]) -> Iterator[object]:
        with self._lock:
            self.writes += 1
            locked = self.first <= self.writes < self.first + self.count
            if locked:
                self._other.execute("begin exclusive")
                self.refused += 1
        try:
            with write() as db:  # type: ignore[attr-defined]
                yield db
        finally:
            if locked:
                self._other.execute("rollback")


@pytest.fixture
def world(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(directory)
    world.context.ledger._db.conn.execute(f"pragma busy_timeout = {int(BUSY_S * 1000)}")
    yield world
    assert world.hypervisor.violations == []
    world.close()


@contextmanager
def locking(world: World, monkeypatch: pytest.MonkeyPatch, directory: Path) -> Iterator[LockedForAWhile]:
    other = LockedForAWhile(directory / "ledger.sqlite")
    write = MortalLedger._write

    def guarded(ledger: MortalLedger):  # type: ignore[no-untyped-def]
        return one_at_a_time(ledger)

    @contextmanager
    def one_at_a_time(ledger: MortalLedger) -> Iterator[object]:
        # Inside a transaction the ledger is the engine's already.
        with ledger._lock, write(ledger) if ledger._depth else other.around(lambda: write(ledger)) as db:
            yield db

    with closing(other), monkeypatch.context() as patch:
        patch.setattr(MortalLedger, "_write", guarded)
        yield other


def whole(world: World, job: int) -> None:
    """The vjob is what it was: nothing began again, and each VM is in one place."""
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.script_started) == (0, True)
    for vm in world.context.ledger.vms(job):
        if vjob.state is S.RUNNING:
            assert world.hypervisor.where(vm.name) == [vm.host]
        else:
            assert world.hypervisor.where(vm.name) == []
            assert f"/store/{vm.name}.state" in world.files.paths(vm.image_node)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("first", range(1, 46, 3))
def test_a_vjob_outlives_a_ledger_that_is_locked_at_any_write(
    world: World, monkeypatch: pytest.MonkeyPatch, directory: Path, first: int, count: int
) -> None:
    job = world.submit(vms=2, memory_mib=128)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    with locking(world, monkeypatch, directory) as other:
        other.plan(first, count)
        for kind, to in ((K.SUSPEND, ""), (K.RESUME, ""), (K.MIGRATE, NODES[2])):
            aim = S.SLEEPING if kind is K.SUSPEND else S.RUNNING
            for _ in range(30):
                with suppress(LedgerUnavailableError):
                    world.ask(job, kind, to)
                world.cycle_beside()
                # An end that could not be recorded is recorded by a later cycle.
                world.as_daemon(lambda: not world.executor.busy())
                if world.state(job) is aim and not any(vm.destination for vm in world.context.ledger.vms(job)):
                    break
                world.pass_time(40.0)
            assert world.state(job) is aim
            whole(world, job)
        assert other.refused == min(count, max(0, other.writes - first + 1))
    assert all("internal error" not in problem for problem in world.cycle.report.problems)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def test_a_full_disk_stops_what_needs_the_ledger_and_nothing_else(world: World) -> None:
    job = world.submit(vms=1, memory_mib=128)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    ledger = world.context.ledger
    (pages,) = ledger._db.execute("pragma page_count").fetchone()
    ledger._db.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(LedgerUnavailableError):
        while True:
            ledger.event("kind", "x" * 4000)
    said: list[str] = []
    for _ in range(40):
        waiting = world.submit(vms=1, memory_mib=128)
        world.cycle_beside()
        said += world.cycle.report.problems
    whole(world, job)
    assert any("no space is left on its disk" in problem for problem in said)
    assert not any("internal error" in problem for problem in said)
    ledger._db.execute("pragma max_page_count = 1000000")
    world.as_daemon(lambda: not world.executor.busy())
    world.until(waiting, S.WAITING, S.RUNNING)
    whole(world, job)


def test_cycles_beside_a_long_lock_go_on_after_it(world: World, directory: Path) -> None:
    job = world.submit(vms=1, memory_mib=128)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    waiting = world.submit(vms=1, memory_mib=128)
    with closing(sqlite3.connect(directory / "ledger.sqlite", isolation_level=None)) as other:
        other.execute("begin exclusive")
        for _ in range(5):
            world.cycle_beside()
        assert any("another process has it locked" in problem for problem in world.cycle.report.problems)
        other.execute("rollback")
    world.until(waiting, S.RUNNING)
    whole(world, job)
