"""Mailbox: signals on their way from the threads that take them to the one thread that owns the connection."""

from __future__ import annotations

import contextlib
import os

_CHUNK_BYTES = 1 << 16


def kill_line(number: int, everything: bool) -> str:
    """The line that has the guest send a signal to the script's process, or to all of its session."""
    return f"kill {number} all" if everything else f"kill {number}"


class Mailbox:
    """Signals for the script and for steps that have not been sent yet; any thread may put one in."""

    def __init__(self) -> None:
        """Begin empty."""
        self._wakes, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._waiting: list[str] = []

    def fileno(self) -> int:
        """The descriptor that is readable when a signal may have come."""
        return self._wakes

    def put(self, number: int, *, everything: bool) -> None:
        """Have a signal sent to the script's process, or to all of its session."""
        self._put(kill_line(number, everything))

    def put_step(self, step: int, number: int) -> None:
        """Have a signal sent to the tasks of a step."""
        self._put(f"step {step} {number}")

    def _put(self, line: str) -> None:
        self._waiting.append(line)
        with contextlib.suppress(BlockingIOError):  # Then it is readable anyway.
            os.write(self._wake, b"!")

    def get(self) -> str:
        """The line that tells the guest of the oldest signal not sent yet; empty if all were sent."""
        return self._waiting[0] if self._waiting else ""

    def sent(self) -> None:
        """Note that the oldest signal has reached the guest."""
        del self._waiting[0]

    def is_empty(self) -> bool:
        """Whether all signals have reached the guest."""
        return not self._waiting

    def clear_wakes(self) -> None:
        """Note that the signals are being looked at."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakes, _CHUNK_BYTES)
