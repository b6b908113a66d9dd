"""`rmsplugin top`: one screen with the engine, the nodes and the queue, by the real service."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from rich.console import Console
from unit.cli.test_cli import SETTINGS
from unit.served import Served

from rmsplugin.cli.live.top import Seen, screen
from rmsplugin.cli.main import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rmsplugin.toml"


@pytest.fixture
def served(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    served = Served(tmp_path)
    file.write_text(SETTINGS.format(socket=served.socket))
    monkeypatch.setenv("RMSPLUGIN_CONFIG", str(file))
    yield served
    served.close()


def drawn(seen: Seen, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=120)
    console.print(screen(seen, height))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": "idle", "room": "held", "vms": 1, "cpus": 4, "cpus_used": 2, "reason": "", **more}


def vjob(job: int, state: str, **more: Any) -> dict[str, Any]:
    return {"job_id": job, "display_id": str(job), "user": "alice", "state": state, "submitted": 1.0, **more}


def test_one_screen_has_engine_nodes_and_queue(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    running = served.world.running()
    waits = served.world.submit(vms=1, constraints={"nodes": "n9"})
    served.world.tick()
    assert main(["top", "--once"]) == 0
    out = capsys.readouterr().out
    assert "1 running, 1 waiting" in out and "NODE" in out
    rows = {words[0]: words for line in out.splitlines() if (words := line.split())}
    assert rows[str(running)][3] == "running" and rows[str(waits)][3] == "waiting"
    assert {"n1", "n2", "n3"} <= rows.keys() and "#" in out


def test_what_is_wrong_comes_first_and_what_does_not_fit_is_counted() -> None:
    nodes = [node(f"n{number}") for number in range(1, 40)] + [node("z9", reason="does not answer")]
    vjobs = [vjob(number, "running") for number in range(1, 50)]
    vjobs += [
        vjob(60, "waiting", position=2),
        vjob(61, "waiting", position=1),
        vjob(62, "suspending", operation={"kind": "suspend"}),
    ]
    lines = drawn(Seen({}, nodes, vjobs), 30)
    assert len(lines) <= 30
    words = [line.split()[0] for line in lines if line]
    assert words[words.index("NODE") + 1] == "z9"
    first = words.index("JOBID") + 1
    assert words[first : first + 3] == ["62", "61", "60"]
    text = "\n".join(lines)
    assert re.search(r"and \d+ more nodes", text) and re.search(r"and \d+ more vjobs", text)


def test_a_short_queue_leaves_its_lines_to_the_nodes() -> None:
    lines = drawn(Seen({}, [node(f"n{number}") for number in range(1, 21)], [vjob(1, "running")]), 28)
    assert "more nodes" not in "\n".join(lines) and len(lines) <= 28


def test_an_engine_that_does_not_answer_is_told_above_what_was_last_seen() -> None:
    lines = drawn(Seen({}, [node("n1")], [], "the engine did not answer"), 20)
    assert "the engine did not answer" in lines[1] and any(line.startswith("n1 ") for line in lines)


def test_no_engine_at_all_is_one_line_and_status_1(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(SETTINGS.format(socket=tmp_path / "none.sock"))
    assert main(["top", "--once", "--config", str(file)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_on_a_terminal_it_goes_on_until_it_is_interrupted(served: Served, file: Path) -> None:
    served.world.tick()
    ours, theirs = pty.openpty()
    program = Path(sys.executable).parent / "rmsplugin"
    command = [str(program), "top", "-d", "0.1"]
    top = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + PATIENCE_S
    while shown.count(b"engine ") < 3:
        assert time.monotonic() < deadline, shown
        shown += os.read(ours, 65536)
    top.send_signal(signal.SIGINT)
    while True:
        try:
            if not (more := os.read(ours, 65536)):
                break
        except OSError:  # nobody has the other end any more
            break
        shown += more
    assert top.wait(PATIENCE_S) == 130
    os.close(ours)
    assert shown.rstrip().endswith((b"\x1b[?1049l\x1b[?25h", b"\x1b[?25h\x1b[?1049l")), "the terminal is as it was"
