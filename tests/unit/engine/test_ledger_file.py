"""Opening the ledger's file: newer releases' are refused, older ones copied before they are migrated."""

from __future__ import annotations

import os
import pwd
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils
from sqlite_utils import Migrations

from rmsplugin.engine import daemon
from rmsplugin.engine.ledger import ledger_file
from rmsplugin.engine.ledger import migrations as schema
from rmsplugin.errors import LedgerError
from rmsplugin.settings import Settings


def release(*steps: str, broken: str = "") -> Migrations:
    """The schema of a release with these steps behind today's; ``broken`` makes a table and then fails."""
    made = Migrations(schema.migrations.name)
    for migration in schema.migrations.pending(sqlite_utils.Database(memory=True)):
        made(name=migration.name)(migration.fn)

    def add(name: str) -> None:
        def step(db: sqlite_utils.Database) -> None:
            db.execute(f"create table {name} (id integer)")
            if name == broken:
                raise sqlite3.OperationalError("this step is broken")

        made(name=name)(step)

    for name in steps:
        add(name)
    return made


def open_as(monkeypatch: pytest.MonkeyPatch, path: Path, migrations: Migrations) -> set[str]:
    """Open the ledger as that release; returns its tables."""
    monkeypatch.setattr(ledger_file, "migrations", migrations)
    db = ledger_file.open_database(path)
    tables = set(db.table_names())
    db.close()
    return tables


def copies(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*-before-*"), key=lambda copy: copy.stat().st_mtime_ns)


def test_a_ledger_of_a_newer_release_is_refused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    open_as(monkeypatch, path, release("m998_more", "m999_yet_more"))
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"newer release.* does not know its m998_more, m999_yet_more\)"):
        open_as(monkeypatch, path, release())
    assert path.read_bytes() == before
    assert copies(path) == []


def test_an_older_ledger_is_copied_for_its_owner_alone_before_it_is_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.sqlite"
    open_as(monkeypatch, path, release())
    with closing(sqlite3.connect(path)) as writer:  # open: what it wrote last is not in the file itself yet
        writer.execute("insert into events values (1, 2.0, '', '', '', 'kind', 'kept')")
        writer.commit()
        assert "more" in open_as(monkeypatch, path, release("more"))
    (copy,) = copies(path)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert copy.suffix == ".sqlite"
    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("select message from events").fetchall() == [("kept",)]
        assert copied.execute("select name from sqlite_master where name = 'more'").fetchall() == []


def test_the_newest_copies_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    steps = [f"step{number}" for number in range(ledger_file.COPIES + 3)]
    for count in range(len(steps)):
        open_as(monkeypatch, path, release(*steps[:count]))
    kept = copies(path)
    assert len(kept) == ledger_file.COPIES
    with closing(sqlite3.connect(kept[-1])) as newest:
        assert newest.execute("select name from sqlite_master where name = ?", [steps[-3]]).fetchall()


def test_a_ledger_that_is_new_or_up_to_date_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    for _ in range(2):
        open_as(monkeypatch, path, release())
    assert copies(path) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_step_that_fails_takes_the_steps_before_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    tables = open_as(monkeypatch, path, release())
    with pytest.raises(LedgerError, match="this step is broken"):
        open_as(monkeypatch, path, release("good", "bad", broken="bad"))
    assert open_as(monkeypatch, path, release()) == tables


def test_without_a_copy_nothing_is_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.sqlite"
    tables = open_as(monkeypatch, path, release())

    def full(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_file, "_flush", full)
        with pytest.raises(LedgerError, match="No space left"):
            open_as(patch, path, release("more"))
    assert copies(path) == []
    assert open_as(monkeypatch, path, release()) == tables


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_text("something else, which is long enough not to be taken for an empty database" * 20)
    with pytest.raises(LedgerError, match=rf"{path} is damaged .*not a database"):
        ledger_file.open_database(path)


def test_an_engine_refuses_a_newer_ledger_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_as(monkeypatch, tmp_path / "ledger.sqlite", release("m999_more"))
    monkeypatch.setattr(ledger_file, "migrations", schema.migrations)
    settings = Settings.model_validate(
        {
            "engine": {"state_dir": tmp_path, "user": pwd.getpwuid(os.geteuid()).pw_name},
            "slurm": {"partitions": ["vjob"], "adapter": "cli"},
            "partition": {"vjob": {"hosts": "vmhosts"}},
            "network": {"pool": "10.0.0.10-10.0.0.20", "prefix_length": 24},
            "image": {"default": {"kind": "kernel", "kernel": "/k", "initrd": "/i"}},
        }
    )
    assert daemon.main(settings, tmp_path / "rmsplugin.toml") == 2
    assert "newer release" in capsys.readouterr().err
