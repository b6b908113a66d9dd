"""What `GET /v1/status` and `rmsplugin status` say of an engine that is not well, and with which exit code."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.adapters import munge
from rmsplugin.api.binding import Engine
from rmsplugin.cli.live import status
from rmsplugin.cli.main import main
from rmsplugin.client import EngineClient
from rmsplugin.decision.reasons import cpu_seconds, starts_within
from rmsplugin.errors import NoMungeError, SettingsError


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    settings(tmp_path, monkeypatch, served.socket)
    yield served
    served.close()


def settings(directory: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    path = directory / "rmsplugin.toml"
    path.write_text(SETTINGS.format(socket=address))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(path))


def hangs(payload: bytes) -> str:
    threading.Event().wait(5.0)
    raise NoMungeError("munged does not answer")


def dies(payload: bytes) -> str:
    raise NoMungeError("munged does not answer: Connection refused")


def test_an_engine_whose_cycles_run_is_well(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.world.tick()
    assert served.ask("GET", "/v1/status")[1]["ills"] == []
    assert main(["status"]) == 0 and capsys.readouterr().err == ""


def test_a_cycle_that_could_not_look_is_status_1(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    served.world.tick()
    served.world.cycle.report.failed = True
    served.world.cycle.report.problems.append("slurmctld does not answer")
    assert main(["status"]) == main(["status", "--json"]) == 1
    assert capsys.readouterr().err.startswith("rmsplugin status: the last cycle failed: slurmctld does not answer\n")


@pytest.mark.parametrize("ran", [True, False])
def test_a_cycle_that_is_long_ago_is_status_1(served: Served, capsys: pytest.CaptureFixture[str], ran: bool) -> None:
    if ran:
        served.world.tick()
        served.world.cycle.report.time -= 1000
    else:
        served.service._answers._started -= 1000
    assert main(["status"]) == 1
    assert "no cycle has " in capsys.readouterr().err


def test_an_engine_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        settings(tmp_path, monkeypatch, str(path))
        monkeypatch.setattr(status, "_ANSWER_S", 0.2)
        assert main(["status"]) == 1
        assert capsys.readouterr().err == f"rmsplugin status: the engine at {path} did not answer within 0.2 s\n"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SettingsError("slurm.partitions is missing"), 2, "slurm.partitions is missing\n"),
        (ValueError("odd"), 1, "unexpected ValueError: odd"),  # and a thread prints no traceback
    ],
)
def test_what_is_wrong_with_the_settings_is_said_however_long_the_host_takes_to_read_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    """Seen at a load of 15: wrong settings ended as a silent engine does."""
    busy = threading.Event()

    def find(config: str | None) -> Engine:
        busy.wait(0.3)
        raise error

    monkeypatch.setattr(status, "_ANSWER_S", 0.05)
    monkeypatch.setattr(status, "find_engine", find)
    assert main(["status"]) == code
    assert capsys.readouterr().err.startswith(f"rmsplugin status: {said}")


def test_settings_that_nobody_can_read_are_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "_SETTINGS_S", 0.1)
    monkeypatch.setattr(status, "find_engine", lambda config: threading.Event().wait(3.0))
    assert main(["status"]) == 1
    assert "the settings file was not read within 0.1 s" in capsys.readouterr().err


class Silent(EngineClient):
    """The way to an engine on another host whose request waits for munge, which hangs or has died."""

    def request(self, *words: Any, **options: Any) -> dict[str, Any]:
        munge.encode(b"")
        raise AssertionError("munge has answered")


@pytest.mark.parametrize(
    ("munge_says", "said"),
    [
        (
            hangs,
            "the engine at front2:6830 did not answer within 0.4 s; munge on this host does not answer either, and ",
        ),
        (dies, "munged does not answer: Connection refused; "),
    ],
)
def test_a_host_without_munge_is_told_what_is_wrong_with_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    munge_says: Callable[[bytes], str],
    said: str,
) -> None:
    """Seen on a controller that stood by: the engine did not answer within 2 s, it said, and nothing of munge."""
    monkeypatch.setattr(munge, "encode", munge_says)
    monkeypatch.setattr(status, "_ANSWER_S", 0.4)
    far = Silent([("front2", 6830)], unix_path="", engine_uid=0, munge_socket="")
    monkeypatch.setattr(status, "find_engine", lambda config: Engine([far]))
    assert main(["status", "--config", str(tmp_path / "none")]) == 1
    ends = "without it nobody on another host can be asked from here: see `systemctl status munge`, and start it again"
    assert capsys.readouterr().err == f"rmsplugin status: {said}{ends}\n"


def test_no_sentence_of_a_decision_is_absurd() -> None:
    assert starts_within(3600.0 * 5) == "reserved to start in at most 5 hours"
    assert "365" not in starts_within(365 * 86400.0)
    assert cpu_seconds(-3554.95) == "nothing" and cpu_seconds(40.4) == "40 CPU-seconds"
