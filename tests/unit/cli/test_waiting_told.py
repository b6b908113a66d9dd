"""Whoever sits at a terminal learns within a few seconds that the engine does not answer yet; a script does not."""

from __future__ import annotations

import os
import pty
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import pytest
from patience import PATIENCE_S
from unit.cli.test_cli import SETTINGS, Answer, FakeEngine

from rmsplugin.cli.main import main
from rmsplugin.cli.shared import waiting


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    (tmp_path / "rmsplugin.toml").write_text(SETTINGS.format(socket=tmp_path / "engine.sock"))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(tmp_path / "rmsplugin.toml"))
    monkeypatch.setattr(waiting, "_SOON_S", 0.05)
    fake = FakeEngine(tmp_path / "engine.sock")
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


@contextmanager
def terminal() -> Iterator[int]:
    """Standard error is a terminal, whose other side this is."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as stream, redirect_stderr(stream):
        yield master
    os.close(master)


@pytest.mark.parametrize("words", ["vjobs", "nodes", "events", "pause", "top --once"])
def test_a_terminal_is_told_of_an_engine_that_does_not_answer_yet(
    engine: FakeEngine, tmp_path: Path, words: str
) -> None:
    told, held = bytearray(), threading.Event()

    def answer(query: dict[str, str]) -> Answer:
        held.wait(PATIENCE_S)
        return 503, {"error": "it is enough"}

    for path in ("vjobs", "nodes", "events", "pause", "status"):
        engine.answers[f"/v1/{path}"] = answer
    with terminal() as screen:
        command = threading.Thread(target=main, args=(words.split(),))
        command.start()
        ready, _, _ = select.select([screen], [], [], PATIENCE_S)
        while ready and b"\n" not in told:
            told += os.read(screen, 4096)
        held.set()
        command.join(PATIENCE_S)
    place = f"the engine at {tmp_path}/engine.sock"
    sentence = f"rmsplugin {words.split()[0]}: {place} does not answer yet; it is waited for up to 30 s"
    assert told.decode().splitlines()[0] == sentence


def test_a_script_is_told_nothing_while_it_waits(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(query: dict[str, str]) -> Answer:
        threading.Event().wait(0.3)  # several times as long as a terminal is left without a word
        return 200, {"nodes": []}

    engine.answers["/v1/nodes"] = answer
    assert main(["nodes"]) == 0
    assert capsys.readouterr().err == ""


def test_a_request_that_takes_long_by_its_nature_is_waited_for_in_silence(
    engine: FakeEngine,
) -> None:
    def answer(query: dict[str, str]) -> Answer:
        threading.Event().wait(0.3)
        return 503, {"error": "no turn"}

    engine.answers["/v1/jobs/12/usage"] = answer
    with terminal() as screen:
        assert main(["usage", "12"]) == 1
        assert os.read(screen, 4096) == b"rmsplugin usage: no turn\r\n"
