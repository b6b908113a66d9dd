"""Commands: Slurm's clients that were called in the VM, carried out by the site's own clients on this host.

The guest tells of requests. When there is room here, the guest takes one, once and for all, and it is given to a
process that ends (``carry_out``). The answer is kept until the guest has it, over whichever connection. While the
process runs, it goes a part at a time: the process makes the next part when the guest has printed this one. No request
is done twice: one that was taken, and that no process here knows any more, gets no answer, and the guest says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import time

from rmsplugin.wrapper import TOOLS, process
from rmsplugin.wrapper.session.answers import LOST, READY, Answer, Delivery, error_answer
from rmsplugin.wrapper.session.libssh2 import Channel, Connection

_GUEST = f"{TOOLS}/commands"
_AT_ONCE = 16
# No more requests are begun while the guest does not take so many answers, or so many bytes: its memory is not this
# host's.
_HELD = 64
_HELD_BYTES = 64 << 20
# The guest tells of the remaining requests once more when these are done.
_WAITING = 1000
_REMEMBERED = 256
_REQUEST_BYTES = 8 << 20
_LINE_BYTES = 256
_IDENTIFIER = re.compile(r"[0-9]{1,20}-[0-9]{1,10}")
_NOT_CARRIED_OUT = "the command was not carried out: the front has no room for it now"
_SWITCHED_OFF = "commands inside the VMs are switched off at this site (guest.commands)"


class Commands:
    """The requests of one job; one thread uses it."""

    def __init__(self, search_path: str, engine_words: list[str]) -> None:
        """For one job.

        Args:
            search_path: directories of Slurm's clients, with colons; empty: all requests are refused.
            engine_words: the address of the engine, as ``EngineClient.from_words`` takes it.
        """
        self._search_path = search_path
        self._engine_words = engine_words
        self._lines = select.epoll()
        # The requests that were taken; the one whose part went to the guest last stands last.
        self._answers: dict[str, Answer] = {}
        # A VM that went back to a checkpoint asks again for requests that were done.
        self._done: dict[str, None] = {}
        self._forget_connection()

    def _forget_connection(self) -> None:
        self._connection: Connection | None = None
        self._requests: Channel | None = None
        self._delivery: Delivery | None = None
        self._waiting: dict[str, None] = {}
        self._overlooked = False
        self._taking = ""
        self._heard = b""
        self._incoming: _Incoming | None = None
        # Whether the guest has said that answers may come in parts; a VM of an older release wants them whole.
        self._in_parts = False

    def fileno(self) -> int:
        """The descriptor that is readable when a process has made a part, or has ended."""
        return self._lines.fileno()

    def connect(self, connection: Connection, run: int) -> None:
        """Take requests over this connection from now on, and over no other. Raises UnavailableError.

        Args:
            connection: with the VM.
            run: the number of requeues of the job before this run.
        """
        for answer in self._answers.values():
            answer.break_off()
        known = [*self._answers]
        if self._taking:
            known.append(f"{self._taking}:again")
        if self._incoming:
            known.append(f"{self._incoming.identifier}:again")
            self._incoming.close()
        self._forget_connection()
        self._connection = connection
        self._requests = connection.open(f"{_GUEST} serve {' '.join((f'run:{run}', *known))}")

    def channels(self) -> list[Channel]:
        """The channels over which data may come."""
        return [*([self._requests] if self._requests else []), *([self._delivery.channel] if self._delivery else [])]

    def turn(self) -> bool:
        """Do the work that needs no waiting; returns whether there may be more. Raises UnavailableError."""
        came = self._hear()
        self._hear_processes()
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
                    self._carry_out(self._incoming)
                    self._incoming = None
            else:
                line, end, data = (self._heard + data).partition(b"\n")
                self._heard = b"" if end else line
                if len(line) > _LINE_BYTES:
                    return self._hear_nothing_more()
                if end:
                    self._obey(line.decode("ascii", "replace").split())
        return True

    def _hear_nothing_more(self) -> bool:
        """Stop listening: the guest's user has put another program in the place of our tools, as he may."""
        if self._requests:
            self._requests.close()
        self._requests = None
        return False

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["parts"]:
                self._in_parts = True
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
            case ["more", identifier, number] if identifier in self._answers and number.isdecimal():
                self._answers[identifier].printed(int(number))
            case ["cancel", identifier] if identifier in self._answers:
                self._answers[identifier].give_up()

    def _note(self, identifier: str) -> None:
        if identifier in self._answers:
            return
        if identifier in self._done:
            self._answers[identifier] = Answer(error_answer(LOST))
        elif len(self._waiting) < _WAITING:
            self._waiting[identifier] = None
        else:
            self._overlooked = True

    def _take_next(self) -> None:
        if self._requests is None or self._taking or self._incoming:
            return
        if not (self._waiting or self._overlooked) or not self._has_room():
            return
        if self._waiting:
            identifier = next(iter(self._waiting))
            del self._waiting[identifier]
            self._take(identifier)
        else:
            self._overlooked = False
            self._requests.write(b"again\n")

    def _has_room(self) -> bool:
        if len(self._with_process()) >= _AT_ONCE or len(self._answers) >= _HELD:
            return False
        return sum(answer.size() for answer in self._answers.values()) < _HELD_BYTES

    def _take(self, identifier: str) -> None:
        assert self._requests
        if self._search_path:
            self._taking = identifier
            self._requests.write(f"take {identifier}\n".encode())
        else:
            self._answers[identifier] = Answer(error_answer(_SWITCHED_OFF))

    def _with_process(self) -> list[tuple[Answer, socket.socket]]:
        return [(answer, answer.line) for answer in self._answers.values() if answer.line]

    def _carry_out(self, request: _Incoming) -> None:
        try:
            answer = self._start(request.whole())
        except OSError as error:
            answer = Answer(error_answer(f"{_NOT_CARRIED_OUT}: {error.strerror}"))
        finally:
            request.close()
        self._answers[request.identifier] = answer

    def _start(self, request: int) -> Answer:
        """Have a process carry out the request in the file. Raises OSError."""
        how = "parts" if self._in_parts else "whole"
        words = process.command("carry_out", self._search_path, how, *self._engine_words)
        with contextlib.ExitStack() as undone:
            line, its_line = socket.socketpair()
            undone.callback(line.close)
            with its_line:
                file = os.memfd_create("answer")
                undone.callback(os.close, file)
                self._lines.register(line, select.EPOLLIN)
                actions = [
                    (os.POSIX_SPAWN_DUP2, request, 0),
                    (os.POSIX_SPAWN_DUP2, file, 1),
                    (os.POSIX_SPAWN_DUP2, its_line.fileno(), 3),
                    # The process tells its errors in the answer: the job's error output is not for it.
                    (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
                ]
                pid = os.posix_spawn(words[0], words, os.environ, file_actions=actions, setsigmask=[])
            undone.pop_all()
        return Answer(file=file, number=int(self._in_parts), pid=pid, line=line)

    def _hear_processes(self) -> None:
        running = self._with_process()
        told = {fd for fd, _ in self._lines.poll(0)} if running else ()
        for answer, line in running:
            if line.fileno() not in told:
                continue
            if _read(line):
                answer.made()
            else:
                self._lines.unregister(line)
                line.close()
                answer.ended()

    def _deliver(self) -> bool:
        """Give the guest the next piece of an answer; returns whether something happened."""
        if self._connection is None:
            return False
        if self._delivery is None:
            identifier = self._next_ready()
            if not identifier:
                return False
            answer = self._answers[identifier] = self._answers.pop(identifier)
            words = f"{_GUEST} answer {identifier} {answer.number or ''}".rstrip()
            self._delivery = Delivery(identifier, answer, self._connection.open(words))
        if not self._delivery.advance():
            return False
        if self._delivery.kept is not None:
            self._settle(self._delivery.identifier, kept=self._delivery.kept)
            self._delivery = None
        return True

    def due_s(self) -> float | None:
        """The seconds until ``turn`` has work though nothing happens; None: it never has."""
        if self._delivery or not (ready := self._ready()):
            return None
        return max(min(self._answers[identifier].due_at for identifier in ready) - time.monotonic(), 0.0)

    def _next_ready(self) -> str:
        """The request whose part is to be delivered next; empty: none."""
        now = time.monotonic()
        return next((identifier for identifier in self._ready() if self._answers[identifier].due_at <= now), "")

    def _ready(self) -> list[str]:
        """The requests of which a part is to be delivered, perhaps later.

        The guest's tool for requests learns that a part was printed: no part is delivered before that tool listens.
        """
        return [
            identifier
            for identifier, answer in self._answers.items()
            if answer.state == READY and (self._in_parts or answer.number == 0)
        ]

    def _settle(self, identifier: str, *, kept: bool) -> None:
        """Handle the answer whether the guest has the delivered part."""
        answer = self._answers[identifier]
        if not kept:
            answer.not_kept()
        elif answer.last:
            self._forget(identifier)
        else:
            answer.sent()

    def _forget(self, identifier: str) -> None:
        self._answers.pop(identifier).close()
        self._done[identifier] = None
        if len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]


class _Incoming:
    """A request that is arriving."""

    def __init__(self, identifier: str, size: int) -> None:
        self.identifier, self.missing = identifier, size
        self._file = -1
        self._problem: OSError | None = None

    def add(self, data: bytes) -> bytes:
        """Take the bytes that belong to it, and return the rest."""
        part, rest = data[: self.missing], data[self.missing :]
        self.missing -= len(part)
        try:
            self._keep(part)
        except OSError as error:
            # The error is raised when all bytes have come: the text after the request has to be understood.
            self._problem = error
        return rest

    def _keep(self, part: bytes) -> None:
        if self._problem:
            return
        if self._file < 0:
            self._file = os.memfd_create("request")
        while part:
            part = part[os.write(self._file, part) :]

    def whole(self) -> int:
        """The request's file, to be read from the beginning. Raises OSError: the file could not be kept here."""
        if self._problem:
            raise self._problem
        os.lseek(self._file, 0, os.SEEK_SET)
        return self._file

    def close(self) -> None:
        """Release the request, which is not needed any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _read(line: socket.socket) -> bytes:
    """The bytes that a process tells; empty at its end, however that came."""
    with contextlib.suppress(OSError):
        return line.recv(1)
    return b""
