"""Answers: the output of one of Slurm's clients on this host, on its way to the guest, a part at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

from rmsplugin.wrapper.session.libssh2 import Channel

LOST = "its process on the front ended: the command may have been carried out, or not; look before you repeat it"
_CHUNK_BYTES = 1 << 16
# To a guest that cannot keep an answer, it is sent again after so long, and then after twice as long each time.
_AGAIN_S = 1.0
_LONGEST_AGAIN_S = 60.0

# The outcomes of a part of an answer.
MAKING, READY, SENDING, SENT = range(4)


class Answer:
    """The next part of an answer for the guest, and the process that makes the answer."""

    __slots__ = (
        "_again_s",
        "_file",
        "_given_up",
        "_pid",
        "_printed",
        "_text",
        "due_at",
        "last",
        "line",
        "number",
        "state",
    )

    def __init__(
        self, text: bytes = b"", *, file: int = -1, number: int = 0, pid: int = 0, line: socket.socket | None = None
    ) -> None:
        """Take an answer of our own, or a file that a process writes, which is at the other end of ``line``."""
        # An answer of our own needs no descriptor: this process may have none left.
        self._text, self._file = text, file
        #: The number of the part, from 1 on; 0: the whole answer.
        self.number = number
        #: The line tells of a part, and the process waits for a word on it before it makes the next; None: it has
        #: ended.
        self.line = line
        self._pid = pid
        self._printed = self._given_up = False
        #: Whether this is the part with the exit code.
        self.last = line is None
        self.state = MAKING if line else READY
        #: The guest must not be given the part before this time.
        self.due_at, self._again_s = 0.0, _AGAIN_S

    def piece(self, offset: int) -> bytes:
        """The bytes from this offset on; empty at the end."""
        if self._file < 0:
            return self._text[offset : offset + _CHUNK_BYTES]
        return os.pread(self._file, _CHUNK_BYTES, offset)

    def size(self) -> int:
        """The number of bytes of the answer that are held here."""
        return len(self._text) if self._file < 0 else os.fstat(self._file).st_size

    def close(self) -> None:
        """Release the answer, which is not needed any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def made(self) -> None:
        """Note that the process has made a part."""
        self.state = READY
        if self._given_up:
            self._go_on()

    def ended(self) -> None:
        """Note that the process has ended, or is about to."""
        self.line = None
        _, status = os.waitpid(self._pid, 0)
        if self.state != MAKING:
            return  # It was killed; the guest has not printed the part before yet.
        if status == 0:
            self.last, self.state = True, READY
        else:
            self._lose()

    def sent(self) -> None:
        """Note that the guest has the part."""
        self.state, self._again_s = SENT, _AGAIN_S
        if self._printed or self._given_up:
            self._go_on()

    def not_kept(self) -> None:
        """Note that the guest could not keep the part: perhaps its disk is full."""
        self.state = READY
        self.due_at = time.monotonic() + self._again_s
        self._again_s = min(2 * self._again_s, _LONGEST_AGAIN_S)
        if self._given_up and not self.last:
            self._go_on()

    def break_off(self) -> None:
        """Note that the connection has ended: the sent bytes may not have arrived."""
        if self.state in (SENDING, SENT):
            self.state = READY

    def printed(self, number: int) -> None:
        """Note that the guest has printed a part; this news may come before the news that it has the part."""
        if number == self.number:
            self._printed = True
            if self.state == SENT:
                self._go_on()

    def give_up(self) -> None:
        """Give up the rest, for which nobody waits: end the process, and keep its last part only."""
        if self.line:
            os.kill(self._pid, signal.SIGTERM)
        self._given_up = True
        if not self.last and self.state in (READY, SENT):
            self._go_on()

    def _go_on(self) -> None:
        """Have the next part made."""
        os.ftruncate(self._file, 0)
        self.number += 1
        self._printed = False
        if self.line is None:
            self._lose()
            return
        self.state = MAKING
        with contextlib.suppress(OSError):  # The process was killed, as will be noticed.
            self.line.send(b".", socket.MSG_NOSIGNAL)

    def _lose(self) -> None:
        self.close()
        self._text, self.number = error_answer(LOST), 0
        self.last, self.state = True, READY


class Delivery:
    """A part of an answer on its way to the guest, in pieces: the job's output goes on meanwhile."""

    def __init__(self, identifier: str, answer: Answer, channel: Channel) -> None:
        self.identifier, self.channel = identifier, channel
        #: Whether the guest has the part; None: not known yet.
        self.kept: bool | None = None
        self._answer, self._offset, self._sent = answer, 0, False
        answer.state = SENDING

    def advance(self) -> bool:
        """Send the next piece, or look whether the guest has it all; returns whether something happened."""
        if self._sent:
            if (said := self.channel.read()) != b"":
                return said is not None
            status, _ = self.channel.close()
            self.kept = status == 0
        elif piece := self._answer.piece(self._offset):
            self.channel.write(piece)
            self._offset += len(piece)
        else:
            self.channel.end_input()
            self._sent = True
        return True


def error_answer(text: str) -> bytes:
    """An answer of our own, with an error."""
    line = f"rmsplugin: error: {text}\n".encode()
    return b"1 0 %d\n" % len(line) + line
