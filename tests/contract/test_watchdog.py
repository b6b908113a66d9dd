"""The watchdog of a unit: fed by a process whose event loop turns, whatever is silent, and by no other."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from contract.engine_processes import EngineProcess, write_settings
from patience import PATIENCE_S

from rmsplugin.engine.controllers.given_to import MANAGER
from rmsplugin.engine.periodic import Periodic
from rmsplugin.engine.watchdog import Watchdog

#: The word comes five times in this time.
WATCHDOG_S = 1.0


class Manager:
    """A service manager's socket, and what comes to it."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "notify")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)

    def next(self, within_s: float) -> str:
        """The next word; empty: none came in this time."""
        self._socket.settimeout(within_s)
        try:
            return self._socket.recv(4096).decode()
        except TimeoutError:
            return ""

    def fed(self, within_s: float = PATIENCE_S) -> bool:
        """Whether the watchdog is fed in this time; other words may come before."""
        deadline = time.monotonic() + within_s
        while (left := deadline - time.monotonic()) > 0:
            if self.next(left) == "WATCHDOG=1":
                return True
        return False

    def forget(self) -> None:
        """Take what has come already."""
        while self.next(0.001):
            pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    found = Manager(tmp_path)
    monkeypatch.setenv("NOTIFY_SOCKET", found.path)
    monkeypatch.setenv("WATCHDOG_USEC", str(int(WATCHDOG_S * 1e6)))
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    yield found
    found.close()


@contextmanager
def slurm_that_hangs(directory: Path) -> Iterator[None]:
    """Commands that wait for somebody to write to a pipe, and end with this block."""
    gate = directory / "gate"
    os.mkfifo(gate)
    for name in ("squeue", "scontrol", "sacct"):
        program = directory / name
        program.write_text(f"#!/bin/sh\nread line < {gate}\n")
        program.chmod(0o755)
    try:
        yield
    finally:
        # Whoever waits for a writer goes on, and reads the end.
        os.close(os.open(gate, os.O_RDWR | os.O_NONBLOCK))
        with suppress(OSError):
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))


@contextmanager
def ended(engine: EngineProcess) -> Iterator[EngineProcess]:
    try:
        yield engine
    finally:
        engine.end()


def test_an_engine_whose_slurm_is_silent_feeds_it_and_a_stopped_one_does_not(tmp_path: Path, manager: Manager) -> None:
    with slurm_that_hangs(tmp_path), ended(EngineProcess("one", write_settings(tmp_path, ""))) as engine:
        words = [manager.next(PATIENCE_S)]
        while words[-1] != "READY=1":
            assert words[-1], f"it never was ready: {engine.said()}"
            words.append(manager.next(PATIENCE_S))
        assert "WATCHDOG=1" not in words
        assert all(manager.fed() for _ in range(8)), engine.said()
        os.kill(engine.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, engine.process.pid, os.WSTOPPED)
        manager.forget()
        assert not manager.fed(WATCHDOG_S)
        os.kill(engine.process.pid, signal.SIGCONT)
        assert manager.fed()


def feeding(watchdog: Watchdog, periodic: Periodic) -> asyncio.AbstractEventLoop:
    """An event loop in a thread, in which the watchdog is fed as long as turns go on."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    asyncio.run_coroutine_threadsafe(watchdog.feed_while(lambda: periodic.still_s < WATCHDOG_S), loop)
    return loop


def close(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all that runs in the loop, and stop it."""

    def stop() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon(loop.stop)

    loop.call_soon_threadsafe(stop)


def test_an_event_loop_that_stands_still_does_not_feed_it_though_other_threads_live(manager: Manager) -> None:
    turns = Periodic("turns", lambda: None, 0.01)
    turns.start()
    loop, goes_on = feeding(Watchdog(), turns), threading.Event()
    assert manager.fed() and manager.fed()
    standing = threading.Event()
    loop.call_soon_threadsafe(lambda: (standing.set(), goes_on.wait(PATIENCE_S)))
    assert standing.wait(PATIENCE_S)
    manager.forget()
    assert not manager.fed(WATCHDOG_S), "it is fed from the loop only"
    goes_on.set()
    assert manager.fed()
    turns.close()
    close(loop)


def test_a_cycle_that_never_ends_does_not_feed_it(manager: Manager) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        goes_on.wait(PATIENCE_S)

    turns = Periodic("turns", hang, 0.01)
    turns.start()
    loop = feeding(Watchdog(), turns)
    assert begun.wait(PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while turns.still_s < WATCHDOG_S:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    manager.forget()
    assert not manager.fed(WATCHDOG_S)
    turns.close()
    goes_on.set()
    close(loop)


@pytest.mark.parametrize(("usec", "process"), [("", ""), ("0", ""), ("soon", ""), ("1000000", "1"), ("1000000", "")])
def test_it_is_fed_by_the_process_that_is_watched(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, usec: str, process: str
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", process)
    Watchdog().feed()
    assert manager.fed(0.2) == ((usec, process) == ("1000000", ""))
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    Watchdog().feed()
    assert manager.fed(0.2) == (usec == "1000000")


@pytest.mark.parametrize("unit", ["engine", "manager"])
def test_units_have_one_that_takes_no_slow_machine_for_a_dead_process(unit: str) -> None:
    text = (Path(__file__).parents[2] / "contrib" / "systemd" / f"rmsplugin-{unit}.service").read_text()
    assert "\nWatchdogSec=600\n" in text and "\nType=notify\n" in text


def test_a_process_that_its_parent_starts_again_kills_itself_once_the_rest_is_not_well() -> None:
    program = """\
import asyncio
from rmsplugin.engine.watchdog import kill_unless
answers = iter([True, True, True, False, True])
def is_well():
    found = next(answers)
    print(found, flush=True)
    return found
asyncio.run(kill_unless(is_well, 0.01))
print("goes on")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert ended.stdout.split() == ["True", "True", "True", "False"]


class HangingEngine(EngineProcess):
    """An engine whose cycles never end; for it, a second is what half an hour is for others."""

    PROGRAM = """\
import sys, threading
from rmsplugin.cli.main import main
from rmsplugin.engine import daemon
from rmsplugin.engine.cycle import Cycle
daemon._LONGEST_CYCLE_S, daemon.STILL_LOOK_S = 1.0, 0.1
Cycle.run = lambda cycle: threading.Event().wait()
sys.exit(main())
"""


def test_an_engine_of_a_manager_is_killed_where_its_cycles_hang_though_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = write_settings(tmp_path, "", more="cycle_s = 1\n")
    monkeypatch.setenv(MANAGER, "one")
    with slurm_that_hangs(tmp_path), ended(HangingEngine("of-a-manager", settings)) as engine:
        assert engine.process.wait(PATIENCE_S) == -signal.SIGKILL, engine.said()
    assert "no cycle has begun or ended for too long" in engine.said()
    assert "is up; took up" in engine.said(), "it was ready, and so answered"


class SlowToEnd(EngineProcess):
    """An engine that ends for longer than its cycles may stand still."""

    PROGRAM = """\
import asyncio, sys
from rmsplugin.cli.main import main
from rmsplugin.engine import daemon
daemon._LONGEST_CYCLE_S, daemon.STILL_LOOK_S = 1.0, 0.1
ends = daemon.Daemon._let_end
async def waits(engine, told_again):
    await ends(engine, told_again)
    print("cycles go on", engine._cycles_go_on(), file=sys.stderr)
    while engine._cycles.still_s < 3.0:
        await asyncio.sleep(0.05)
    print("cycles go on", engine._cycles_go_on(), file=sys.stderr)
daemon.Daemon._let_end = waits
sys.exit(main())
"""


def test_an_engine_that_waits_for_operations_as_it_ends_is_not_killed_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cycle begins any more from the order to end on; ``engine.stop_wait_s`` may be longer than one may last."""
    monkeypatch.setenv(MANAGER, "one")
    settings = write_settings(tmp_path, "", more="cycle_s = 1\n")
    with slurm_that_hangs(tmp_path), ended(SlowToEnd("slow-to-end", settings)) as engine:
        deadline = time.monotonic() + PATIENCE_S
        while not engine.has_said("is up; took up"):
            assert time.monotonic() < deadline, engine.said()
            time.sleep(0.02)
        os.kill(engine.process.pid, signal.SIGTERM)
        assert engine.process.wait(PATIENCE_S) == 0, engine.said()
    assert engine.said().count("cycles go on True") == 2
