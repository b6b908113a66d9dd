"""Output streams: each byte of the script's output reaches the job's output file once, whatever dies in between.

The guest keeps the last acknowledgement, "with OFFSET bytes delivered, the output file had SIZE bytes". It also keeps
the stream after OFFSET and some of it before. A wrapper that takes over compares the file's bytes beyond SIZE with the
stream's bytes beyond OFFSET.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable

from rmsplugin.errors import OperationFailedError, UnavailableError

_CHUNK_BYTES = 1 << 16
# A file that lost its end (its host crashed) is compared so many bytes back before it is believed to be the same file.
_PROOF_BYTES = 4096
# slurmstepd writes its own messages into the job's output file, behind our bytes (with its node's name where several
# slurmd share a host), and so does a wrapper that gives up.
_FOREIGN = re.compile(rb"slurmstepd(-[^ :]{1,256})?: error: |rmsplugin(-job)?: ")
_FOREIGN_BYTES = 300
_CUT_OFF = (
    "rmsplugin: error: this file was truncated after the first {} bytes of the script's output had been written to it; "
    "they are lost (with --open-mode=append, or JobFileAppend=1 in slurm.conf, a requeue keeps them)\n"
)
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EAGAIN)
_FULL_DISK_PATIENCE_S = 600.0
_FULL_DISK_RETRY_S = 2.0


class Ack:
    """With ``offset`` bytes of the stream delivered, the output file had ``size`` bytes."""

    __slots__ = ("offset", "size")

    def __init__(self, offset: int, size: int) -> None:
        self.offset, self.size = offset, size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ack) and (self.offset, self.size) == (other.offset, other.size)

    def __hash__(self) -> int:
        return hash((self.offset, self.size))

    def __repr__(self) -> str:
        return f"Ack({self.offset}, {self.size})"


class ReplayNeeded(Exception):  # not an error: the file was begun anew
    """The file is not the acknowledged one: the stream has to be delivered from its beginning."""


class OutputFile:
    """Delivers one stream to one file descriptor. Used by one thread."""

    def __init__(self, name: str, fd: int) -> None:
        """For stream ``name``, into ``fd``."""
        self.name = name
        self._fd = fd
        self._regular = _is_regular(fd)
        self._ack = Ack(0, self._size())
        # The guest has the stream from this offset on.
        self._kept_from = 0
        # The part of the file that may hold bytes beyond the acknowledged ones, and was not compared yet.
        self._unsure = (0, 0)
        self._must_match = False
        # Whether the comparison's result has still to be acknowledged. That comes before the next byte is written: else
        # a third wrapper would compare the stream with text between the second's bytes and the first's acknowledgement.
        self._unsettled = False
        # A line of ours that waits for the end of the line that is being delivered.
        self._announcement = b""

    @property
    def ack(self) -> Ack:
        """The delivered part so far."""
        return self._ack

    def size_before_start(self) -> int:
        """Size of the file, in which nothing is the script's before its start."""
        self._ack = Ack(0, self._size())
        return self._ack.size

    def take_over(self, ack: Ack, kept_from: int) -> None:
        """Go on where a former wrapper acknowledged ``ack``; the comparison finds how much further it came.

        Args:
            ack: the last acknowledgement.
            kept_from: the guest still has the stream from this offset on.

        Raises:
            OperationFailedError: the file accepts no data.
        """
        self._kept_from = kept_from
        size = self._size()
        self._unsure, self._must_match, self._unsettled = (0, 0), False, size != ack.size
        if not self._regular:
            offset = ack.offset
        elif size >= ack.size:
            offset, self._unsure = ack.offset, (ack.size, size)
        elif ack.offset > ack.size - size:
            # The file is shorter than it was: truncated by a requeue, or the batch host crashed before the end was on
            # its disk.
            offset = ack.offset - (ack.size - size)
            back = max(min(offset, size, _PROOF_BYTES, offset - kept_from), 0)
            offset, self._unsure, self._must_match = offset - back, (size - back, size), True
        else:
            offset = 0
        if offset < kept_from:
            self.restart()
        else:
            self._ack = Ack(offset, self._unsure[0] if self._unsure[1] else size)

    def restart(self) -> None:
        """Deliver the stream from its beginning, or from the guest's first byte: then the file says so.

        Raises:
            OperationFailedError: the file accepts no data.
        """
        self._unsure, self._must_match, self._unsettled = (0, 0), False, True
        if self._kept_from and self._regular:
            note = memoryview(_CUT_OFF.format(self._kept_from).encode())
            while note:
                note = note[self._write(note) :]
        self._ack = Ack(self._kept_from, self._size())

    def announce(self, text: str) -> None:
        """Tell the user something in the file, at the beginning of a line: now, or when the next line begins.

        Raises:
            OperationFailedError: the file accepts no data.
        """
        self._announcement = f"rmsplugin: {text}\n".encode()
        size = self._size()
        if size == 0 or self._read(size - 1, 1) == b"\n":
            self._write_announcement()

    def _write_announcement(self) -> None:
        view, self._announcement = memoryview(self._announcement), b""
        while view:
            view = view[self._write(view) :]
        self._ack = Ack(self._ack.offset, self._size())

    def feed(self, data: bytes, acknowledge: Callable[[dict[str, Ack]], None]) -> None:
        """Deliver the next bytes of the stream.

        Args:
            data: the next bytes.
            acknowledge: returns when the guest has kept its argument; its errors pass through, and the stream
                goes on at ``ack.offset`` with the next connection.

        Raises:
            ReplayNeeded: call ``restart`` and feed the stream from ``ack.offset`` on.
            OperationFailedError: the file accepts no data.
        """
        if self._unsure[0] < self._unsure[1]:
            data = self._skip_delivered(data)
        if self._unsettled and self._unsure[0] >= self._unsure[1]:
            acknowledge({self.name: self.ack})
            self._unsettled = False
        end_of_line = data.find(b"\n") + 1 if self._announcement else 0
        if end_of_line:
            self._deliver(data[:end_of_line])
            self._write_announcement()
        self._deliver(data[end_of_line:])

    def _deliver(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self._go_on(0)
            written = self._write(view)
            self._go_on(written)  # on NFS a process learns by its own write that the file was truncated elsewhere
            view = view[written:]

    def _go_on(self, written: int) -> None:
        """Note the bytes that were written, unless the file has become shorter: somebody has truncated it.

        Perhaps Slurm has, for a later run of the job, which delivers the whole stream. Then this wrapper lives on only
        because nobody could tell it: it must write nothing more, and acknowledge nothing.

        Raises:
            UnavailableError: the file was truncated. If the user did that, the stream goes on with the next connection,
                for which the engine is asked.
        """
        size, least = self._size(), self._ack.size + written
        self._advance(written, size)
        if self._regular and size < least:
            raise UnavailableError("the job's output file was truncated")

    def _skip_delivered(self, data: bytes) -> bytes:
        """The part of ``data`` that is not in the file yet."""
        start, end = self._unsure
        there = self._read(start, min(len(data), end - start))
        same = _common_length(there, data)
        whole = same == len(data) or start + same == end
        if not whole and self._must_match:
            raise ReplayNeeded
        if not whole:
            same = self._before_foreign_text(start + same) - start
        self._unsure = (start + same, end) if whole and start + same < end else (0, 0)
        self._advance(same, start + same if self._unsure[1] else self._size())
        if same < 0:
            # The message's beginning matched an earlier chunk by coincidence.
            return self._read(start + same, -same) + data
        return data[same:]

    def _before_foreign_text(self, mismatch: int) -> int:
        """The place where a foreign message begins, if one is the difference: its first letters may be the stream's."""
        begin = max(mismatch - _FOREIGN_BYTES, 0)
        for found in _FOREIGN.finditer(self._read(begin, 2 * _FOREIGN_BYTES)):
            if begin + found.start() <= mismatch < begin + found.end():
                return begin + found.start()
        return mismatch

    def _advance(self, count: int, size: int) -> None:
        self._ack = Ack(self._ack.offset + count, size)

    def _size(self) -> int:
        return os.fstat(self._fd).st_size if self._regular else 0

    def _read(self, offset: int, count: int) -> bytes:
        """Read from the file; it was opened for writing only, so by its name in /proc. Empty if that is refused."""
        try:
            fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(fd, count, offset)
        except OSError:
            return b""
        finally:
            os.close(fd)

    def _write(self, view: memoryview) -> int:
        deadline = time.monotonic() + _FULL_DISK_PATIENCE_S
        while True:
            try:
                return os.write(self._fd, view[:_CHUNK_BYTES])
            except OSError as error:
                if error.errno not in _FULL_DISK or time.monotonic() > deadline:
                    raise OperationFailedError(f"cannot write the job's {self.name}: {error.strerror}") from None
            time.sleep(_FULL_DISK_RETRY_S)


def same_file(first_fd: int, second_fd: int) -> bool:
    """Whether two descriptors write to one file, so that the order between them matters."""
    first, second = os.fstat(first_fd), os.fstat(second_fd)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _common_length(first: bytes, second: bytes) -> int:
    if second.startswith(first):
        return len(first)
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))


def _is_regular(fd: int) -> bool:
    return stat.S_ISREG(os.fstat(fd).st_mode)
