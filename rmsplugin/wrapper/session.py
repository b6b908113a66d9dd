"""Session: the wrapper's connection to VM 0, where the script runs, and the words it can say there.

Every command is a constant with numbers in it; whatever comes from the user travels as data (docs/protocols.md,
section 3). A lost connection raises UnavailableError, and everything can be said again over the next one.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import paramiko

from rmsplugin.adapters.guest import SSH_PORT, login, open_transport
from rmsplugin.errors import OperationFailedError, UnavailableError
from rmsplugin.wrapper.streams import Ack

_GUEST = "/run/rmsplugin/bin/rmsplugin-guest"
_CONNECT_TIMEOUT_S = 15.0
_COMMAND_TIMEOUT_S = 60.0
_CHUNK_BYTES = 1 << 16

# The kernel watches the connection: nothing has to wake up for it here, and it goes on while a suspend has this
# process stopped. A VM that moves or sleeps longer than this is connected to anew.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
_UNACKNOWLEDGED_MS = 20_000
# paramiko's reader looks up from the socket that often, for keepalives that are not used here.
_READER_WAKES_S = 5.0


@dataclass(frozen=True, slots=True)
class Access:
    """What the engine tells of a running vjob: how to get into its VMs."""

    user: str
    vm_names: tuple[str, ...]
    address: str
    host_key: str
    private_key: str = field(repr=False)

    @classmethod
    def parse(cls, answer: dict[str, Any]) -> Access | None:
        """Read the engine's answer; None while the VMs are not running.

        Raises:
            UnavailableError: it is not what an engine says.
        """
        if answer.get("state") != "running" or not answer.get("vms"):
            return None
        try:
            vms = answer["vms"]
            return cls(
                str(answer["user"]),
                tuple(str(vm["name"]) for vm in vms),
                str(vms[0]["address"]),
                str(vms[0]["host_key"]),
                str(answer["private_key"]),
            )
        except (KeyError, TypeError) as error:
            raise UnavailableError(f"the engine's answer lacks {error}") from None


@dataclass(frozen=True, slots=True)
class Ending:
    """How the script ended: by exit code, or by a signal (not 0)."""

    exit_code: int
    signal: int


class Session:
    """One connection. Several threads may use it."""

    def __init__(self, transport: paramiko.Transport) -> None:
        """Take a transport that is logged in; use ``connect``."""
        self._transport = transport

    @classmethod
    def connect(cls, access: Access, *, port: int = SSH_PORT) -> Session:
        """Connect as the user to the VM with the key and the host key that the engine gave.

        Raises:
            UnavailableError: it does not answer (any more, or yet).
            ForbiddenError: it shows another host key, or does not take the key.
        """
        key = paramiko.Ed25519Key.from_private_key(io.StringIO(access.private_key))
        transport = open_transport(access.address, port, access.host_key, timeout_s=_CONNECT_TIMEOUT_S)
        try:
            login(transport, access.user, key, timeout_s=_CONNECT_TIMEOUT_S)
        except Exception:
            transport.close()
            raise
        connection = transport.sock
        assert isinstance(connection, socket.socket)  # never a channel of another transport: we made it
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
        connection.settimeout(_READER_WAKES_S)
        return cls(transport)

    def close(self) -> None:
        """Drop the connection; what runs over it ends with UnavailableError."""
        self._transport.close()

    def acks(self) -> tuple[bool, dict[str, Ack]]:
        """Whether the script was started, by whomever, and what was acknowledged of each stream."""
        started, result = False, {}
        for line in self._run("acks").decode("ascii", "replace").splitlines():
            match line.split():
                case ["started"]:
                    started = True
                case [stream, offset, size]:
                    result[stream] = Ack(int(offset), int(size))
        return started, result

    def acknowledge(self, acks: Mapping[str, Ack]) -> None:
        """Return when the guest has kept the acknowledgements."""
        lines = "".join(f"{stream} {ack.offset} {ack.size}\n" for stream, ack in acks.items())
        self._run("ack", lambda channel: channel.sendall(lines.encode()))

    def put(self, files: Mapping[str, bytes], stdin_fd: int | None) -> None:
        """Leave the files that the script's start needs, and its standard input, if it is a file, among them."""

        def send(channel: paramiko.Channel) -> None:
            with channel.makefile("wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
                for name, data in files.items():
                    archive.addfile(_member(name, len(data)), io.BytesIO(data))
                if stdin_fd is not None:
                    with open(f"/proc/self/fd/{stdin_fd}", "rb") as file:
                        archive.addfile(_member("stdin", os.fstat(stdin_fd).st_size), file)
                archive.addfile(_member("complete", 0))

        self._run("put", send)

    def start(self) -> None:
        """Start the script unless it was started."""
        answer = self._run("start")
        if answer not in (b"started\n", b"already\n"):
            raise OperationFailedError(f"the script could not be started: {_text(answer)}")

    def follow(self, stream: str, offset: int, feed: Callable[[bytes], None]) -> None:
        """Feed the stream from ``offset`` on, until the script has ended and all of it is fed."""
        try:
            with self._command(f"follow {stream} {offset}") as channel:
                # The other side takes the end of its standard input for the loss of the connection; so it stays open.
                while data := channel.recv(_CHUNK_BYTES):
                    _feed(feed, data)
                self._check("follow", channel, b"", time.monotonic() + _COMMAND_TIMEOUT_S)
        except _OutputError as failed:
            raise failed.error from None

    def kill(self, number: int, *, everything: bool) -> None:
        """Send a signal to the script's process, or to all of its session."""
        self._run(f"kill {number} all" if everything else f"kill {number}")

    def ending(self) -> Ending:
        """How the script ended; it must have."""
        answer = self._run("wait", shut=False)
        match answer.decode("ascii", "replace").split():
            case ["exit", code]:
                return Ending(int(code), 0)
            case ["signal", number]:
                return Ending(0, int(number))
        raise OperationFailedError(f"the guest does not tell how the script ended: {_text(answer)}")

    @contextlib.contextmanager
    def _command(self, words: str) -> Any:
        """Run a command; a lost connection becomes an UnavailableError, whoever notices it."""
        try:
            channel = self._transport.open_session(timeout=_CONNECT_TIMEOUT_S)
            try:
                # The answer to the request: paramiko waits for it without a bound of its own.
                channel.exec_command(f"{_GUEST} {words}")
                yield channel
            finally:
                channel.close()
        except TimeoutError:
            raise UnavailableError("the guest does not answer") from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            # OSError: paramiko raises what its own thread saw of the socket, e.g. a reset.
            raise UnavailableError(f"the connection to the guest broke: {error}") from None

    def _run(self, words: str, send: Callable[[paramiko.Channel], None] | None = None, *, shut: bool = True) -> bytes:
        deadline = time.monotonic() + _COMMAND_TIMEOUT_S
        with self._command(words) as channel:
            channel.settimeout(_COMMAND_TIMEOUT_S)
            if send is not None:
                send(channel)
            if shut:
                channel.shutdown_write()
            output = bytearray()
            while data := channel.recv(_CHUNK_BYTES):
                output += data
            said = channel.recv_stderr(_CHUNK_BYTES) if channel.recv_stderr_ready() else b""
            self._check(words, channel, said, deadline)
            return bytes(output)

    def _check(self, words: str, channel: paramiko.Channel, said: bytes, deadline: float) -> None:
        if not channel.status_event.wait(max(deadline - time.monotonic(), 0.1)) or channel.exit_status < 0:
            raise UnavailableError("the connection to the guest broke")
        if channel.exit_status != 0:
            raise OperationFailedError(f"in the guest, '{words}' failed: {_text(said) or channel.exit_status}")


class _OutputError(Exception):
    """Not the connection failed, but what was done with the data."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _feed(feed: Callable[[bytes], None], data: bytes) -> None:
    try:
        feed(data)
    except OSError as error:
        raise _OutputError(error) from error


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o700
    return member


def _text(data: bytes) -> str:
    return " ".join(data.decode("utf-8", "replace").split())
