"""Session: the wrapper's connection to VM 0, where the script runs, and the commands that it can give there.

Every command is a constant with numbers in it; all text of the user travels as data (docs/protocols.md,
section 3). A lost connection raises UnavailableError, and every command can be given again over the next one.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable

from rmsplugin.errors import OperationFailedError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.wrapper import TOOLS
from rmsplugin.wrapper.session.access import Access
from rmsplugin.wrapper.session.commands import Commands
from rmsplugin.wrapper.session.guest_state import SHOWN_BYTES, GuestState, is_number, parse_state
from rmsplugin.wrapper.session.libssh2 import Channel, Connection
from rmsplugin.wrapper.session.mailbox import Mailbox, kill_line
from rmsplugin.wrapper.session.steps import Steps
from rmsplugin.wrapper.session.streams import Ack, OutputFile, ReplayNeeded

SSH_PORT = 22
_GUEST = f"{TOOLS}/rmsplugin-guest"
_CONNECT_TIMEOUT_S = 15.0
_COMMAND_TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 16
_USAGE, _NO_ROOM, _SUPERSEDED = 2, 3, 4  # exit statuses of `rmsplugin-guest`
# No tool of ours prints so much at once. The user may have replaced our tools: he pays for his VM's memory, and not for
# the front's.
_SAID_BYTES = 1 << 16
_LARGEST_EXIT_CODE, _LARGEST_SIGNAL = 255, 64

# The guest holds back output that is not acknowledged yet: this is often enough that a script that prints much does not
# wait for it.
_ACKNOWLEDGE_BYTES = 1 << 20
_ACKNOWLEDGE_S = 5.0

# The kernel watches the connection: no process has to wake up for it here, and the watch goes on while a suspend has
# this process stopped. A VM that moves or sleeps for longer than this is connected to anew.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_UNACKNOWLEDGED_MS = 20_000


class NoRoomError(RefusedError):
    """The VM cannot hold the files for the script's start, and never will."""


class SupersededError(RmspluginError):
    """A wrapper of a later run of the job has the VM: this one has no part in it any more."""


class Ending:
    """The end of the script: by exit code, or by a signal (not 0)."""

    __slots__ = ("exit_code", "signal")

    def __init__(self, exit_code: int, signal: int) -> None:
        self.exit_code, self.signal = exit_code, signal


class Session:
    """One connection."""

    def __init__(self, connection: Connection, run: int) -> None:
        """Take a connection with a login; use ``connect``."""
        self._connection = connection
        self._run = run
        self._control: Channel | None = None
        # Takes the files for the script's start; None in a VM of a former release.
        self._beginning: Channel | None = None
        # Tells the end of the script as soon as it has ended: a question then would take one more round trip.
        self._waiting: Channel | None = None
        # The received words on the script's end, and whether they are complete.
        self._end = b""
        self._said_all = False
        self._lines = b""
        self._answers = b""
        # The callbacks for each answer that the guest owes.
        self._owed: list[Callable[[], None]] = []
        self._acknowledged: dict[str, Ack] = {}
        self._acknowledged_at = 0.0

    @classmethod
    def connect(cls, access: Access, run: int, *, port: int = SSH_PORT) -> Session:
        """Connect as the user to the VM with the engine's key and host key.

        Args:
            access: the way into the VM.
            run: the number of requeues of the job before this run. All methods that ask the guest for something raise
                SupersededError once a wrapper of a later run was there; a VM of a former release refuses none.
            port: of the VM's ssh server.

        Raises:
            UnavailableError: the VM does not answer (any more, or yet).
            ForbiddenError: the VM shows another host key, or refuses the key.
            OperationFailedError: this host has no libssh2.
        """
        try:
            sock = socket.create_connection((access.address, port), timeout=_CONNECT_TIMEOUT_S)
        except OSError as error:
            raise UnavailableError(f"the guest does not answer: {error}") from None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, access.host_key_bytes(), timeout_s=_CONNECT_TIMEOUT_S)
        try:
            connection.login(access.user, access.private_key)
        except BaseException:
            connection.close()
            raise
        return cls(connection, run)

    def close(self) -> None:
        """Drop the connection."""
        self._connection.close()

    def abandon(self) -> None:
        """End everything over this connection as if it had broken; any thread may call."""
        self._connection.shut()

    def begin(self, sizes: dict[str, int]) -> GuestState:
        """Return the guest's knowledge of the script; ``start`` comes next, unless the script was started.

        Args:
            sizes: bytes of the files to which the streams go, which count until the first delivery.
        """
        words = "".join(f" {name} {size}" for name, size in sizes.items())
        beginning = self._connection.open(f"{_GUEST} begin run {self._run}{words}")
        deadline = time.monotonic() + _COMMAND_TIMEOUT_S
        said = self._read(beginning, deadline, until=b"ready\n")
        if not said.endswith(b"ready\n"):
            return self._begin_as_before(beginning, sizes)
        state = parse_state(said)
        self._acknowledged, self._acknowledged_at = state.acks, time.monotonic()
        if state.started:
            self._read(beginning, deadline)
            _check("begin", *beginning.close())
        else:
            self._beginning = beginning
        return state

    def _begin_as_before(self, beginning: Channel, sizes: dict[str, int]) -> GuestState:
        """Begin in a VM of a former release, which does one thing a command."""
        status, said = beginning.close()
        if status != _USAGE:
            _check("begin", status, said)
            raise UnavailableError("the guest broke off")
        state = parse_state(self._run_in_guest("acks"))
        if unknown := {name: Ack(0, size) for name, size in sizes.items() if name not in state.acks}:
            self.acknowledge(unknown)
        return state

    def room(self, count: int) -> None:
        """Ask for room for the script's standard input.

        Raises:
            NoRoomError: the VM has no room; the message is for the user.
        """
        status, answer, _ = self._command(f"room {count}")
        if status == _NO_ROOM:
            raise NoRoomError(
                f"the job's standard input ({count >> 20} MiB) does not fit into its VM, which has room for "
                f"{_text(answer)} MiB: let the script read the file itself, or ask for more memory"
            )

    def start(self, archive_fd: int, check: Callable[[], None]) -> None:
        """Start the script, unless it was started, from the files in a tar, read from ``archive_fd`` to its end.

        Args:
            archive_fd: the descriptor of the archive.
            check: raises the error if the archive was not whole: the guest would wait for its rest for ever.
        """

        def send(channel: Channel) -> None:
            while data := os.read(archive_fd, _CHUNK_BYTES):
                channel.write(data)
            check()

        if self._beginning is None:
            self._run_in_guest("put", send)
            answer = self._run_in_guest("start")
        else:
            send(self._beginning)
            answer = self._read_line(self._beginning)
            self._waiting = self._beginning  # it goes on as `wait 0`
        if answer not in (b"started\n", b"already\n"):
            raise OperationFailedError(f"the script could not be started: {_text(answer)}")

    def ending(self, steps: Steps) -> Ending:
        """The end of the script; it must have ended, so that ``deliver`` has returned."""
        if self._waiting is None:
            self._waiting = self._connection.open(f"{_GUEST} wait")
        deadline = time.monotonic() + _COMMAND_TIMEOUT_S
        while not self._said_all:
            if not self._hear_waiting(steps):
                self._wait(deadline)
        _check("wait", *self._waiting.close())
        answer = self._end
        match answer.decode("ascii", "replace").split():
            case ["exit", code] if is_number(code, _LARGEST_EXIT_CODE):
                return Ending(int(code), 0)
            case ["signal", number] if is_number(number, _LARGEST_SIGNAL):
                return Ending(0, int(number))
        raise OperationFailedError(f"the guest does not tell how the script ended: {_text(answer)}")

    def _hear_waiting(self, steps: Steps) -> bool:
        """Take the received words on steps and on the script's end; returns whether there were any."""
        if self._waiting is None or self._said_all or (data := self._waiting.read()) is None:
            return False
        self._said_all = not data
        self._lines += data
        self._take_lines(steps)
        return True

    def _take_lines(self, steps: Steps) -> None:
        *lines, self._lines = self._lines.split(b"\n")
        for line in lines:
            if not steps.take(line):
                self._end = line
        _check_size(self._lines)

    def signal(self, number: int, *, everything: bool) -> None:
        """Return when the guest has sent a signal to the script, or to all of its session."""
        self._post(kill_line(number, everything), lambda: None)
        self._settle()

    def acknowledge(self, acks: dict[str, Ack]) -> None:
        """Return when the guest has kept the acknowledgements."""
        self._post_acks(acks)
        self._settle()

    def _settle(self) -> None:
        """Wait until all commands were answered."""
        deadline = time.monotonic() + _COMMAND_TIMEOUT_S
        while self._owed:
            if not self._take_answers():
                self._wait(deadline)

    def deliver(self, files: list[OutputFile], mailbox: Mailbox, commands: Commands, steps: Steps) -> None:
        """Deliver the streams, and signals to the script, until it has ended and all its output is in the files.

        The last part is not acknowledged: a wrapper after one that dies here compares files, as at any instant.

        Meanwhile the Slurm commands of the guest are carried out, and Slurm hears of the steps.

        Raises:
            UnavailableError: the connection broke; each file knows its progress.
            OperationFailedError: a file accepts no data, or the guest's tools fail.
        """
        if self._waiting is None:
            self._waiting = self._connection.open(f"{_GUEST} wait {steps.offset} {self._run}")
        self._take_lines(steps)
        commands.connect(self._connection, self._run)  # first: by it a later run sees that this one may still write
        streams = [(file, self._follow(file)) for file in files]
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        poll.register(mailbox.fileno(), select.POLLIN)
        poll.register(commands.fileno(), select.POLLIN)
        poll.register(steps.fileno(), select.POLLIN)
        signalling = False

        def signalled() -> None:
            nonlocal signalling
            signalling = False
            mailbox.sent()

        while streams:
            mailbox.clear_wakes()
            came = [self._pass_on(*stream) for stream in streams]
            streams = [stream for stream, data in zip(streams, came, strict=True) if data != b""]
            answered = self._take_answers()
            heard = self._hear_waiting(steps)
            steps.turn()
            if (request := mailbox.get()) and not signalling:
                self._post(request, signalled)
                signalling = True
            due_s = self._acknowledge_if_due({file.name: file.ack for file in files})
            idle = not commands.turn() and not answered and not heard and all(data is None for data in came)
            channels = self._channels(streams) + commands.channels()
            if idle and not any(channel.pending() for channel in channels):
                due = [each for each in (due_s, steps.due_s(), commands.due_s()) if each is not None]
                poll.poll(min(due) * 1000 if due else None)

    def _follow(self, file: OutputFile) -> Channel:
        return self._connection.open(f"{_GUEST} follow {file.name} {file.ack.offset} {self._run}")

    def _channels(self, streams: list[tuple[OutputFile, Channel]]) -> list[Channel]:
        others = (self._control, None if self._said_all else self._waiting)
        return [channel for _, channel in streams] + [channel for channel in others if channel]

    def _pass_on(self, file: OutputFile, channel: Channel) -> bytes | None:
        """Deliver the received bytes of a stream: returns them, None if there are none yet, empty at its end."""
        data = channel.read()
        if data:
            try:
                file.feed(data, self.acknowledge)
            except ReplayNeeded:
                file.restart()
                raise UnavailableError("the output file was begun anew") from None
        elif data is not None:
            _check(f"follow {file.name}", *channel.close())
        return data

    def _acknowledge_if_due(self, acks: dict[str, Ack]) -> float | None:
        """Post due acknowledgements; returns the seconds until the next are due, None if there is none to make."""
        if acks == self._acknowledged:
            return None
        before = self._acknowledged
        new = max(ack.offset - (before[name].offset if name in before else 0) for name, ack in acks.items())
        rest_s = self._acknowledged_at + _ACKNOWLEDGE_S - time.monotonic()
        if self._owed:
            return max(rest_s, 1.0)  # The answer wakes this thread up.
        if new < _ACKNOWLEDGE_BYTES and rest_s > 0:
            return rest_s
        self._post_acks(acks)
        return None

    def _post_acks(self, acks: dict[str, Ack]) -> None:
        for stream, ack in acks.items():
            if self._acknowledged.get(stream) == ack:
                continue
            self._post(f"ack {stream} {ack.offset} {ack.size}", lambda: None)
        self._acknowledged = {**self._acknowledged, **acks}
        self._acknowledged_at = time.monotonic()

    def _post(self, line: str, answered: Callable[[], None]) -> None:
        """Send a line to the control command, which is started when it is first needed."""
        if self._control is None:
            self._control = self._connection.open(f"{_GUEST} control {self._run}")
        self._owed.append(answered)
        self._control.write(line.encode() + b"\n")

    def _take_answers(self) -> bool:
        """Take the answers of the control command, a line for each line; returns whether any came."""
        if self._control is None or (data := self._control.read()) is None:
            return False
        if not data:
            _check("control", *self._control.close())
            raise OperationFailedError("in the guest, 'control' ended")
        *lines, self._answers = (self._answers + data).split(b"\n")
        for line in lines:
            if line != b"ok":
                raise OperationFailedError(f"in the guest, 'control' failed: {_text(line)}")
            if not self._owed:
                raise OperationFailedError("in the guest, 'control' answers something that it was not asked")
            self._owed.pop(0)()
        _check_size(self._answers)
        return True

    def _run_in_guest(self, words: str, send: Callable[[Channel], None] | None = None) -> bytes:
        status, answer, said = self._command(words, send)
        _check(words, status, said)
        return answer

    def _command(self, words: str, send: Callable[[Channel], None] | None = None) -> tuple[int, bytes, bytes]:
        """Run a command; returns its exit status, its standard output and its standard error."""
        deadline = time.monotonic() + _COMMAND_TIMEOUT_S
        channel = self._connection.open(f"{_GUEST} {words}")
        if send is not None:
            send(channel)
            deadline = time.monotonic() + _COMMAND_TIMEOUT_S
        channel.end_input()
        output = self._read(channel, deadline)
        status, said = channel.close()
        return status, output, said

    def _read_line(self, channel: Channel) -> bytes:
        """The first line of a command's output; the text after it is kept for ``_take_lines``."""
        said = self._read(channel, time.monotonic() + _COMMAND_TIMEOUT_S, until=b"\n")
        line, end, self._lines = said.partition(b"\n")
        if not end:
            _check("begin", *channel.close())
            raise UnavailableError("the guest broke off")
        return line + end

    def _read(self, channel: Channel, deadline: float, *, until: bytes | None = None) -> bytes:
        """Read a command's output from now to its end, or until that text is in it."""
        output = bytearray()
        while (until is None or until not in output) and (data := channel.read()) != b"":
            if data is None:
                self._wait(deadline)
            else:
                output += data
                _check_size(output)
        return bytes(output)

    def _wait(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
            raise UnavailableError("the guest does not answer")


def _check(words: str, status: int, said: bytes) -> None:
    if status < 0:
        raise UnavailableError("the connection to the guest broke")
    if status == _SUPERSEDED:
        raise SupersededError("a later run of the job has its VM")
    if status != 0:
        raise OperationFailedError(f"in the guest, '{words}' failed: {_text(said) or status}")


def _check_size(said: bytes | bytearray) -> None:
    if len(said) > _SAID_BYTES:
        raise OperationFailedError(f"the guest says something that none of its tools says: {_text(said)}")


def _text(data: bytes | bytearray) -> str:
    return " ".join(data[:SHOWN_BYTES].decode("utf-8", "replace").split())
