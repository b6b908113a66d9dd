"""Preparation: a process that puts together what the script's start needs, while this one connects to the guest."""

from __future__ import annotations

import os
import signal

from rmsplugin.errors import OperationFailedError
from rmsplugin.wrapper import process


class Preparation:
    """The archive of ``prepare``, as it comes."""

    def __init__(self, *words: str) -> None:
        """Start ``prepare WORDS``; call ``close`` in the end."""
        self.fd, writing = os.pipe2(os.O_CLOEXEC)
        argv = process.command("prepare", *words)
        self._pid = os.posix_spawn(
            argv[0],
            argv,
            process.first_environment(),
            file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)],
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
            raise OperationFailedError("the start of the script could not be prepared")

    def close(self) -> None:
        """Nobody reads it any more; may be called again."""
        if self.fd >= 0:
            os.close(self.fd)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self.fd, self._pid = -1, 0
