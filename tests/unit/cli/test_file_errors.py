"""A file that cannot be written or read is named: its errors name no file, and passed for those of standard output."""

from __future__ import annotations

import errno
import io
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from unit.cli.test_cli import ACCESS, FakeEngine, engine, site

from rmsplugin.cli.main import main
from rmsplugin.cli.report import own
from rmsplugin.cli.setup.writing import Owner, Writer
from rmsplugin.errors import RefusedError

__all__ = ["engine", "site"]  # fixtures

QUESTION = {"since": None, "until": None, "user": (), "account": (), "partition": (), "job": ()}


@contextmanager
def full() -> Iterator[None]:
    """No file takes a byte, and that is known only when one is written; standard output is no file here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fetch(monkeypatch: pytest.MonkeyPatch, text: str) -> Any:
    """The report of an engine whose answer is this text."""
    monkeypatch.setattr(own, "pieces_of", lambda *_: iter([text]))
    engine: Any = SimpleNamespace(begin_report=lambda _: 1)
    arguments: Any = SimpleNamespace(**QUESTION)
    return own.own_report(engine, arguments, lives=False, show=lambda *_: None)


@pytest.mark.parametrize("length", [10, 1 << 20], ids=["when it is read", "while it comes"])
def test_a_report_that_finds_no_room_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        full(),
        pytest.raises(RefusedError, match=f"^temporary file in {tmp_path}: File too large$"),
        fetch(monkeypatch, "x" * length),
    ):
        pass


def test_a_report_for_which_there_is_no_directory_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    with full(), pytest.raises(RefusedError, match=r"^temporary file: No usable"), fetch(monkeypatch, "x"):
        pass


def test_a_report_that_cannot_be_read_back_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    class Damaged(io.StringIO):
        def __next__(self) -> NoReturn:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(own, "head_of", str)
    report = own.OwnReport(Damaged("head\njob\n"), "place")
    with pytest.raises(RefusedError, match=r"^place: Input/output error$"):
        list(report.rows())


def test_an_output_that_fails_while_a_report_is_there_is_none_of_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "head_of", str)
    with pytest.raises(OSError, match="No space left on device"), fetch(monkeypatch, "head\n"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_setup_says_which_file_it_cannot_write_and_leaves_nothing(tmp_path: Path) -> None:
    owner: Any = SimpleNamespace(ids=lambda: (os.getuid(), os.getgid()))
    with full(), pytest.raises(RefusedError, match=f"^{tmp_path}/etc/site.lua: File too large$"):
        Writer(False, tmp_path).file(Path("/etc/site.lua"), b"content", "a file", owner=owner)
    assert list((tmp_path / "etc").iterdir()) == []


def test_setup_says_which_file_it_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> NoReturn:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(RefusedError, match=f"^{tmp_path}/site.lua: Input/output error$"):
        Writer(False, tmp_path).file(Path("/site.lua"), b"content", "a file", owner=Owner())


def test_ssh_says_which_file_it_cannot_write(
    site: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.lay("/v1/jobs/12/access", ACCESS)
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(site / "rmsplugin.toml"))
    monkeypatch.setattr(tempfile, "tempdir", str(site))
    with full():
        assert main(["ssh", "12"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"rmsplugin ssh: {site}/rmsplugin-ssh-") and said.endswith("/key: File too large\n")
    assert not list(site.glob("rmsplugin-ssh-*"))
