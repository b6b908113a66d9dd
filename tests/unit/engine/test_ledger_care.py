"""`rmsplugin ledger`, and an engine's start, on ledgers that are whole, damaged, of other releases, or in use."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from unit.reported import write_settings

from rmsplugin.cli.main import main
from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.errors import LedgerError, LedgerUnavailableError, OperationFailedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of many pages, whose engine has ended."""
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path)
    with ledger.transaction():
        for number in range(2000):
            ledger.event("kind", f"event {number} " + "x" * 100, vjob=str(number))
    ledger.close()
    return path


@pytest.fixture
def config(tmp_path: Path) -> str:
    config = tmp_path / "rmsplugin.toml"
    write_settings(config, tmp_path)
    return str(config)


def random_bytes(path: Path) -> None:
    path.write_bytes(os.urandom(1 << 16))


def truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def damaged_page(path: Path) -> None:
    """A page of an index, in the middle of the file, has become something else."""
    with closing(sqlite3.connect(path)) as connection:
        (size,) = connection.execute("pragma page_size").fetchone()
        (pages,) = connection.execute("pragma page_count").fetchone()
    with path.open("r+b") as file:
        file.seek(pages // 2 * size)
        file.write(os.urandom(size))


DAMAGES = pytest.mark.parametrize("damage", [random_bytes, truncated, damaged_page])


@DAMAGES
def test_an_engine_does_not_start_with_a_damaged_ledger_and_names_the_check(path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    damage(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"is damaged .*`rmsplugin ledger check`"):
        Ledger(path)
    assert path.read_bytes() == before


@DAMAGES
def test_check_says_that_a_damaged_ledger_is_damaged_with_status_1(
    path: Path,
    config: str,
    capsys: pytest.CaptureFixture[str],
    damage,  # type: ignore[no-untyped-def]
) -> None:
    damage(path)
    assert main(["ledger", "check", "--config", config]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"rmsplugin ledger: {path} is damaged: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("words", [("check",), ("query", "--tables", "--ledger")])
@pytest.mark.parametrize("content", [b"{}", b"SQLite format 2\0", bytes(range(256)) * 256], ids=len)
def test_a_file_that_is_no_database_is_refused_with_status_2(
    words: tuple[str, ...], content: bytes, tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "c.json"
    other.write_bytes(content)
    assert main(["ledger", *words, str(other), "--config", config]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"rmsplugin ledger: {other} is no ledger, or its beginning is damaged")


def test_check_of_a_whole_ledger_has_status_0_while_the_engine_writes_it(
    path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Ledger(path)
    with engine.transaction():
        engine.event("kind", "under way")
        assert main(["ledger", "check", "--config", config]) == 0
    engine.event("kind", "goes on")
    engine.close()
    assert capsys.readouterr().out.startswith(f"{path} is whole; its schema (m0")


def test_check_of_what_is_not_there_has_status_2(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "check", "--config", config]) == 2
    assert main(["ledger", "check", str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err == (
        f"rmsplugin ledger: there is no ledger {tmp_path}/ledger.sqlite\n"
        f"rmsplugin ledger: there is no ledger {tmp_path}/other\n"
    )
    assert not (tmp_path / "ledger.sqlite").exists()


def test_check_finds_rows_whose_vjob_is_not_there(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "insert into vjob_failures (job_id, kind, failures, not_before, error) values (7, 'start', 1, 0, '')"
        )
        connection.commit()
    health = ledger_care.check(path)
    assert (health.whole, "of vjob_failures refers to a row of vjobs" in health.sentence) == (False, True)


def test_check_tells_an_index_that_says_something_else_than_its_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma writable_schema = on")
        connection.execute("update sqlite_master set sql = replace(sql, '(vjob)', '(kind)') where name = 'events_vjob'")
        connection.commit()
    assert not ledger_care.check(path).whole


def test_check_of_another_database_a_newer_release_or_an_empty_file(tmp_path: Path, path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table fruit (name text)")
    assert ledger_care.check(other) == ledger_care.Health(
        False, f"{other} is a whole database, but no ledger of rmsplugin's"
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update _sqlite_migrations set name = 'm999_more' where name = 'm007_nodes'")
        connection.commit()
    assert "of a newer release" in ledger_care.check(path).sentence
    empty = tmp_path / "empty"
    empty.touch()
    assert "is empty" in ledger_care.check(empty).sentence


def test_a_backup_is_whole_private_and_of_one_moment_while_the_engine_writes(
    path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Ledger(path)
    with engine.transaction():
        engine.event("kind", "not yet")
        assert main(["ledger", "backup", "--config", config]) == 0
    engine.close()
    (copy,) = path.parent.glob("ledger-backup-*.sqlite")
    assert capsys.readouterr().out == f"{copy} is a copy of {path}\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert sorted(copy.parent.glob(f"{copy.name}*")) == [copy]
    backup = Ledger(copy)
    assert backup.events(limit=1)[0].message.startswith("event 1999 ")
    backup.close()
    assert not list(path.parent.glob("*.new"))


def test_a_backup_overwrites_nothing(
    path: Path, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    there.write_text("precious")
    assert main(["ledger", "backup", str(there), "--config", config]) == 2
    assert there.read_text() == "precious"
    assert capsys.readouterr().err == f"rmsplugin ledger: {there} is there already: it is not overwritten\n"


def test_no_backup_is_kept_of_a_damaged_ledger(path: Path, tmp_path: Path) -> None:
    damaged_page(path)
    with pytest.raises(OperationFailedError, match="no copy is kept"):
        ledger_care.backup(path, tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


def test_a_ledger_that_another_process_has_locked_is_said_to_be_and_works_again_afterwards(path: Path) -> None:
    ledger = Ledger(path, busy_s=0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.raises(LedgerUnavailableError, match="another process has it locked"):
            ledger.event("kind", "lost")
        other.execute("rollback")
    ledger.event("kind", "kept")
    assert ledger.events(limit=1)[0].message == "kept"
    ledger.close()


def test_a_full_disk_undoes_the_whole_transaction(path: Path) -> None:
    ledger = Ledger(path)
    (pages,) = ledger._db.execute("pragma page_count").fetchone()
    ledger._db.execute(f"pragma max_page_count = {pages}")
    before = len(ledger.events(limit=9999))
    with pytest.raises(LedgerUnavailableError, match="no space is left"), ledger.transaction():
        for _ in range(200):
            ledger.event("kind", "x" * 4000)
    assert len(ledger.events(limit=9999)) == before
    ledger.close()
