"""Link: the ssh connection to one node's agent, made when needed and made anew when broken.

No lock is held while a caller waits for the node, and all that wait for a connection share one attempt. So a silent
node keeps each of its callers for the same time, however many there are, and no others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rmsplugin.adapters.ssh_library import paramiko
from rmsplugin.errors import HostKeyError, KeyRefusedError, TimedOutError, UnavailableError, UnreachableError

#: sshd's MaxSessions is 10 unless the site changes it; more channels at once on one connection are refused.
_CALLS_AT_ONCE = 8
#: Pauses between requests for a channel that are refused, the first and the longest: sshd counts a session until it has
#: seen its end, which a busy node does later than the caller.
_FIRST_PAUSE_S, _PAUSE_S = 0.02, 0.5
#: The calls among these that read or copy whole states: they take minutes, and must not keep the short ones waiting.
_LONG_CALLS_AT_ONCE = 5
#: The time that a call waits for others of its kind to end.
_LONG_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Target:
    """The way to the agent of every node."""

    user: str
    key_path: str
    known_hosts_path: str
    connect_timeout_s: float


class Link:
    """The connection to one node, made when needed and made anew when broken."""

    def __init__(self, node: str, target: Target) -> None:
        self.node = node
        self._target = target
        self._client: paramiko.SSHClient | None = None
        self._opening: Future[paramiko.Transport] | None = None
        self._closed = False
        self._lock = threading.Lock()  # never held while a caller waits for the node
        self._slots = threading.BoundedSemaphore(_CALLS_AT_ONCE)
        self._long_slots = threading.BoundedSemaphore(_LONG_CALLS_AT_ONCE)

    @contextmanager
    def slot(self, long: bool, timeout_s: float) -> Iterator[None]:
        """Wait for a turn. Raises TimedOutError."""
        with ExitStack() as taken:
            for slots, bound_s in ((self._long_slots, _LONG_WAIT_S), (self._slots, timeout_s))[0 if long else 1 :]:
                if not slots.acquire(timeout=max(0.0, bound_s)):
                    raise TimedOutError(f"too many calls to the node agent of {self.node} are under way")
                taken.callback(slots.release)
            yield

    @contextmanager
    def channel(self, timeout_s: float) -> Iterator[paramiko.Channel]:
        """A fresh channel to the node. Raises UnavailableError."""
        channel = self.open_channel(timeout_s)
        try:
            yield channel
        finally:
            channel.close()

    def open_channel(self, timeout_s: float) -> paramiko.Channel:
        """A fresh channel to the node, which the caller closes. Raises UnavailableError."""
        deadline = time.monotonic() + timeout_s
        # A connection that broke unnoticed (the node restarted) shows it only here: it is worth a second try.
        for attempt in (1, 2):
            until = min(deadline, time.monotonic() + self._target.connect_timeout_s)
            transport = self._connected(until)
            try:
                return _opened(transport, until)
            except (paramiko.SSHException, EOFError, OSError) as error:
                self.drop(transport)
                if attempt == 2:
                    raise UnavailableError(f"the node agent of {self.node} cannot be reached: {error}") from None
        raise AssertionError("unreachable")

    def _connected(self, until: float) -> paramiko.Transport:
        """The present connection, or the one that is being made: all that wait share one attempt."""
        with self._lock:
            transport = self._client.get_transport() if self._client else None
            if transport is not None and transport.is_active():
                return transport
            if self._opening is None:
                self._opening = Future()
                threading.Thread(
                    target=self._connect, args=(self._opening,), name=f"ssh: {self.node}", daemon=True
                ).start()
            opening = self._opening
        try:
            return opening.result(max(0.0, until - time.monotonic()))
        except TimeoutError:
            # Name service has no bound that could be set; the attempt goes on for later callers.
            raise UnreachableError(f"the node agent of {self.node} cannot be reached: no answer in time") from None

    def _connect(self, opening: Future[paramiko.Transport]) -> None:
        client = paramiko.SSHClient()
        timeout_s = self._target.connect_timeout_s
        error: Exception | None = None
        kind = UnreachableError
        transport: paramiko.Transport | None = None
        try:
            client.load_host_keys(self._target.known_hosts_path)
            client.set_missing_host_key_policy(paramiko.RejectPolicy())
            client.connect(
                self.node,
                username=self._target.user,
                key_filename=self._target.key_path,
                timeout=timeout_s,
                banner_timeout=timeout_s,
                auth_timeout=timeout_s,
                channel_timeout=timeout_s,
                allow_agent=False,
                look_for_keys=False,
            )
            transport = client.get_transport()
            if transport is not None:
                transport.set_keepalive(15)
        except Exception as reason:  # all are told, whatever the error
            error, kind = reason, _kind_of(reason, client, self.node)
        with self._lock:
            self._opening = None
            if transport is not None and not self._closed:
                old, self._client = self._client, client
            else:
                old = client
        if old is not None:
            old.close()
        if transport is not None:
            opening.set_result(transport)
        else:
            why = error or "it hung up"
            opening.set_exception(kind(f"the node agent of {self.node} cannot be reached: {why}"))

    def drop(self, transport: paramiko.Transport) -> None:
        """Close the connection if it is still the given one."""
        client = None
        with self._lock:
            if self._client is not None and self._client.get_transport() in (transport, None):
                client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """Close the connection for good, and the one that is being made."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _kind_of(error: Exception, client: paramiko.SSHClient, node: str) -> type[UnreachableError]:
    """The kind of failure of a connection, by which people know what to mend."""
    if isinstance(error, paramiko.AuthenticationException):
        return KeyRefusedError
    is_unknown = isinstance(error, paramiko.SSHException) and client.get_host_keys().lookup(node) is None
    return HostKeyError if is_unknown or isinstance(error, paramiko.BadHostKeyException) else UnreachableError


def _opened(transport: paramiko.Transport, until: float) -> paramiko.Channel:
    """A channel of the connection, on which other calls go on. A refusal is no sign that the connection is broken.

    Raises:
        paramiko.SSHException: it is broken, or the node refuses channels until then.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return transport.open_session(timeout=max(0.1, until - time.monotonic()))
        except paramiko.SSHException:  # of refusals at the same time paramiko tells one, the others without a reason
            if not transport.is_active() or time.monotonic() + pause_s >= until:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S)


class Patience:
    """The wait for an answer: until a deadline, and no longer than ``silence_s`` after the last line."""

    def __init__(self, timeout_s: float, silence_s: float | None = None) -> None:
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self.begin()

    def begin(self) -> None:
        """Start the time now."""
        self._begun = self._heard = time.monotonic()

    @property
    def remaining_s(self) -> float:
        """The remaining seconds. Raises TimeoutError when there are none."""
        until = self._begun + self._timeout_s
        if self._silence_s is not None:
            until = min(until, self._heard + self._silence_s)
        remaining_s = until - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        return remaining_s

    def heard(self, timeout_s: float | None = None) -> None:
        """Note a sign of life of the node, which may have so long in all."""
        self._heard = time.monotonic()
        self._timeout_s = timeout_s or self._timeout_s
