"""The engines of a manager's groups, as processes: they run while they are wanted, and no longer than the manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.manager.backoff import MOST_S, Backoff
from rmsplugin.manager.children import Children
from rmsplugin.manager.said import Said, pipe

#: An engine that ends when it is told to, and leaves its number in a file.
ENGINE = """\
import os, pathlib, signal, sys, time
from rmsplugin.child_process import killed_with
killed_with(0)
if sys.argv[1].endswith("deaf"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
if sys.argv[1].endswith("failing"):
    print("2026-11-28 09:00:00,123 WARNING x: group", sys.argv[1] + ": not well", file=sys.stderr)
    print("rmsplugin engine --group", sys.argv[1] + ": the ledger is damaged", file=sys.stderr)
    print("2026-11-28 09:00:00,125 INFO x: group", sys.argv[1] + ": it is over", file=sys.stderr)
    sys.exit(3)
while True:
    time.sleep(1)
"""
#: A manager with two engines, which says when they run.
MANAGER = """\
import pathlib, sys, time
from rmsplugin.manager.children import Children
names = sys.argv[2:]
children = Children(lambda name: [sys.executable, "-c", sys.argv[1], name], 5.0)
children.want(names)
while not all(pathlib.Path(name).exists() for name in names):
    time.sleep(0.01)
print("up", flush=True)
time.sleep(600)
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def children(clock: Clock) -> Iterator[Children]:
    made = Children(lambda name: [sys.executable, "-c", ENGINE, name], 5.0, clock)
    yield made
    made.want(())
    clock.now += 1000
    made.close()


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def up(*names: str) -> list[int]:
    until(lambda: all(Path(name).exists() and Path(name).read_text() for name in names), "engines")
    return [int(Path(name).read_text()) for name in names]


def test_engines_run_while_their_groups_are_wanted(children: Children, tmp_path: Path) -> None:
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    children.want([a, b])
    first, second = up(a, b)
    children.want([b])
    until(lambda: not runs(first), "the end of the first")
    children.want([b])
    assert runs(second)
    assert children.views() == {b: {"pid": second, "restarts": 0, "last_end": ""}}


def test_all_engines_die_with_a_manager_that_is_killed(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("a", "deaf", "c")]
    manager = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(MANAGER), ENGINE, *names],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with manager:
        assert manager.stdout is not None
        assert manager.stdout.readline() == b"up\n"
        pids = up(*names)
        manager.kill()
    until(lambda: not any(map(runs, pids)), "the end of all engines")


def test_an_engine_that_ends_is_started_again_and_one_that_fails_ever_more_seldom(
    children: Children, clock: Clock, tmp_path: Path
) -> None:
    a, failing = str(tmp_path / "a"), str(tmp_path / "failing")
    children.want([a, failing])
    first, failed = up(a, failing)
    os.kill(first, signal.SIGKILL)
    until(lambda: not runs(first) and not runs(failed), "their ends")
    children.want([a, failing])
    assert children.views()[a] == {"pid": None, "restarts": 1, "last_end": "was ended by signal 9"}
    assert children.views()[failing]["last_end"] == "ended with status 3: the ledger is damaged"
    assert children.why_ended(failing) == "ended with status 3: the ledger is damaged"
    assert children.why_ended("x") == ""
    for name in (a, failing):
        Path(name).unlink()
    children.want([a, failing])
    assert children.views()[a]["pid"] is None, "it is not started at once"
    clock.now += 1.0
    children.want([a, failing])
    assert up(a)[0] != first


def test_an_engine_that_does_not_end_is_killed_when_it_has_had_its_time(
    children: Children, clock: Clock, tmp_path: Path
) -> None:
    deaf = str(tmp_path / "deaf")
    children.want([deaf])
    (pid,) = up(deaf)
    children.want(())
    clock.now += 4.9
    children.want(())
    assert runs(pid)
    clock.now += 0.2
    children.want(())
    until(lambda: not runs(pid), "its end")


def test_what_an_engine_says_is_passed_on_in_whole_lines(
    children: Children, clock: Clock, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = str(tmp_path / "failing")
    children.want([failing])
    until(lambda: "it is over" in capfd.readouterr().err, "its last line")
    up(failing)


def test_an_engine_never_waits_for_the_manager(tmp_path: Path) -> None:
    read, write = pipe()
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, b"x" * 4096)
    os.close(write)
    said = Said("a", read)
    assert set(said.last_sentence()) == {"x"}


def test_an_engine_that_cannot_be_started_is_said_and_tried_again(clock: Clock) -> None:
    none = Children(lambda name: ["/no/such/program"], 5.0, clock)
    none.want(["a"])
    assert none.views()["a"]["last_end"] == "could not be started: No such file or directory"
    none.close()


def test_pauses_double_up_to_a_bound_and_a_steady_engine_is_forgiven() -> None:
    found, pauses = Backoff(), []
    for _ in range(9):
        found = found.ended(1.0)
        pauses.append(found.pause_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert found.pause_s == MOST_S
    assert found.ended(60.0).pause_s == 1.0
