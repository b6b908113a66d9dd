"""Preparation: a process that puts together what the script's start needs, while this one connects to the guest."""

from __future__ import annotations

import os
import signal

from rmsplugin.errors import OperationFailedError
from rmsplugin.wrapper import process

_SAID_BYTES = 1 << 12


class Preparation:
    """The archive of ``prepare``, as it comes."""

    def __init__(self, *words: str) -> None:
        """Start ``prepare WORDS``; call ``close`` in the end."""
        self.fd, writing = os.pipe2(os.O_CLOEXEC)
        # Not to the job's error output: a script that was started needs no preparation, and the next may go well.
        self._said = os.memfd_create("said")
        argv = process.command("prepare", *words)
        self._pid = os.posix_spawn(
            argv[0],
            argv,
            process.first_environment(),
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, self._said, 2)],
            setsigmask=[],
        )
        os.close(writing)

    def check(self) -> None:
        """The archive was read to its end: was it whole?

        Raises:
            OperationFailedError: it was not.
        """
        _, result = os.waitpid(self._pid, 0)
        self._pid = 0
        if result != 0:
            said = os.pread(self._said, _SAID_BYTES, 0).decode("utf-8", "replace").strip()
            raise OperationFailedError(f"the start of the script could not be prepared: {said or f'status {result}'}")

    def close(self) -> None:
        """Nobody reads it any more; may be called again."""
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self._said)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self.fd, self._pid = -1, 0
