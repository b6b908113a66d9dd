"""An engine is stopped in the middle of what it does at Slurm, and goes on when its session has ended: it does no more.

Slurm knows no epochs: the lease alone keeps a deposed engine from ending a room, with which all VMs there would end.
Each of Slurm's commands here stops the engine that waits for it, if it is the one at which that is to be.
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


@pytest.mark.parametrize(
    ("act", "begun"),
    [
        ("cancel", ["squeue", "scancel 12"]),  # a room's end
        ("requeue", ["squeue", "scontrol requeue 12", "scontrol release 12"]),
        ("resume", ["squeue", "scontrol resume 12"]),
    ],
)
def test_what_is_left_of_an_act_is_not_begun_by_an_engine_that_was_stopped_in_it(
    tmp_path: Path, act: str, begun: list[str]
) -> None:
    for stops_at in range(1, len(begun)):
        directory = tmp_path / str(stops_at)
        directory.mkdir()
        for name in ("squeue", "scontrol", "scancel"):
            text = _COMMAND.replace("DIRECTORY", str(directory)).replace("STOPS_AT", str(stops_at))
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        code, said = _stopped_and_let_go_on(directory, act)
        assert (directory / "begun").read_text().splitlines() == begun[:stops_at], "nothing else has reached Slurm"
        assert code == 1 and said.startswith(("the turn of this engine is over", "one does not lead any more"))


def test_an_engine_that_is_not_stopped_does_all_of_it(tmp_path: Path) -> None:
    for name in ("squeue", "scancel"):
        (tmp_path / name).write_text(_COMMAND.replace("DIRECTORY", str(tmp_path)).replace("STOPS_AT", "9"))
        (tmp_path / name).chmod(0o755)
    engine = _begun(tmp_path, "cancel")
    assert engine.communicate(timeout=PATIENCE_S)[0] == "done\n"
    assert (tmp_path / "begun").read_text().splitlines() == ["squeue", "scancel 12"]


def _begun(directory: Path, act: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, ENGINE, str(directory), str(SESSION_S), act],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rmsplugin.__file__).parents[1])},
    )


def _stopped_and_let_go_on(directory: Path, act: str) -> tuple[int, str]:
    """The exit code of the engine, and what it says at last."""
    engine = _begun(directory, act)
    try:
        _, status = os.waitpid(engine.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        time.sleep(1.5 * SESSION_S)  # its session ends
        engine.send_signal(signal.SIGCONT)
        said, _ = engine.communicate(timeout=PATIENCE_S)
        return engine.returncode, said
    finally:
        engine.kill()
