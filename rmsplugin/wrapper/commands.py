"""Commands: Slurm's clients that were called in the VM, carried out by the site's own on this host.

The guest tells of requests; one is taken, by the guest, once and for all, when there is room for it here, and given
to a process that ends (``carry_out``). Its answer is kept until the guest has it, over whichever connection. Nothing is
done twice: a request that was taken, and that nobody here knows any more, gets no answer, and the guest says so.
"""

from __future__ import annotations

import os
import re
import select
import signal

from rmsplugin.wrapper import TOOLS, process
from rmsplugin.wrapper.libssh2 import Channel, Connection

_GUEST = f"{TOOLS}/commands"
_AT_ONCE = 16
# The guest tells of the rest once more when these are done.
_WAITING = 1000
_REMEMBERED = 256
_REQUEST_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 16
_LINE_BYTES = 256
_IDENTIFIER = re.compile(r"[0-9]{1,20}-[0-9]{1,10}")
_LOST = "its process ended on the front: it may have been carried out, or not; look before you repeat it"
_SWITCHED_OFF = "commands inside the VMs are switched off at this site (guest.commands)"


class _Running:
    """A request that is carried out: its process, and the file that the answer comes in."""

    __slots__ = ("answer", "pid", "watch")

    def __init__(self, pid: int, watch: int, answer: int) -> None:
        self.pid, self.watch, self.answer = pid, watch, answer


class Commands:
    """The requests of one job; one thread uses it."""

    def __init__(self, search_path: str) -> None:
        """``search_path``: directories of Slurm's clients, with colons; empty: all is refused."""
        self._search_path = search_path
        self._ends = select.epoll()
        self._running: dict[str, _Running] = {}
        # Files with answers that the guest has not confirmed yet.
        self._answers: dict[str, int] = {}
        # A VM that went back to a checkpoint asks again for what was done.
        self._done: dict[str, None] = {}
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._connection: Connection | None = None
        self._requests: Channel | None = None
        self._delivery: _Delivery | None = None
        self._waiting: dict[str, None] = {}
        self._overlooked = False
        self._taking = ""
        self._lines = b""
        self._incoming: _Incoming | None = None

    def fileno(self) -> int:
        """Readable when a process has ended."""
        return self._ends.fileno()

    def connect(self, connection: Connection) -> None:
        """Hear of requests over this connection from now on, and over no other. Raises UnavailableError."""
        known = [*self._running, *self._answers]
        if self._taking:
            known.append(f"{self._taking}:again")
        if self._incoming:
            known.append(f"{self._incoming.identifier}:again")
            self._incoming.close()
        self._forget_connection()
        self._connection = connection
        self._requests = connection.open(f"{_GUEST} serve {' '.join(known)}")

    def channels(self) -> list[Channel]:
        """Those that something may come over."""
        return [*([self._requests] if self._requests else []), *([self._delivery.channel] if self._delivery else [])]

    def turn(self) -> bool:
        """Do what can be done without waiting; whether there may be more. Raises UnavailableError."""
        came = self._hear()
        self._reap()
        self._take_next()
        return self._deliver() or came

    def _hear(self) -> bool:
        if self._requests is None or (data := self._requests.read()) is None:
            return False
        if not data:
            # A VM of an older release has no such tool.
            self._requests.close()
            self._requests = None
            return False
        while data:
            if self._incoming:
                data = self._incoming.add(data)
                if self._incoming.missing == 0:
                    self._carry_out(*self._incoming.whole())
                    self._incoming = None
            else:
                line, end, data = (self._lines + data).partition(b"\n")
                self._lines = b"" if end else line
                if len(line) > _LINE_BYTES:
                    return self._hear_nothing_more()
                if end:
                    self._obey(line.decode("ascii", "replace").split())
        return True

    def _hear_nothing_more(self) -> bool:
        """The guest's user has put something else in the place of our tools: it is his."""
        if self._requests:
            self._requests.close()
        self._requests = None
        return False

    def _obey(self, words: list[str]) -> None:
        match words:
            case [_, identifier, *_] if not _IDENTIFIER.fullmatch(identifier):
                return
            case ["new", identifier]:
                self._note(identifier)
            case ["gone", identifier] if identifier == self._taking:
                self._taking = ""
            case ["request", identifier, size] if identifier == self._taking and size.isdecimal():
                self._taking = ""
                if int(size) > _REQUEST_BYTES:
                    self._hear_nothing_more()
                else:
                    self._incoming = _Incoming(identifier, int(size))
            case ["cancel", identifier] if identifier in self._running:
                os.kill(self._running[identifier].pid, signal.SIGTERM)

    def _note(self, identifier: str) -> None:
        if identifier in self._running or identifier in self._answers:
            return
        if identifier in self._done:
            self._answers[identifier] = _error(_LOST)
        elif not self._search_path:
            self._answers[identifier] = _error(_SWITCHED_OFF)
        elif len(self._waiting) < _WAITING:
            self._waiting[identifier] = None
        else:
            self._overlooked = True

    def _take_next(self) -> None:
        if self._requests is None or self._taking or self._incoming or len(self._running) >= _AT_ONCE:
            return
        if self._waiting:
            self._taking = next(iter(self._waiting))
            del self._waiting[self._taking]
            self._requests.write(f"take {self._taking}\n".encode())
        elif self._overlooked:
            self._overlooked = False
            self._requests.write(b"again\n")

    def _carry_out(self, identifier: str, request: int) -> None:
        answer = os.memfd_create("answer")
        words = process.command("carry_out", self._search_path)
        actions = [
            (os.POSIX_SPAWN_DUP2, request, 0),
            (os.POSIX_SPAWN_DUP2, answer, 1),
            # What it has to say is in the answer: the job's error output is not for it.
            (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
        ]
        try:
            pid = os.posix_spawn(words[0], words, os.environ, file_actions=actions, setsigmask=[])
        finally:
            os.close(request)
        watch = os.pidfd_open(pid)
        self._ends.register(watch, select.EPOLLIN)
        self._running[identifier] = _Running(pid, watch, answer)

    def _reap(self) -> None:
        if not self._running:
            return
        ended = {fd for fd, _ in self._ends.poll(0)}
        for identifier in [name for name, running in self._running.items() if running.watch in ended]:
            running = self._running.pop(identifier)
            self._ends.unregister(running.watch)
            os.close(running.watch)
            os.waitpid(running.pid, 0)
            if os.fstat(running.answer).st_size == 0:
                os.close(running.answer)
                running.answer = _error(_LOST)
            self._answers[identifier] = running.answer

    def _deliver(self) -> bool:
        """Give the guest the next piece of an answer; whether something happened."""
        if self._connection is None:
            return False
        if self._delivery is None:
            if not self._answers:
                return False
            identifier, answer = next(iter(self._answers.items()))
            self._delivery = _Delivery(identifier, answer, self._connection.open(f"{_GUEST} answer {identifier}"))
        if not self._delivery.advance():
            return False
        if self._delivery.ended:
            self._forget(self._delivery.identifier)
            self._delivery = None
        return True

    def _forget(self, identifier: str) -> None:
        os.close(self._answers.pop(identifier))
        self._done[identifier] = None
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]


class _Incoming:
    """A request on its way here."""

    def __init__(self, identifier: str, size: int) -> None:
        self.identifier, self.missing = identifier, size
        self._file = os.memfd_create("request")

    def add(self, data: bytes) -> bytes:
        """Take what belongs to it, and return the rest."""
        part, rest = data[: self.missing], data[self.missing :]
        while part:
            written = os.write(self._file, part)
            part = part[written:]
            self.missing -= written
        return rest

    def whole(self) -> tuple[str, int]:
        """Its name and its file, to be read from the beginning; the file is the caller's."""
        os.lseek(self._file, 0, os.SEEK_SET)
        return self.identifier, self._file

    def close(self) -> None:
        """It does not come any more."""
        os.close(self._file)


class _Delivery:
    """An answer on its way to the guest, in pieces: the job's output goes on meanwhile."""

    def __init__(self, identifier: str, answer: int, channel: Channel) -> None:
        self.identifier, self.channel = identifier, channel
        self.ended = False
        self._answer, self._offset, self._sent = answer, 0, False

    def advance(self) -> bool:
        """Send the next piece, or look whether the guest has it all; whether something happened."""
        if self._sent:
            if self.channel.read() is None:
                return False
            self.channel.close()
            self.ended = True
        elif piece := os.pread(self._answer, _CHUNK_BYTES, self._offset):
            self.channel.write(piece)
            self._offset += len(piece)
        else:
            self.channel.end_input()
            self._sent = True
        return True


def _error(text: str) -> int:
    """A file with an answer of ours."""
    line = f"rmsplugin: error: {text}\n".encode()
    answer = os.memfd_create("answer")
    os.write(answer, b"1 0 %d\n" % len(line) + line)
    return answer
