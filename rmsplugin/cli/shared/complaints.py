"""Complaints: standard error of a command, which ends as it would whether somebody reads it or not."""

from __future__ import annotations

import os
from typing import Any, TextIO


class Complaints:
    """A stream whose writes never fail: words that cannot be written are lost.

    Where standard error is closed, Python has no stream for it, and would take standard output in its place.
    """

    def __init__(self, stream: TextIO | None) -> None:
        """``stream``: standard error; None: it is closed."""
        self._stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 # as long as the program

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write as far as that is possible."""
        try:
            self._stream.write(text)
        except OSError:
            give_up(self._stream)
        return len(text)

    def flush(self) -> None:
        """As ``write``."""
        try:
            self._stream.flush()
        except OSError:
            give_up(self._stream)


def give_up(stream: TextIO) -> None:
    """Keep Python from writing what is still buffered at exit: it would fail again, and say so in its own words."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
