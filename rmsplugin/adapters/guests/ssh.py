"""Ssh: guests reached by ssh as root, with the engine's key."""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from rmsplugin.adapters.guests.config import GuestConfig, Tools, image_tools
from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.ssh_library import paramiko
from rmsplugin.errors import ForbiddenError, OperationFailedError, RefusedError, TimedOutError, UnavailableError

_SSH_PORT = 22

# A cut connection is an exception here. The messages of paramiko's threads about it must not get into the output of a
# job or a command, where Python writes records without a handler; the engine's log does have a handler.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

#: Pauses between attempts to connect: a guest whose network is up mostly has its ssh server a moment later. One that
#: boots slowly is asked less and less often, since each attempt costs it time.
_FIRST_RETRY_S, _RETRY_GROWTH, _RETRY_S = 0.02, 1.3, 0.3
#: The time for which a command in a guest goes on after it has become pointless.
_CHECK_S = 0.5
#: An attempt to connect ends after so long, each later than the one before it, up to the last. The kernel itself
#: repeats a lost first packet only after 1 s, and many are sent before a guest's card is up.
_CONNECT_S = 0.03
_CONNECT_GROWTH = 1.15
_LONGEST_CONNECT_S = 1.0
_OUTPUT_LIMIT = 4096
_SEND_BYTES = 1 << 15

# /run may be mounted noexec (initramfs-tools does so). The tools replace their former selves by rename or unlink, as
# every tar does, so that running tools keep reading their own files. A guest that has the tools unpacks by
# itself: an emulated guest takes 0.1 s and more for a tar, and for the work of this shell before it.
_UNPACK = (
    "[ ! -x /run/rmsplugin/bin/unpack ] || exec /run/rmsplugin/bin/unpack; "
    "set -e; umask 022; [ -d /run/rmsplugin ] || mkdir /run/rmsplugin; noexec='' own=''; "
    "while read -r _ target _ options _; do case $target,$options, in "
    "/run,*,noexec,*) noexec=1 ;; /run/rmsplugin,*) own=1 ;; esac; done </proc/mounts; "
    'if [ -n "$noexec" ] && [ -z "$own" ]; '
    "then mount -t tmpfs -o mode=0755,nosuid,nodev rmsplugin /run/rmsplugin; fi; "
    "tar -x -f - -C /run/rmsplugin; exec /run/rmsplugin/bin/configure"
)

# By the tools that the guest's image has, where they are those of this release: then they need not be sent. Data that
# nobody reads would look like a broken connection.
_UNPACK_BY_IMAGE = "[ -x {0}/unpack ] || {{ cat >/dev/null; exit {1}; }}; exec {0}/unpack"
_NOT_IN_IMAGE = 69  # EX_UNAVAILABLE


# A set clock is late by so much at most, or was set so often.
_CLOCK_LATE_S = 0.5
_CLOCK_TRIES = 5
_USED = "/run/rmsplugin/bin/account print"

# The first process that sees the script's end keeps it, as the job's user, in `exit`; perhaps none has looked yet. Then
# the script's process is a zombie without other threads. The files are the user's: they tell only of his own job.
_ENDED = (
    "cd /run/rmsplugin/state 2>/dev/null || exit 0; [ -e started ] || exit 0; [ ! -e exit ] || { echo ended; exit; }; "
    "[ -f pid ] && read -r pid <pid || exit 0; case $pid in ''|*[!0-9]*) exit 0 ;; esac; "
    "state='' threads=1; [ -e /proc/$pid/status ] && while read -r key value _; do case $key in "
    "State:) state=$value ;; Threads:) threads=$value ;; esac; done </proc/$pid/status; "
    "case $state,$threads in ,*|Z,0|Z,1) echo ended ;; esac; exit 0"
)

_LINGER_S = 3.0

#: A guest is configured right after the wait for it. An older connection belongs to a start that failed.
_KEPT_S = 30.0


# A CPU without the file is always on line. The directories of all CPUs that there can be are numbered without gaps.
_CPUS = (
    "cd {0} || exit 1; i=0 before=0; while [ -d cpu$i ]; do on=1 wanted=1; [ $i -lt {1} ] || wanted=0; "
    "[ ! -e cpu$i/online ] || read -r on <cpu$i/online || exit 1; before=$((before + on)); "
    "[ $on = $wanted ] || echo $wanted >cpu$i/online || exit 1; i=$((i + 1)); done; echo $before"
)
_CPU_FILES = "/sys/devices/system/cpu"


class SshGuests:
    """Guests reached by ssh. Makes one connection a call: calls are rare, and VMs move between them.

    Only the connection by which a guest was seen ready is used for the next call, too: an emulated guest that was
    restored just now takes the better part of a second for a connection.
    """

    def __init__(
        self,
        engine_private_key: str,
        *,
        port: int = _SSH_PORT,
        connect_timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the engine's private key, the text of an OpenSSH key file.

        Raises:
            RefusedError: it is not an ed25519 key, or has a passphrase.
        """
        try:
            self._key = paramiko.Ed25519Key.from_private_key(io.StringIO(engine_private_key))
        except (paramiko.SSHException, ValueError, IndexError):
            raise RefusedError(
                "the engine's key is not an ed25519 key in OpenSSH's form without a passphrase"
            ) from None
        self._port = port
        self._connect_timeout_s = connect_timeout_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[paramiko.Transport, float]] = {}

    def wait_ready(
        self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
    ) -> None:
        """See Guests."""
        deadline = time.monotonic() + timeout_s
        pause_s = _FIRST_RETRY_S
        while True:
            check()
            left = max(deadline - time.monotonic(), 0.1)
            try:
                self._keep(address, host_key, self._enter(address, host_key, timeout_s=left, check=check))
                return
            except (UnavailableError, TimedOutError) as error:
                if time.monotonic() + pause_s >= deadline:
                    raise UnavailableError(f"guest {address} is not up after {timeout_s:.0f} s: {error}") from None
            time.sleep(pause_s)
            pause_s = min(pause_s * _RETRY_GROWTH, _RETRY_S)

    def configure(
        self,
        address: str,
        host_key: str,
        config: GuestConfig,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """See Guests."""
        with self._connection(address, host_key, timeout_s=timeout_s, check=check, close=_close_later) as transport:
            if config.tools is Tools.IMAGE:
                command = _UNPACK_BY_IMAGE.format(image_tools(), _NOT_IN_IMAGE)
                status, output = self._exec(transport, command, config.archive(), timeout_s, check)
                if status != _NOT_IN_IMAGE:
                    self._check(address, status, output)
                    return
                config = replace(config, tools=Tools.SENT)
            self._check(address, *self._exec(transport, _UNPACK, config.archive(), timeout_s, check))

    def used(self, address: str, host_key: str, *, timeout_s: float) -> Used | None:
        """See Guests."""
        return Used.parse(self._run_in_guest(address, host_key, _USED, b"", timeout_s=timeout_s))

    def script_ended(self, address: str, host_key: str, *, timeout_s: float) -> bool:
        """See Guests."""
        return self._run_in_guest(address, host_key, _ENDED, b"", timeout_s=timeout_s).strip() == "ended"

    def set_cpus(self, address: str, host_key: str, cpus: int, *, timeout_s: float) -> int:
        """See Guests."""
        if cpus < 1:
            raise ValueError(f"a guest cannot do with {cpus} CPUs")
        said = self._run_in_guest(address, host_key, _CPUS.format(_CPU_FILES, cpus), b"", timeout_s=timeout_s)
        if not said.strip().isdecimal():
            raise OperationFailedError(f"guest {address}: it does not say how many CPUs it used: {said.strip()!r}")
        return int(said)

    def set_clock(self, address: str, host_key: str, *, timeout_s: float) -> None:
        """See Guests.

        GNU date takes the fraction; busybox does not and gets whole seconds, at the instant when one begins. On a busy
        node a command may be long under way, and the clock is late by as much: then it is set again.
        """
        with self._connection(address, host_key, timeout_s=timeout_s) as transport:
            fractions = True
            for _ in range(_CLOCK_TRIES):
                now = self._clock()
                if fractions:
                    status, _ = self._exec(transport, f"date -u -s @{now:.6f} >/dev/null 2>&1", b"", timeout_s)
                    fractions = status == 0
                if not fractions:
                    now = float(int(self._clock()) + 1)
                    time.sleep(max(0.0, now - self._clock()))
                    self._check(address, *self._exec(transport, f"date -u -s @{now:.0f} >/dev/null", b"", timeout_s))
                if self._clock() - now <= _CLOCK_LATE_S:
                    return

    def _run_in_guest(self, address: str, host_key: str, command: str, data: bytes, *, timeout_s: float) -> str:
        with self._connection(address, host_key, timeout_s=timeout_s) as transport:
            status, output = self._exec(transport, command, data, timeout_s)
            self._check(address, status, output)
            return output

    def _check(self, address: str, status: int, output: str) -> None:
        if status != 0:
            words = " ".join(output.split()) or "no reason given"
            raise OperationFailedError(f"guest {address}: {words} (exit code {status})")

    @contextmanager
    def _connection(
        self,
        address: str,
        host_key: str,
        *,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
        close: Callable[[paramiko.Transport], None] = paramiko.Transport.close,
    ) -> Iterator[paramiko.Transport]:
        transport = self._take(address, host_key)
        if transport is None:
            transport = self._enter(address, host_key, timeout_s=timeout_s, check=check)
        try:
            yield transport
        finally:
            close(transport)

    def _enter(self, address: str, host_key: str, *, timeout_s: float, check: Callable[[], None]) -> paramiko.Transport:
        timeout_s = min(timeout_s, self._connect_timeout_s)
        transport = open_transport(address, self._port, host_key, timeout_s=timeout_s, check=check)
        try:
            login(transport, "root", self._key, timeout_s=timeout_s)
        except BaseException:
            transport.close()
            raise
        return transport

    def _keep(self, address: str, host_key: str, transport: paramiko.Transport) -> None:
        now = time.monotonic()
        with self._lock:
            replaced = self._kept.pop((address, host_key), None)
            old = [where for where, (_, since) in self._kept.items() if now - since > _KEPT_S]
            closed = [self._kept.pop(where) for where in old] + ([replaced] if replaced else [])
            self._kept[address, host_key] = transport, now
        for each, _ in closed:
            each.close()

    def _take(self, address: str, host_key: str) -> paramiko.Transport | None:
        """The kept connection to a guest, if it is as good as a new one."""
        with self._lock:
            transport, since = self._kept.pop((address, host_key), (None, 0.0))
        if transport is None or (transport.is_active() and time.monotonic() - since <= _KEPT_S):
            return transport
        transport.close()
        return None

    def _exec(
        self,
        transport: paramiko.Transport,
        command: str,
        data: bytes,
        timeout_s: float,
        check: Callable[[], None] = lambda: None,
    ) -> tuple[int, str]:
        """Run one command and return its exit status and its output (both streams, the beginning)."""
        deadline = time.monotonic() + timeout_s
        try:
            channel = transport.open_session(timeout=timeout_s)
            # From here on this bounds paramiko's own waits, among them the wait for the answer to the request.
            channel.settimeout(timeout_s)
            channel.set_combine_stderr(True)
            channel.exec_command(command)
            _send(channel, data, deadline)
            channel.shutdown_write()
            output = _read(channel, deadline, check)
            if not channel.status_event.wait(max(deadline - time.monotonic(), 0.1)):
                raise TimedOutError(f"the guest did not finish within {timeout_s:.0f} s")
        except TimeoutError:
            raise TimedOutError(f"the guest did not finish within {timeout_s:.0f} s") from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise UnavailableError(f"the guest broke off the connection: {error}") from None
        if channel.exit_status < 0:
            raise UnavailableError("the guest broke off the connection")
        return channel.exit_status, output.decode("utf-8", "replace")


def _close_later(transport: paramiko.Transport) -> None:
    """Close a connection later: the job's wrapper is about to connect, and an emulated guest should be free for it."""
    timer = threading.Timer(_LINGER_S, transport.close)
    timer.daemon = True
    timer.start()


def _send(channel: paramiko.Channel, data: bytes, deadline: float) -> None:
    """Send all of the data, to a guest that takes it in time. Raises TimeoutError."""
    left = data
    while left:
        channel.settimeout(_left_s(deadline))
        sent = channel.send(left[:_SEND_BYTES])
        if not sent:
            raise EOFError("it takes no more")
        left = left[sent:]


def _left_s(deadline: float) -> float:
    """The seconds until then. Raises TimeoutError if the time is over."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _read(channel: paramiko.Channel, deadline: float, check: Callable[[], None]) -> bytes:
    """Read all of a command's output, and return the beginning. Raises TimeoutError, and the errors of ``check``.

    The time is over at the deadline, also for a guest that goes on talking.
    """
    output = b""
    while True:
        check()
        channel.settimeout(min(_CHECK_S, _left_s(deadline)))
        try:
            chunk = channel.recv(_OUTPUT_LIMIT)
        except TimeoutError:
            continue
        if not chunk:
            return output
        output = (output + chunk)[:_OUTPUT_LIMIT]


def open_transport(
    address: str, port: int, host_key: str, *, timeout_s: float, check: Callable[[], None] = lambda: None
) -> paramiko.Transport:
    """Connect to an ssh server that has ``host_key``, and to no other.

    ``check`` is called now and then; its errors end the attempt.

    Raises:
        UnavailableError: no server answers there, or not in time.
        ForbiddenError: the server has another key.
    """
    wanted_type, _, wanted = host_key.strip().partition(" ")
    connection = _PromptSocket(fileno=_connect(address, port, timeout_s, check).detach())
    # Questions and answers are small: each would wait for the acknowledgement of the one before.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = paramiko.Transport(connection)
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = timeout_s
    transport.daemon = True
    try:
        transport.get_security_options().key_types = (wanted_type,)
        _shake_hands(transport, timeout_s, check)
        shown = transport.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError, ValueError) as error:
        transport.close()
        raise UnavailableError(f"guest {address} does not answer as an ssh server: {error}") from None
    if shown.get_name() != wanted_type or shown.get_base64() != wanted.partition(" ")[0]:
        transport.close()
        raise ForbiddenError(f"guest {address} shows another host key than its own; nothing was sent to it")
    return transport


class _PromptSocket(socket.socket):
    """Acknowledges incoming data at once.

    An ssh server holds back a small message until the message before was acknowledged, which this host would do 40 ms
    later. The kernel forgets again and again that it has to acknowledge at once.
    """

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        with suppress(OSError):  # the connection broke, as the next call will notice
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data


def _connect(address: str, port: int, timeout_s: float, check: Callable[[], None]) -> socket.socket:
    """Connect by short attempts: one made before the guest has a network would wait longer and longer."""
    deadline = time.monotonic() + timeout_s
    attempt_s = _CONNECT_S
    while True:
        check()
        try:
            return socket.create_connection((address, port), timeout=min(attempt_s, timeout_s))
        except OSError as error:
            if not isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                raise UnavailableError(f"guest {address} cannot be reached: {error}") from None
        # A guest that is slow to answer gets enough time in the end.
        attempt_s = min(attempt_s * _CONNECT_GROWTH, _LONGEST_CONNECT_S)


def _shake_hands(transport: paramiko.Transport, timeout_s: float, check: Callable[[], None]) -> None:
    """Do the ssh handshake. Raises SSHException, EOFError, OSError, and the errors of ``check``."""
    done, deadline = threading.Event(), time.monotonic() + timeout_s
    transport.start_client(event=done)
    try:
        while not done.wait(_CHECK_S):
            check()
            if time.monotonic() >= deadline:
                raise paramiko.SSHException("no answer in time")
    except BaseException:
        transport.close()
        raise
    if not transport.is_active():
        raise transport.get_exception() or paramiko.SSHException("the connection broke")


def login(transport: paramiko.Transport, user: str, key: paramiko.PKey, *, timeout_s: float) -> None:
    """Log in by public key.

    Raises:
        ForbiddenError: the server refuses the key.
        UnavailableError: the connection broke, or it took too long.
    """
    transport.auth_timeout = timeout_s
    try:
        transport.auth_publickey(user, key)
    except paramiko.AuthenticationException as error:
        if "timeout" in str(error).lower() or not transport.is_active():
            raise UnavailableError(f"the guest broke off the login of {user}: {error}") from None
        raise ForbiddenError(f"the guest does not take the key of {user}") from None
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise UnavailableError(f"the guest broke off the login of {user}: {error}") from None
