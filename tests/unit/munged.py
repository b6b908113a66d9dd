"""A munged of the tests' own."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from patience import PATIENCE_S


class Munged:
    """A munged of our own."""

    def __init__(self, directory: Path) -> None:
        key = directory / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.socket = str(directory / "munge.sock")
        self._log = (directory / "munged.log").open("wb")
        self._process = subprocess.Popen(
            [
                *("munged", "--force", "--foreground", f"--socket={self.socket}", f"--key-file={key}"),
                *(f"--pid-file={directory / 'pid'}", f"--seed-file={directory / 'seed'}"),
            ],
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._wait_for_socket(directory)
        except BaseException:
            self.stop()  # whoever made it does not have it
            raise

    def _wait_for_socket(self, directory: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not Path(self.socket).exists():
            assert self._process.poll() is None, (directory / "munged.log").read_text()
            assert time.monotonic() < deadline, "munged made no socket"
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def encode_as(self, uid: int, payload: bytes, *options: str) -> str:
        argv = ["munge", f"--socket={self.socket}", *options]
        done = subprocess.run(argv, input=payload, capture_output=True, check=True, user=uid)
        return done.stdout.decode().strip()

    def decode_as(self, uid: int, credential: str) -> str:
        argv = ["unmunge", f"--socket={self.socket}", "--metadata=/dev/null", "--output=-"]
        done = subprocess.run(argv, input=credential.encode(), capture_output=True, check=True, user=uid)
        return done.stdout.decode()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._log.close()
