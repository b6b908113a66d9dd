"""An engine that stands still is killed by its manager once it has been silent for too long, and no other one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.manager.children import Children
from rmsplugin.manager.stillness import Stillness

#: An engine that answers a look at its socket; of a group that only begins, it listens nowhere yet.
ENGINE = """\
import contextlib, pathlib, socket, sys, time
from rmsplugin.child_process import killed_with
killed_with(0)
listener = socket.socket(socket.AF_UNIX)
while sys.argv[1].endswith("begins"):
    time.sleep(1)
pathlib.Path(sys.argv[1]).unlink(missing_ok=True)
listener.bind(sys.argv[1])
listener.listen(4)
while True:
    connection, _ = listener.accept()
    with contextlib.suppress(OSError):  # who asked while this process was stopped waits no more
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 200 OK")
    connection.close()
"""
BOUND_S = 36.0


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """A manager's engines, at a time that passes by hand."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.children = Children(lambda name: [sys.executable, "-c", ENGINE, str(directory / name)], 5.0, self.clock)
        self.stillness = Stillness(self.children, lambda name: str(directory / name), BOUND_S, self.clock)

    def pid(self, group: str) -> int | None:
        found: int | None = self.children.views()[group]["pid"]
        return found

    def look_after(self, seconds: float) -> None:
        self.clock.now += seconds
        self.stillness.look_at_engines()

    def ended(self, group: str) -> str:
        """How the engine of a group has ended, as the manager sees it now; empty: it has not."""
        self.children.want([group])
        return self.children.why_ended(group)


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[Seen]:
    made = Seen(tmp_path)
    yield made
    made.children.want(())
    made.clock.now += 1000
    made.children.close()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def started(seen: Seen, directory: Path, group: str) -> int:
    seen.children.want([group])
    until((directory / group).exists, "its socket")
    pid = seen.pid(group)
    assert pid is not None
    return pid


def test_an_engine_that_stands_still_is_killed_after_the_bound_and_started_again(seen: Seen, tmp_path: Path) -> None:
    pid = started(seen, tmp_path, "left")
    os.kill(pid, signal.SIGSTOP)
    seen.look_after(0)
    seen.look_after(BOUND_S - 1)
    assert seen.ended("left") == ""
    seen.look_after(1)
    until(lambda: "signal 9" in seen.ended("left"), "its end")
    seen.clock.now += 10
    assert started(seen, tmp_path, "left") != pid


def test_an_engine_that_answers_again_in_time_is_left_alone(seen: Seen, tmp_path: Path) -> None:
    pid = started(seen, tmp_path, "left")
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        seen.look_after(0)
        seen.look_after(BOUND_S - 1)
        os.kill(pid, signal.SIGCONT)
        seen.look_after(1)
    assert seen.pid("left") == pid and seen.ended("left") == ""


def test_an_engine_that_does_not_listen_yet_is_left_alone(seen: Seen) -> None:
    seen.children.want(["begins"])
    pid = seen.pid("begins")
    for _ in range(3):
        seen.look_after(BOUND_S)
    assert seen.pid("begins") == pid and seen.ended("begins") == ""


def test_the_next_engine_has_the_whole_bound(seen: Seen, tmp_path: Path) -> None:
    first = started(seen, tmp_path, "left")
    os.kill(first, signal.SIGSTOP)
    seen.look_after(0)
    os.kill(first, signal.SIGKILL)
    until(lambda: seen.ended("left"), "its end")
    (tmp_path / "left").unlink()
    seen.clock.now += BOUND_S
    second = started(seen, tmp_path, "left")
    os.kill(second, signal.SIGSTOP)
    seen.look_after(0)
    assert seen.ended("left") == "", "the silence of the one before is not its own"
    os.kill(second, signal.SIGCONT)


def test_a_process_that_has_followed_is_not_killed_for_the_one_before(seen: Seen, tmp_path: Path) -> None:
    pid = started(seen, tmp_path, "left")
    seen.children.kill("left", pid + 1)
    seen.children.kill("right", pid)
    seen.look_after(0)
    assert seen.pid("left") == pid and seen.ended("left") == ""
