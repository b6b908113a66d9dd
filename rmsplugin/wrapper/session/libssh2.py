"""libssh2, as far as the wrapper needs it: one connection and its channels; no call waits but ``Connection.finish``.

It is a library in this process rather than an ``ssh`` process beside it: this takes a third of the memory, and the
private key is never in any file.
"""

from __future__ import annotations

import contextlib
import ctypes
import select
import socket
import time
from collections.abc import Callable

from rmsplugin.errors import ForbiddenError, OperationFailedError, UnavailableError

_LIBRARY = "libssh2.so.1"
_PACKAGE = "libssh2-1 (Debian 13: libssh2-1t64)"

_INIT_NO_CRYPTO = 1
_EAGAIN = -37
_REFUSED_KEY = (-18, -19)  # LIBSSH2_ERROR_AUTHENTICATION_FAILED, LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED
_OUTBOUND = 2  # LIBSSH2_SESSION_BLOCK_OUTBOUND
_STDERR = 1  # SSH_EXTENDED_DATA_STDERR

# LIBSSH2_METHOD_*: the methods that may be agreed on. The library leaves out those that its release lacks.
_METHODS = (
    (0, b"curve25519-sha256,curve25519-sha256@libssh.org"),
    (1, b"ssh-ed25519"),
    (2, b"aes128-gcm@openssh.com,aes128-ctr,aes256-ctr"),
    (3, b"aes128-gcm@openssh.com,aes128-ctr,aes256-ctr"),
    (4, b"hmac-sha2-256"),
    (5, b"hmac-sha2-256"),
)

# The most bytes of each stream on their way: the more, the more lies in this process when a disk is slow.
_WINDOW_BYTES = 128 << 10
_PACKET_BYTES = 32 << 10
_CHUNK_BYTES = 32 << 10
# The kept bytes of a command's errors, which should be a sentence.
_ERROR_BYTES = 4 << 10

_library: ctypes.CDLL | None = None


def _load() -> ctypes.CDLL:
    """The library, loaded once.

    Raises:
        OperationFailedError: it is not installed.
    """
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise OperationFailedError(f"{_LIBRARY} cannot be loaded: install {_PACKAGE} on this host") from None
        for name in ("session_init_ex", "channel_open_ex", "session_hostkey"):
            getattr(library, f"libssh2_{name}").restype = ctypes.c_void_p
        for name in ("channel_read_ex", "channel_write_ex"):
            getattr(library, f"libssh2_{name}").restype = ctypes.c_ssize_t
        # The crypto library sets itself up as far as it is used; its whole setup would take two more megabytes.
        library.libssh2_init(_INIT_NO_CRYPTO)
        _library = library
    return _library


class Connection:
    """An ssh connection with a login, to a server that has proved its identity. One thread uses it."""

    def __init__(self, sock: socket.socket, host_key: bytes, *, timeout_s: float) -> None:
        """Shake hands over a connected socket.

        Args:
            sock: the socket, which belongs to the connection from now on.
            host_key: the only accepted host key, as it travels (not in base64).
            timeout_s: for each step that waits for the other side, from now on.

        Raises:
            UnavailableError: the other side does not answer as an ssh server does.
            ForbiddenError: the other side has another host key.
        """
        self._ssh = _load()
        self._sock = sock
        self._timeout_s = timeout_s
        self.buffer = ctypes.create_string_buffer(_CHUNK_BYTES)
        sock.setblocking(False)
        self._session = ctypes.c_void_p(self._ssh.libssh2_session_init_ex(None, None, None, None))
        try:
            if not self._session:
                raise MemoryError
            self._ssh.libssh2_session_set_blocking(self._session, 0)
            for kind, names in _METHODS:
                if self._ssh.libssh2_session_method_pref(self._session, kind, names) != 0:
                    raise OperationFailedError(f"{_LIBRARY} on this host knows none of {names.decode()}")
            self.finish(lambda: self._ssh.libssh2_session_handshake(self._session, sock.fileno()))
            if self._host_key() != host_key:
                raise ForbiddenError("the VM shows another host key")
        except BaseException:
            self.close()
            raise

    def _host_key(self) -> bytes:
        length, kind = ctypes.c_size_t(), ctypes.c_int()
        place = self._ssh.libssh2_session_hostkey(self._session, ctypes.byref(length), ctypes.byref(kind))
        return ctypes.string_at(place, length.value) if place else b""

    def login(self, user: str, private_key: str) -> None:
        """Log in as the user, by an OpenSSH private key.

        Raises:
            UnavailableError: the connection broke.
            ForbiddenError: the key is refused.
        """
        name, key = user.encode(), private_key.encode()
        status = self._repeat(
            lambda: self._ssh.libssh2_userauth_publickey_frommemory(
                self._session, name, ctypes.c_size_t(len(name)), None, ctypes.c_size_t(0), key,
                ctypes.c_size_t(len(key)), None,
            )
        )  # fmt: skip
        if status in _REFUSED_KEY:
            raise ForbiddenError("the VM does not take the key of the vjob")
        self._check(status)

    def fileno(self) -> int:
        """Descriptor of the socket, for poll."""
        return self._sock.fileno()

    def open(self, command: str) -> Channel:
        """Start a command on the other side. Raises UnavailableError."""
        words = command.encode()
        # A channel is a pointer. No pointer means an error, or that the call has to be repeated.
        opened: list[int] = []

        def call() -> int:
            place = self._ssh.libssh2_channel_open_ex(
                self._session, b"session", 7, _WINDOW_BYTES, _PACKET_BYTES, None, 0
            )
            if place:
                opened.append(place)
                return 0
            return int(self._ssh.libssh2_session_last_errno(self._session)) or -1

        self.finish(call)
        channel = Channel(self, self._ssh, ctypes.c_void_p(opened[0]))
        channel.execute(words)
        return channel

    def finish(self, call: Callable[[], int]) -> int:
        """Repeat a call of the library until it has succeeded; return its result.

        Raises:
            UnavailableError: the connection broke, or the other side did not answer in time.
        """
        return self._check(self._repeat(call))

    def attempt(self, call: Callable[[], int]) -> int | None:
        """Make a call of the library; None if it has to wait for the other side. Raises UnavailableError."""
        while (status := call()) == _EAGAIN:
            # Data that is half sent has to be sent before the library may be asked for anything else.
            if not self._ssh.libssh2_session_block_directions(self._session) & _OUTBOUND:
                return None
            self._wait(select.POLLOUT, self._timeout_s)
        return self._check(status)

    def shut(self) -> None:
        """Shut the socket; any thread may call."""
        with contextlib.suppress(OSError):  # The connection may have broken before.
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Drop the connection at once."""
        self.shut()
        if self._session:
            # The socket is shut: none of these calls waits, though some have to be repeated.
            while self._ssh.libssh2_session_free(self._session) == _EAGAIN:
                pass
            self._session = ctypes.c_void_p()
        self._sock.close()

    def _repeat(self, call: Callable[[], int]) -> int:
        deadline = time.monotonic() + self._timeout_s
        while (status := call()) == _EAGAIN:
            outbound = self._ssh.libssh2_session_block_directions(self._session) & _OUTBOUND
            self._wait(select.POLLOUT if outbound else select.POLLIN, deadline - time.monotonic())
        return status

    def _wait(self, events: int, timeout_s: float) -> None:
        # An ssh server holds back a small message until the message before was acknowledged, which this host would do
        # 40 ms later. The kernel forgets again and again that it has to acknowledge at once.
        with contextlib.suppress(OSError):  # the connection broke, as the library will find out
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        poll = select.poll()
        poll.register(self._sock, events)
        if not poll.poll(max(timeout_s, 0.0) * 1000):
            raise UnavailableError("the guest does not answer")

    def _check(self, status: int) -> int:
        if status >= 0:
            return status
        text = ctypes.c_char_p()
        self._ssh.libssh2_session_last_error(self._session, ctypes.byref(text), None, 0)
        reason = (text.value or b"").decode("utf-8", "replace") or f"error {status}"
        raise UnavailableError(f"the connection to the guest broke: {reason}")


class Channel:
    """One running command."""

    def __init__(self, connection: Connection, library: ctypes.CDLL, place: ctypes.c_void_p) -> None:
        """Made by ``Connection.open``."""
        self._connection, self._ssh, self._place = connection, library, place
        self._said = b""

    def execute(self, words: bytes) -> None:
        """Have the command started."""
        self._connection.finish(
            lambda: self._ssh.libssh2_channel_process_startup(self._place, b"exec", 4, words, len(words))
        )

    def read(self) -> bytes | None:
        """Return the command's standard output; empty at its end, None if there is none yet.

        Raises:
            UnavailableError: the connection broke.
        """
        return self._read(0)

    def pending(self) -> bool:
        """Whether ``read`` has something to return: reading one channel also takes in the data of the others.

        Raises:
            UnavailableError: the connection broke.
        """
        # Asked about standard error, the library counts standard output as well.
        if self._ssh.libssh2_poll_channel_read(self._place, _STDERR):
            self._read_errors()
        return bool(self._ssh.libssh2_poll_channel_read(self._place, 0) or self._ssh.libssh2_channel_eof(self._place))

    def _read_errors(self) -> None:
        """Read the errors that have come, but no more than can be on their way: then other channels have their turn."""
        rest = _WINDOW_BYTES
        while rest > 0 and (said := self._read(_STDERR)):
            self._said += said[: _ERROR_BYTES - len(self._said)]
            rest -= len(said)

    def _read(self, stream: int) -> bytes | None:
        buffer, size = self._connection.buffer, ctypes.c_size_t(_CHUNK_BYTES)
        count = self._connection.attempt(lambda: self._ssh.libssh2_channel_read_ex(self._place, stream, buffer, size))
        return None if count is None else memoryview(buffer)[:count].tobytes()

    def write(self, data: bytes) -> None:
        """Write all of the data to the command. Raises UnavailableError."""
        rest = data
        while rest:
            part, size = rest, ctypes.c_size_t(len(rest))
            rest = rest[self._connection.finish(
                lambda: self._ssh.libssh2_channel_write_ex(self._place, 0, part, size)  # noqa: B023
            ):]  # fmt: skip

    def end_input(self) -> None:
        """End the command's standard input. Raises UnavailableError."""
        self._connection.finish(lambda: self._ssh.libssh2_channel_send_eof(self._place))

    def close(self) -> tuple[int, bytes]:
        """End a command whose output has ended.

        Returns:
            Its exit status, -1 if it has none; and its standard error.

        Raises:
            UnavailableError: the connection broke.
        """
        self.pending()
        self._connection.finish(lambda: self._ssh.libssh2_channel_close(self._place))
        status = int(self._ssh.libssh2_channel_get_exit_status(self._place))
        name, length = ctypes.c_char_p(), ctypes.c_size_t()
        self._ssh.libssh2_channel_get_exit_signal(
            self._place, ctypes.byref(name), ctypes.byref(length), None, None, None, None
        )
        self._connection.finish(lambda: self._ssh.libssh2_channel_free(self._place))
        return (-1 if name.value else status), self._said
