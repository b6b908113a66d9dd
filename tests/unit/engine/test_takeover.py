"""Ledgers of epochs on a shared directory: what a new leader takes over, whatever became of the one before."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from fresh_ledger import in_memory

import rmsplugin
from rmsplugin.engine.ledger import ledger_care, shared_files, takeover
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.ledger_file import damages, read_only
from rmsplugin.engine.ledger.shared_files import copy_ledger, ledgers_in, name_of
from rmsplugin.engine.ledger.takeover import take_over
from rmsplugin.errors import DeposedError, LedgerError

PROGRAM = Path(__file__).parent / "committing.py"


@pytest.fixture
def directory() -> Iterator[Path]:
    with in_memory() as path:
        yield path / "groups" / "all"


def leads() -> bool:
    return True


@contextmanager
def leading(directory: Path, epoch: int, *, local: Path | None = None) -> Iterator[Ledger]:
    """A ledger of this epoch, as its engine has it open."""
    ledger = Ledger(take_over(directory, epoch, local=local, leads=leads), exclusive=True)
    try:
        yield ledger
    finally:
        ledger.close()


def messages(ledger: Ledger) -> list[str]:
    return [event.message for event in ledger.events()]


def lead_once(directory: Path, epoch: int, message: str) -> None:
    with leading(directory, epoch) as ledger:
        ledger.event("test", message)


@contextmanager
def committing(directory: Path, epoch: int) -> Iterator[subprocess.Popen[str]]:
    """A process that leads with this epoch, and commits."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(directory), str(epoch)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])},
    )
    try:
        assert process.stdout and process.stdout.readline() == "leads\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def committed(ledger: Ledger | sqlite3.Connection, epoch: int) -> int:
    """How many events of that epoch there are; all of them in a row, from the first on."""
    sql = "select cast(message as integer) from events where kind = ? order by id"
    connection = ledger if isinstance(ledger, sqlite3.Connection) else ledger._db.conn
    numbers = [row[0] for row in connection.execute(sql, [f"epoch {epoch}"])]
    assert numbers == list(range(1, len(numbers) + 1))
    return len(numbers)


# -- what was committed --------------------------------------------------------------------------------------------


def test_a_new_leader_has_what_the_last_one_committed_and_a_file_of_its_own(directory: Path) -> None:
    with leading(directory, 7) as first:
        first.event("test", "one")
        with leading(directory, 9) as second:
            assert messages(second) == ["one"]
            assert second.epochs.highest() == 9
            second.event("test", "two")
            first.event("test", "late")
            with leading(directory, 12) as third:
                assert messages(third) == ["one", "two"], "late commits of a deposed engine go to its own file"
    assert [path.name for path in ledgers_in(directory)] == [name_of(7), name_of(9), name_of(12)]
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in ledgers_in(directory))


def test_a_leader_that_is_killed_at_any_instant_leaves_all_that_it_has_said_is_safe(directory: Path) -> None:
    chance = random.Random(30)
    for epoch in range(2, 10):
        with committing(directory, epoch) as process:
            assert process.stdout
            for _ in range(chance.randrange(1, 120)):
                process.stdout.readline()
            time.sleep(chance.random() / 200)  # into the middle of a commit
            process.kill()
            said = [line for line in process.stdout if line.endswith("\n")]
            safe = int(said[-1]) if said else 1
        with leading(directory, 100 * epoch) as ledger:
            assert committed(ledger, epoch) >= safe
        for path in ledgers_in(directory):
            path.unlink()
        (directory / "begun").unlink()


def test_a_leader_that_was_stopped_writes_to_its_old_file_only(directory: Path) -> None:
    with committing(directory, 3) as process:
        assert process.stdout
        for _ in range(20):
            process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        with leading(directory, 5) as second:
            had = committed(second, 3)
            assert had >= 20
            process.send_signal(signal.SIGCONT)
            while int(process.stdout.readline()) < had + 50:
                pass
            assert committed(second, 3) == had
            second.event("test", "mine")
            with leading(directory, 6) as third:
                assert committed(third, 3) == had
                assert messages(third)[-1] == "mine"


def committed_meanwhile(monkeypatch: pytest.MonkeyPatch, commit: Callable[[int], object]) -> list[Path]:
    """Have each copy commit after its database was read; it is told the number of the try. Returns the tries."""
    tries: list[Path] = []

    def chunks(path: Path) -> Iterator[bytes]:
        content = path.read_bytes()
        tries.append(path)
        commit(len(tries))
        yield content

    monkeypatch.setattr(shared_files, "_chunks", chunks)
    return tries


def test_a_copy_while_somebody_commits_is_not_taken_for_the_last_word_of_a_deposed_engine(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leading(directory, 3) as ledger:
        path, copy = directory / name_of(3), directory / "copy.sqlite"
        tries = committed_meanwhile(monkeypatch, lambda tried: ledger.event("test", "late") if tried < 3 else 0)
        copy_ledger(path, copy, at_rest=True)
        assert len(tries) == 3, "it was made again for each commit"
        tries = committed_meanwhile(monkeypatch, lambda tried: ledger.event("test", "late"))
        with pytest.raises(LedgerError, match="was written all the time"):
            copy_ledger(path, copy, at_rest=True, within_s=0.1)


def test_a_reader_gets_one_moment_of_a_ledger_that_is_written(directory: Path) -> None:
    with committing(directory, 3) as process:
        assert process.stdout
        for _ in range(15):
            said = int(process.stdout.readline())
            with closing(read_only(directory / name_of(3))) as connection:
                assert damages(connection) == []
                assert committed(connection, 3) >= said
        assert ledger_care.check(directory / name_of(3)).whole
        copy = ledger_care.backup(directory / name_of(3))
    assert ledger_care.check(copy).whole
    assert [path.name for path in ledgers_in(directory)] == [name_of(3)], "a backup is no ledger of an epoch"


def test_a_copy_is_made_again_when_the_log_of_changes_has_begun_anew(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that was read before, and a log after, tell of two times: what is only in the log between is lost."""
    with leading(directory, 3) as ledger:
        ledger.event("test", "one")

        def commit(tried: int) -> None:
            if tried == 1:
                ledger.event("test", "two")
                ledger._db.execute("pragma wal_checkpoint(truncate)")
                ledger.event("test", "three")

        tries = committed_meanwhile(monkeypatch, commit)
        copy_ledger(directory / name_of(3), directory / "copy.sqlite", at_rest=False)
    assert len(tries) == 2
    with closing(sqlite3.connect(directory / "copy.sqlite")) as copy:
        assert [row[0] for row in copy.execute("select message from events")] == ["one", "two", "three"]


# -- the making ----------------------------------------------------------------------------------------------------


def killed_at(line: int, act: Callable[[], object]) -> bool:
    """Do something in a process that is killed before that line of the takeover. Returns whether it was."""
    child = os.fork()
    if not child:
        left = [line]
        names = (takeover.__file__, shared_files.__file__)

        def trace(frame: object, event: str, _: object) -> object:
            if frame.f_code.co_filename not in names:  # type: ignore[attr-defined]
                return None
            if event == "line":
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)  # type: ignore[arg-type]
        with contextlib.suppress(BaseException):
            act()
            os._exit(0)
        os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def test_a_takeover_that_is_killed_at_any_instant_leaves_the_next_one_all(directory: Path) -> None:
    for epoch in (2, 3, 4):
        lead_once(directory, epoch, f"in {epoch}")
    line = 0
    while True:
        line += 1
        tried = directory.with_name(f"tried-{line}")
        shutil.copytree(directory, tried)
        was_killed = killed_at(line, lambda tried=tried: take_over(tried, 5, leads=leads))  # type: ignore[misc]
        assert {path.name for path in ledgers_in(tried)} >= {name_of(3), name_of(4)}
        with leading(tried, 6) as ledger:
            assert messages(ledger) == ["in 2", "in 3", "in 4"]
        assert not list(tried.glob(".making-*"))
        shutil.rmtree(tried)
        if not was_killed:
            break
    assert line > 40


def test_an_engine_that_lost_its_turn_before_it_had_its_ledger_gives_it_no_name(directory: Path) -> None:
    lead_once(directory, 2, "one")
    with pytest.raises(DeposedError, match="epoch 3"):
        take_over(directory, 3, leads=lambda: False)
    assert [path.name for path in ledgers_in(directory)] == [name_of(2)]


def test_an_engine_that_was_stopped_before_it_began_leaves_the_making_of_a_later_one_alone(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / ".making-9").mkdir()
    take_over(directory, 5, leads=leads)
    assert (directory / ".making-9").is_dir()


def test_three_ledgers_are_kept(directory: Path) -> None:
    for epoch in (2, 3, 11, 100):
        lead_once(directory, epoch, "")
    assert [path.name for path in ledgers_in(directory)] == [name_of(3), name_of(11), name_of(100)]


# -- what is refused -----------------------------------------------------------------------------------------------


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 + 8 : 4096 + 400] = b"\xff" * 392
    path.write_bytes(content)


def of_epoch_9(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update epoch set epoch = 9")


def of_a_newer_release(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update _sqlite_migrations set name = 'm999_more' where name like 'm023%'")


def another_database(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table numbers (number integer)")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damage, "is damaged"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"not a database, " * 1000), "is damaged"),
        (lambda path: path.write_bytes(path.read_bytes()[:20480]), "is damaged"),
        (of_epoch_9, "says that it is of epoch 9"),
        (of_a_newer_release, "does not know its m999_more"),
        (another_database, "is no ledger of rmsplugin's"),
    ],
)
def test_a_ledger_that_cannot_be_used_is_refused_and_stays_with_those_before_it(
    directory: Path, spoil: Callable[[Path], object], words: str
) -> None:
    for epoch in (2, 3, 4):
        lead_once(directory, epoch, "one")
    spoil(directory / name_of(4))
    before = {path.name: path.read_bytes() for path in ledgers_in(directory)}
    with pytest.raises(LedgerError, match=words):
        take_over(directory, 5, leads=leads)
    assert {path.name: path.read_bytes() for path in ledgers_in(directory)} == before
    (directory / name_of(4)).unlink()
    with leading(directory, 5) as ledger:
        assert messages(ledger) == ["one", "one"], "the way out: the damaged one is moved away"


def test_a_directory_that_had_ledgers_does_not_begin_with_an_empty_one(directory: Path) -> None:
    lead_once(directory, 2, "one")
    (directory / name_of(2)).unlink()
    with pytest.raises(LedgerError, match="there was a ledger in"):
        take_over(directory, 3, leads=leads)


def test_an_epoch_that_is_not_above_all_before_is_refused(directory: Path) -> None:
    lead_once(directory, 7, "one")
    for epoch in (6, 7):
        with pytest.raises(LedgerError, match="engines have led with epoch 7 already"):
            take_over(directory, epoch, leads=leads)


# -- from one host -------------------------------------------------------------------------------------------------


def test_the_ledger_of_one_engine_becomes_that_of_all_controllers_once(directory: Path, tmp_path: Path) -> None:
    local = tmp_path / "ledger.sqlite"
    before = Ledger(local)
    before.event("test", "on one host")
    with leading(directory, 2, local=local) as ledger:
        assert messages(ledger) == ["on one host"]
    before.close()
    assert not local.exists() and (tmp_path / "ledger-before-sharing.sqlite").exists()
    with leading(directory, 3, local=local) as ledger:
        assert messages(ledger) == ["on one host"]
    Ledger(local).close()
    with pytest.raises(LedgerError, match="this host has a ledger of its own"):
        take_over(directory, 4, local=local, leads=leads)


def test_a_backup_comes_back_by_one_host_and_not_under_a_name_in_the_directory(directory: Path, tmp_path: Path) -> None:
    lead_once(directory, 7, "one")
    backup = ledger_care.backup(directory / name_of(7), tmp_path / "backup.sqlite")
    shutil.rmtree(directory)
    directory.mkdir()
    shutil.copy2(backup, directory / name_of(1))
    with pytest.raises(LedgerError, match="says that it is of epoch 7"):
        take_over(directory, 9, leads=leads)
    (directory / name_of(1)).unlink()
    local = Path(shutil.copy2(backup, tmp_path / "ledger.sqlite"))
    with leading(directory, 9, local=local) as ledger:
        assert messages(ledger) == ["one"]


# -- who else reads ------------------------------------------------------------------------------------------------

_OPEN = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('select count(*) from events')"


def test_readers_in_its_own_process_leave_a_ledger_locked_for_all_other_programs(directory: Path) -> None:
    with leading(directory, 2) as ledger:
        ledger.event("test", "one")
        with closing(read_only(ledger.path)) as connection:
            assert connection.execute("select count(*) from events").fetchone() == (1,)
        opened = subprocess.run([sys.executable, "-c", _OPEN, str(ledger.path)], capture_output=True, text=True)
    assert "database is locked" in opened.stderr, opened.stderr


def test_the_nodes_of_the_last_turn_are_those_of_its_actions_and_vms(directory: Path) -> None:
    assert takeover.nodes_of_last_turn(directory) == []
    lead_once(directory, 3, "one")
    columns = "(operation_id, vm, kind, source, destination, state, bytes_done, bytes_total, error, created, ended)"
    with closing(sqlite3.connect(directory / name_of(3))) as db:
        db.execute(
            f"insert into actions {columns} values (1, 'vjob1-0', 'migrate', 'n1', 'n2', 'done', 0, 0, '', 1, 2)"
        )
        db.execute(f"insert into actions {columns} values (1, 'vjob1-0', 'run', '', 'n2', 'done', 0, 0, '', 1, 2)")
        db.commit()
    assert takeover.nodes_of_last_turn(directory) == ["n1", "n2"]
    (directory / name_of(4)).write_bytes(b"no ledger")
    assert takeover.nodes_of_last_turn(directory) == []
