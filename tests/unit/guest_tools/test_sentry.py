"""The sentry: what it tells, and whom, when its parent, the wrapper, is stopped and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit import guestbox

TOOLS_PROGRAM = Path(__file__).parents[3] / "rmsplugin/guest_tools/vjob-tools"

# Passes on what it is told, as the wrapper tells it, and says so.
PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
print(child.pid, flush=True)
for line in sys.stdin.buffer:
    child.stdin.write(line)
    child.stdin.flush()
    print("passed on", flush=True)
"""
# Notes what it is started for; the first time that it is to continue the script it fails.
STAND_IN = """#!/bin/sh
test "$3" = continue && ! test -e {0}/failed && touch {0}/failed && exit 1
echo "$1 $3" >>{0}/notes
"""


class Watched:
    """A process with a sentry as its child."""

    def __init__(self, directory: Path) -> None:
        program, self._notes = directory / "stand_in", directory / "notes"
        program.write_text(STAND_IN.format(directory))
        program.chmod(0o755)
        self._notes.touch()
        words = [sys.executable, "-c", PARENT, TOOLS_PROGRAM, "sentry", program]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self._stand_ins = Path(f"/proc/{int(pid := self._output.readline())}/task/{int(pid)}/children")

    def end(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._input.close()
        assert self._process.wait() == 0

    def be_stopped(self) -> None:
        """Be stopped until a process stands in that has not stood in for a stop before."""
        guestbox.wait_until(lambda: not self._stand_ins.read_text(), "the end of the stand-in before")
        before = self.notes().count("stop")
        self._process.send_signal(signal.SIGSTOP)
        guestbox.wait_until(lambda: self.notes().count("stop") > before, "the stand-in")
        self._process.send_signal(signal.SIGCONT)

    def tell(self, *lines: str) -> None:
        """Tell the sentry: it has the lines in its input when this returns."""
        self._input.write("".join(f"{line}\n" for line in lines).encode())
        self._input.flush()
        for _ in lines:
            assert self._output.readline() == b"passed on\n"

    def notes(self) -> list[str]:
        """What was to be done, one word each time."""
        lines = [line.split() for line in self._notes.read_text().splitlines()]
        assert {pid for pid, _ in lines} <= {str(self._process.pid)}
        return [word for _, word in lines]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    watched.end()


@pytest.mark.skipif(not os.access(TOOLS_PROGRAM, os.X_OK), reason="the guest tools are not compiled")
def test_a_stop_that_was_a_suspensions_is_undone_and_no_other(watched: Watched) -> None:
    """The wrapper may be stopped before it can say that the job is being suspended: then it says so when it goes on."""
    watched.be_stopped()
    watched.tell("passed")
    watched.tell("suspended", "continued")
    watched.be_stopped()
    assert "continue" not in watched.notes(), "the wrapper itself had the script go on"
    watched.tell("suspended", "continued")
    guestbox.wait_until(lambda: watched.notes()[-1] == "continue", "the end of the stop")
    watched.tell("suspended", "continued")
    watched.be_stopped()
    assert watched.notes().count("continue") == 1
