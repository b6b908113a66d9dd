"""Sentry: a child of the wrapper that sees it stopped by SIGSTOP, and starts a stand-in for the stopped process.

``sentry`` of rmsplugin/guest_tools/native watches. ``stand_in`` has the script stopped in its VM, and tells the engine
that the job is looked after (docs/decisions/0069). Without the tool a stopped wrapper is merely silent.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from rmsplugin.wrapper import process
from rmsplugin.wrapper.process import TOOLS_PROGRAM
from rmsplugin.wrapper.signals import Stop


class Sentry:
    """Owns such a child; one thread at a time uses it."""

    def __init__(self, engine_words: Sequence[str]) -> None:
        """Start it.

        Args:
            engine_words: how to reach the engine, as ``EngineClient.from_words`` takes it.
        """
        self._speaks = -1
        if not os.access(TOOLS_PROGRAM, os.X_OK):
            return
        their_input, self._speaks = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._speaks, False)
        actions = [
            (os.POSIX_SPAWN_DUP2, their_input, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        words = [TOOLS_PROGRAM, "sentry", *process.command("stand_in", *engine_words)]
        try:
            os.posix_spawn(words[0], words, os.environ, file_actions=actions, setsigmask=[])
        except OSError:
            os.close(self._speaks)
            self._speaks = -1
        finally:
            os.close(their_input)

    def tell_child(self, pid: int) -> None:
        """Tell the id of the process that stands for all processes of the script."""
        self._tell(f"child {pid}")

    def tell_stop(self, stop: Stop) -> None:
        """Tell the part of a signal in a stop: whether the script is meant, and which process has the script go on."""
        self._tell(stop.value)

    def _tell(self, line: str) -> None:
        if self._speaks >= 0:
            with contextlib.suppress(OSError):  # The child is gone, or stopped for so long that its pipe is full.
                os.write(self._speaks, f"{line}\n".encode())
