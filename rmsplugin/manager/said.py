"""Said: what an engine says on its standard error: passed on to the manager's own, and its last sentence remembered.

An engine never waits for its manager: what the manager does not take in time is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import threading

#: The size that a pipe gets, where the system lets it: some ten thousand lines.
_PIPE_BYTES = 1 << 20
#: The most bytes of a line that count, and of the sentence.
_LINE_BYTES, _SENTENCE = 64 << 10, 500
#: How long the rest of an engine that has ended is waited for: a process of its own may still have the other end.
_REST_S = 0.5
#: A line of a log that is no reason to end.
_MINOR = re.compile(r"([0-9-]+ [0-9:,]+ )?(INFO|DEBUG) ")


class Said:
    """Takes what one engine says until the end."""

    def __init__(self, group: str, read: int) -> None:
        """``read``: the reading end of a pipe, which is closed at its end."""
        self._group, self._read = group, read
        self._last = self._last_minor = ""
        self._thread = threading.Thread(target=self._take, name=f"said-{group}", daemon=True)
        self._thread.start()

    def last_sentence(self) -> str:
        """The last sentence of an engine that has ended, if possible one that is a reason; empty: it said nothing."""
        self._thread.join(_REST_S)
        return self._last or self._last_minor

    def _take(self) -> None:
        rest = b""
        while chunk := os.read(self._read, 1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_BYTES:
                lines, rest = [*lines, rest], b""
            self._take_lines(lines)
        self._take_lines([rest] if rest else [])
        os.close(self._read)

    def _take_lines(self, lines: list[bytes]) -> None:
        """Pass on whole lines: several engines write side by side."""
        if lines:
            with contextlib.suppress(OSError):
                os.write(sys.stderr.fileno(), b"".join(line + b"\n" for line in lines))
        for line in lines:
            self._note(line)

    def _note(self, line: bytes) -> None:
        text = "".join(c if c.isprintable() else " " for c in line.decode(errors="replace")).strip()
        if not text:
            return
        sentence = text.partition(f"group {self._group}: ")[2] or text
        if _MINOR.match(text):
            self._last_minor = sentence[:_SENTENCE]
        else:
            self._last = sentence[:_SENTENCE]


def pipe() -> tuple[int, int]:
    """A pipe for what an engine says: its reading end, and its writing end, at which nobody ever waits."""
    read, write = os.pipe()
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(write, False)
    return read, write
