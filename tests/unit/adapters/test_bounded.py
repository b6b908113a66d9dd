"""A command of an engine that may lose its lease: it begins in time or never, and ends by itself, also if stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters import bounded, bounded_child
from rmsplugin.adapters.bounded import ENDED, run_permitted
from rmsplugin.adapters.command import run_command
from rmsplugin.adapters.lease.clocked import steady_s
from rmsplugin.adapters.rms.slurm_commands import SlurmCommands
from rmsplugin.errors import DeposedError, TimedOutError, UnavailableError

#: Seconds within which a Python process has begun, on any machine.
LONG_S = 600.0


class Permits:
    """Gives a permit until each of these moments, in seconds from now, one after the other; then there is none."""

    def __init__(self, *until_s: float) -> None:
        self.given, self._until_s = 0, until_s

    @contextmanager
    def one(self) -> Iterator[float | None]:
        if self.given == len(self._until_s):
            raise DeposedError("over")
        self.given += 1
        yield steady_s() + self._until_s[self.given - 1]


def program(path: Path, lines: str) -> str:
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return str(path)


def run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_S)


def start(begin_by_s: float, end_by_s: float, *command: str) -> subprocess.Popen[bytes]:
    """Start a command as an engine does that does not end it."""
    now = steady_s()
    own = [sys.executable, "-I", "-S", bounded_child.__file__, str(now + begin_by_s), str(now + end_by_s)]
    return subprocess.Popen([*own, *command], stdin=subprocess.DEVNULL)


def test_a_command_in_time_is_run_as_it_is(tmp_path: Path) -> None:
    lines = 'read -r asked; echo "$asked $KEPT $*"; echo wrong >&2; exit 3'
    done = run_permitted(
        Permits(LONG_S).one,
        [program(tmp_path / "program", lines), "a b", ""],
        LONG_S,
        lambda words: subprocess.run(words, input=b"asked\n", capture_output=True, env={**os.environ, "KEPT": "kept"}),
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"asked kept a b \n", b"wrong\n")


def test_a_caller_that_was_stopped_after_its_look_begins_nothing(tmp_path: Path) -> None:
    permits, begun = Permits(-0.001), tmp_path / "begun"
    with pytest.raises(DeposedError):
        run_permitted(permits.one, ["touch", str(begun)], LONG_S, run)
    assert not begun.exists()


def test_a_command_that_was_too_late_is_begun_with_the_next_permit(tmp_path: Path) -> None:
    permits, begun = Permits(-0.001, LONG_S), tmp_path / "begun"
    assert run_permitted(permits.one, ["touch", str(begun)], LONG_S, run).returncode == 0
    assert begun.exists() and permits.given == 2


def test_a_command_that_was_begun_in_time_has_its_time_after_the_permit_has_ended() -> None:
    until = steady_s() + 2.0

    @contextmanager
    def permit() -> Iterator[float]:
        nonlocal until
        until = max(until, steady_s() + 0.5)  # where the last one was too late
        yield until

    assert run_permitted(permit, ("sleep", "2.5"), LONG_S, run).returncode == 0
    assert steady_s() > until


def test_a_command_whose_end_is_over_before_it_begins_ends_at_once() -> None:
    assert start(LONG_S, -1.0, "sleep", "600").wait(PATIENCE_S) == -ENDED


@pytest.mark.parametrize("blocked", [(), (ENDED,)], ids=["", "where its signal is blocked"])
def test_a_command_ends_by_itself_when_nobody_ends_it(blocked: tuple[signal.Signals, ...]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        process = start(LONG_S, 0.5, "sleep", "600")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert process.wait(PATIENCE_S) == -ENDED


def test_a_command_that_was_stopped_for_too_long_does_nothing_when_it_goes_on(tmp_path: Path) -> None:
    late = tmp_path / "late"
    stops = program(tmp_path / "program", f"kill -STOP $$; touch {late}")
    for end_by_s in (1.0, 4.0, 16.0, 64.0):
        process = start(LONG_S, end_by_s, stops)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):  # else the machine was too slow
            break
    time.sleep(end_by_s + 0.1)
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_S) == -ENDED
    assert not late.exists()


def test_a_command_is_told_of_a_pipe_that_nobody_reads() -> None:
    """As one that is started without this program: Python ignores that signal, and who is started by it would, too."""
    ignored = ("grep", "SigIgn", "/proc/self/status")
    assert run_permitted(Permits(LONG_S).one, ignored, LONG_S, run).stdout == run(ignored).stdout


def by_slurm(directory: Path, permit: bounded.Permit) -> None:
    SlurmCommands(str(directory), LONG_S, (), permit).act("scontrol")


def by_a_site(directory: Path, permit: bounded.Permit) -> None:
    run_command([str(directory / "scontrol")], timeout_s=LONG_S, permit=permit)


@pytest.mark.parametrize(("act", "error"), [(by_slurm, UnavailableError), (by_a_site, TimedOutError)])
def test_what_ended_a_command_is_told_if_the_caller_may_still_act(
    tmp_path: Path, act: Callable[[Path, bounded.Permit], None], error: type[Exception]
) -> None:
    program(tmp_path / "scontrol", f"kill -{int(ENDED)} $$")
    with pytest.raises(error, match=r"in time$"):
        act(tmp_path, Permits(LONG_S, LONG_S).one)
    with pytest.raises(DeposedError):
        act(tmp_path, Permits(LONG_S).one)
