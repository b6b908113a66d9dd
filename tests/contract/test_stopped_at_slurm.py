"""An engine is stopped in the middle of what it does at Slurm, and goes on when its session has ended: it does no more.

Slurm knows no epochs. So what keeps a deposed engine from an act there is its own look at the lease, before each
command, and the time that each command has, by which it does not begin, or ends, whoever waits for it. Here one of
Slurm's commands stops the engine that waits for it; or the engine is stopped right after its look, before the command.
Rooms that run are ended by their nodes, which know epochs; by `scancel`, as here, only those that do not run yet, or
whose node cannot end them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from patience import PATIENCE_S

import rmsplugin

ENGINE = Path(__file__).parent / "engine_at_slurm.py"
SESSION_S = 1.0
_COMMAND = """\
#!/bin/sh
echo "${0##*/}" "$@" >>"DIRECTORY/begun"
[ "$(wc -l <"DIRECTORY/begun")" -ne STOPS_AT ] || kill -STOP $PPID
"""


#: Acts, and all commands of each.
ACTS = [
    ("cancel", ["squeue", "scancel 12"]),  # a room's end
    ("requeue", ["squeue", "scontrol requeue 12", "scontrol release 12"]),
    ("resume", ["squeue", "scontrol resume 12"]),
]


@pytest.mark.parametrize(("act", "begun"), ACTS)
def test_what_is_left_of_an_act_is_not_begun_by_an_engine_that_was_stopped_in_it(
    tmp_path: Path, act: str, begun: list[str]
) -> None:
    for stops_at in range(1, len(begun)):
        directory = tmp_path / str(stops_at)
        directory.mkdir()
        _write_commands(directory, stops_at)
        code, said = _stopped_and_let_go_on(directory, act)
        assert (directory / "begun").read_text().splitlines() == begun[:stops_at], "nothing else has reached Slurm"
        assert code == 1 and said.startswith(("the turn of this engine is over", "one does not lead any more"))


@pytest.mark.parametrize(("act", "begun"), ACTS)
def test_a_command_is_not_begun_by_an_engine_that_was_stopped_between_its_look_at_the_lease_and_the_command(
    tmp_path: Path, act: str, begun: list[str]
) -> None:
    """Seen: a loaded machine stopped an engine just there, which began a requeue while the next one led."""
    for look in range(2, len(begun) + 1):  # the first command asks only
        directory = tmp_path / str(look)
        directory.mkdir()
        _write_commands(directory)
        code, said = _stopped_and_let_go_on(directory, act, str(look))
        assert (directory / "begun").read_text().splitlines() == begun[: look - 1]
        assert code == 1 and said.startswith(("the turn of this engine is over", "one does not lead any more"))


def test_an_engine_that_is_not_stopped_does_all_of_it(tmp_path: Path) -> None:
    _write_commands(tmp_path)
    engine = _begun(tmp_path, "cancel")
    assert engine.communicate(timeout=PATIENCE_S)[0] == "done\n"
    assert (tmp_path / "begun").read_text().splitlines() == ["squeue", "scancel 12"]


def _write_commands(directory: Path, stops_at: int = 9) -> None:
    """Slurm's commands, the last of which stops the engine when so many were begun."""
    for name in ("squeue", "scontrol", "scancel"):
        text = _COMMAND.replace("DIRECTORY", str(directory)).replace("STOPS_AT", str(stops_at))
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)


def _begun(directory: Path, act: str, *look: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, ENGINE, str(directory), str(SESSION_S), act, *look],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])},
    )


def _stopped_and_let_go_on(directory: Path, act: str, *look: str) -> tuple[int, str]:
    """The exit code of the engine, and what it says at last."""
    engine = _begun(directory, act, *look)
    try:
        _, status = os.waitpid(engine.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(1.5 * SESSION_S)  # its session ends
        engine.send_signal(signal.SIGCONT)
        said, _ = engine.communicate(timeout=PATIENCE_S)
        return engine.returncode, said
    finally:
        engine.kill()
