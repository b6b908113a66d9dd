"""Preparation: a process that makes the files for the script's start, while this process connects to the guest."""

from __future__ import annotations

import errno
import os
import signal

from rmsplugin.errors import OperationFailedError, UnavailableError
from rmsplugin.wrapper import process

_SAID_BYTES = 1 << 12
# Errors that pass: other processes on this host have taken the resource.
_USED_UP = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Preparation:
    """The archive of ``prepare``, as it arrives."""

    def __init__(self, *words: str) -> None:
        """Start ``prepare WORDS``; call ``close`` in the end.

        Raises:
            UnavailableError: this host has no process or descriptor left for it.
            OperationFailedError: it cannot be started.
        """
        self.words = words
        self.fd = self._said = -1
        self._pid = 0
        try:
            self._start(process.command("prepare", *words))
        except OSError as error:
            self.close()
            kind = UnavailableError if error.errno in _USED_UP else OperationFailedError
            raise kind(f"the start of the script could not be prepared: {error.strerror}") from None

    def _start(self, argv: list[str]) -> None:
        # Its errors do not go to the job's error output: a started script needs no preparation, and the next may go
        # well.
        self._said = os.memfd_create("said")
        self.fd, writing = os.pipe2(os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, self._said, 2)]
        try:
            self._pid = os.posix_spawn(argv[0], argv, process.own_environment(), file_actions=actions, setsigmask=[])
        finally:
            os.close(writing)

    def check(self) -> None:
        """Return if the archive, which was read to its end, was whole.

        Raises:
            OperationFailedError: it was not.
        """
        _, result = os.waitpid(self._pid, 0)
        self._pid = 0
        if result != 0:
            said = os.pread(self._said, _SAID_BYTES, 0).decode("utf-8", "replace").strip()
            raise OperationFailedError(f"the start of the script could not be prepared: {said or f'status {result}'}")

    def close(self) -> None:
        """End the process: nobody reads it any more. May be called again."""
        for fd in (self.fd, self._said):
            if fd >= 0:
                os.close(fd)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        self.fd, self._said, self._pid = -1, -1, 0
