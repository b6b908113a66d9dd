"""Programs: commands of rmsplugin that jobs of the schedule have run, each a process of its own, which is nice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rmsplugin.child_process import environment
from rmsplugin.errors import OperationFailedError

_PROGRAM = "rmsplugin.cli.main"


class Programs:
    """One process at a time, which ends with ``close``."""

    def __init__(self, config: Path) -> None:
        """``config``: the settings file."""
        self._config = config
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def run(self, command: str, *words: str, timeout_s: float, timezone: str = "") -> str:
        """Run a command, and return what it printed.

        Args:
            command: of `rmsplugin`.
            words: its options and arguments.
            timeout_s: a command that takes longer is ended.
            timezone: name of the time zone that the command is in; empty: that of the host.

        Raises:
            OperationFailedError: it cannot be run, takes too long, or ends with another status than 0.
        """
        program = [sys.executable, "-P", "-m", _PROGRAM, command, "--config", str(self._config)]
        argv = ["nice", "-n", "19", *program, *words]
        zone = {"TZ": timezone} if timezone else {}
        process = self._start(argv, {**environment(), **zone, "PYTHONUTF8": "1"})
        try:
            printed, complaint = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self._kill()
            process.communicate()
            raise OperationFailedError(f"`rmsplugin {command}` took longer than {timeout_s:g} s") from None
        finally:
            with self._lock:
                self._process = None
        if process.returncode:
            lines = complaint.strip().splitlines()
            why = lines[-1] if lines else f"it ended with status {process.returncode}"
            raise OperationFailedError(why.removeprefix(f"rmsplugin {command}: "))
        return printed

    def _start(self, argv: Sequence[str], variables: dict[str, str]) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise OperationFailedError("the engine ends")
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    env=variables,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                raise OperationFailedError(f"{argv[0]} cannot be run: {error.strerror}") from None
            return self._process

    def close(self) -> None:
        """End the process that runs, and start no other."""
        with self._lock:
            self._closed = True
        self._kill()

    def _kill(self) -> None:
        with self._lock, suppress(ProcessLookupError):
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)  # sacct, too
