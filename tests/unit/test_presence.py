"""What a path leads to: nothing, something, or it cannot be told."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.history import reading
from rmsplugin.errors import LedgerError, OperationFailedError
from rmsplugin.presence import is_directory, is_file, is_there

TOO_LONG = "x" * 300


def test_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    file, gone = tmp_path / "file", tmp_path / "gone"
    file.touch()
    assert [look(file) for look in (is_there, is_file, is_directory)] == [True, True, False]
    assert [look(tmp_path) for look in (is_there, is_file, is_directory)] == [True, False, True]
    for path in (gone, file / "below"):
        assert not any(look(path) for look in (is_there, is_file, is_directory))


@pytest.mark.parametrize("look", [is_there, is_file, is_directory])
def test_what_cannot_be_looked_at_is_not_absent(tmp_path: Path, look: object) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert callable(look)
    for name in (TOO_LONG, "loop"):
        with pytest.raises(OSError, match=f"{name}'$"):
            look(tmp_path / name)


def test_a_ledger_that_cannot_be_looked_at_is_not_said_to_be_absent(tmp_path: Path) -> None:
    path, there = tmp_path / TOO_LONG, tmp_path / "there"
    with closing(sqlite3.connect(there)):
        there.touch()
    with pytest.raises(LedgerError, match=r"cannot be read: .*too long"):
        ledger_care.backup(path)
    with pytest.raises(LedgerError, match=r"cannot be read: .*too long"), reading(path):
        pytest.fail("it was read")
    with pytest.raises(OperationFailedError, match=r"cannot be copied to .*too long"):
        ledger_care.backup(there, path)
    with pytest.raises(LedgerError, match="is there already"):
        ledger_care.backup(there, there)
