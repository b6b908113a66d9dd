"""Telltale: a child of the wrapper that does nothing; its end tells which processes a signal was meant for.

Slurm sends a signal either to the batch script alone (``scancel -b``) or to all processes that came of it (``-f``). The
wrapper stands for the script, and this child for all processes that the script has in its VM.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable

from rmsplugin.wrapper import process

# Slurm sends to one process after the other: after so long the child has its signal, or was not meant.
_PATIENCE_MS = 250
# Reads from a pipe without data, until the wrapper has ended; leaves no core file behind.
_IDLE = ("/bin/sh", "-c", "ulimit -c 0; exec cat >/dev/null 2>&1")


class Telltale:
    """Owns such a child at any time. Used by one thread."""

    def __init__(self, tell_child: Callable[[int], object]) -> None:
        """Start it. Raises OSError.

        Args:
            tell_child: called with the process id of each such child.
        """
        self._tell_child = tell_child
        # The other end is open in this process alone: when this process ends, so does the child.
        self._reads, self._wrapper_lives = os.pipe2(os.O_CLOEXEC)
        self._pid = self._spawn()

    def meant_all(self, number: int) -> bool:
        """Whether a signal that the wrapper got was sent to all processes; False for a signal that ends no process."""
        handle = os.pidfd_open(self._pid)
        try:
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            if not ended.poll(_PATIENCE_MS):
                return False
        finally:
            os.close(handle)
        _, status = os.waitpid(self._pid, 0)
        self._pid = self._spawn()
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == number

    def _spawn(self) -> int:
        pid = os.posix_spawn(
            _IDLE[0],
            _IDLE,
            {"PATH": process.SYSTEM_PATH},
            file_actions=[(os.POSIX_SPAWN_DUP2, self._reads, 0)],
            setsigmask=[],
        )
        self._tell_child(pid)
        return pid
