"""`rmsplugin engine` as a process, without Slurm and without nodes: what it says, and whether it answers."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import time
from pathlib import Path

from patience import PATIENCE_S

import rmsplugin

#: Where the release is that is tested.
CODE = Path(rmsplugin.__file__).parents[1]
SETTINGS = """\
[engine]
user = "{user}"
state_dir = "{directory}/state"
socket = "{directory}/engine.sock"
listen = "{listen}"
{more}[cluster]
{cluster}
[slurm]
partitions = ["vjob"]
bin_dir = "{directory}"
command_timeout_s = 0.5
[partition.vjob]
hosts = "vmhosts"
[network]
pool = "10.0.0.10 - 10.0.0.20"
prefix_length = 24
[image.default]
kind = "kernel"
kernel = "/k"
initrd = "/i"
"""
_PROGRAM = "import sys; from rmsplugin.cli.main import main; sys.exit(main())"


def write_settings(directory: Path, cluster: str, listen: str = "", more: str = "") -> Path:
    """``more``: lines for the section of the engine."""
    path = directory / "rmsplugin.toml"
    user = pwd.getpwuid(os.geteuid()).pw_name
    path.write_text(SETTINGS.format(user=user, directory=directory, cluster=cluster, listen=listen, more=more))
    return path


class EngineProcess:
    """An engine of its own; ``settings``: its file; ``code``: where its release is; ``group``: empty: all."""

    COMMAND = "engine"
    PROGRAM = _PROGRAM

    def __init__(self, name: str, settings: Path, code: Path = CODE, *, group: str = "") -> None:
        self.name, self._directory = name, settings.parent
        self._log = self._directory / f"{name}{group and '-'}{group}.log"
        of_group = ["--group", group] if group else []
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", self.PROGRAM, self.COMMAND, "--config", str(settings), *of_group],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(code)},
                cwd=code,
            )

    def said(self) -> str:
        return self._log.read_text()

    def has_said(self, words: str) -> bool:
        assert self.process.poll() is None or words in self.said(), f"{self.name} has ended: {self.said()}"
        return words in self.said()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class ManagerProcess(EngineProcess):
    """A manager of its own, with the engines of its groups."""

    COMMAND = "manager"

    def engines(self) -> list[int]:
        """The processes of its engines."""
        found = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for children in found for pid in children.read_text().split()]

    def wait_for(self, words: str) -> None:
        """Wait until it has said this."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.has_said(words):
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)


def answers(directory: Path, name: str = "engine.sock") -> bool:
    """Whether an engine answers requests there."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(10)
        try:
            asked.connect(str(directory / name))
            asked.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return asked.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False
