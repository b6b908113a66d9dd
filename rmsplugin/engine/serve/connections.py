"""Connections: bounds the open connections of each caller, and ends a connection that asks nothing or too much.

Every connection costs a file descriptor, and their number is limited. Without a bound for each caller, one user who
opens connections would shut out all others, Slurm's hooks and all wrappers. Over TCP the caller is not known before the
first request: until then he is a *stranger*. Strangers cannot crowd others out.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

from rmsplugin.engine.serve.waits import TooManyError

#: A connection ends after so many seconds without a request, or without one that proves its sender.
_SILENT_S = 30.0
#: Bytes; more than a request of the API can have, with its headers.
_REQUEST_MAX = 256 * 1024
#: Descriptors for the ledger, hypervisors and ssh connections to nodes and guests.
_OTHER_DESCRIPTORS = 512
_ENOUGH_DESCRIPTORS = 65536
#: More than the wrappers of all vjobs of one user on one front.
_EACH_MAX = 4096


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The most connections open at once: of each caller, of all callers together, and besides of strangers."""

    each: int
    total: int
    strangers: int

    @classmethod
    def of_this_process(cls) -> ConnectionLimits:
        """The limits by this process's file descriptors; their soft limit is raised to the hard one."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_DESCRIPTORS)
        if soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        every = most - min(most // 2, _OTHER_DESCRIPTORS)
        return cls(each=min(_EACH_MAX, every // 4), total=every - every // 4, strangers=every // 4)


class Connections:
    """All connections to the service. Used in one event loop."""

    def __init__(self, limits: ConnectionLimits, unlimited: Collection[Hashable]) -> None:
        """``unlimited``: callers that are always let in, and that others must not shut out."""
        self._limits = limits
        self._unlimited = unlimited
        self._of: Counter[Hashable] = Counter()
        self._guards: dict[asyncio.BaseTransport, _Guard] = {}
        self._strangers: dict[asyncio.BaseTransport, None] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._guards)

    def guarded(
        self, handler: Callable[[], asyncio.Protocol], caller: Callable[[asyncio.BaseTransport], Hashable | None]
    ) -> Callable[[], asyncio.Protocol]:
        """Return a factory of protocols, each of which lets one connection reach a handler if the limits allow it.

        Args:
            handler: makes the protocol that handles a connection.
            caller: tells the caller at the other end; None if he is not known before the first request.
        """
        return lambda: _Guard(self, handler, caller)

    def asked(self, transport: asyncio.BaseTransport, caller: Hashable) -> None:
        """Record that a whole request came from a known caller. ``answered`` follows.

        Raises:
            TooManyError: the caller has too many connections open, or sent more requests without waiting for answers.
        """
        guard = self._guards.get(transport)
        if guard is None or not isinstance(transport, asyncio.Transport):
            return  # the connection has ended meanwhile
        if not transport.is_reading():
            # The connection is not read from, because requests pile up there: its end would not be noticed.
            raise TooManyError("send one request at a time over one connection")
        guard.asked()
        if guard.caller != caller:
            self._strangers.pop(transport, None)
            self._forget(guard.caller)
            self._count(guard, caller)

    def answered(self, transport: asyncio.BaseTransport) -> None:
        """Record that the request has its answer; another request may come."""
        guard = self._guards.get(transport)
        if guard is not None:
            guard.answering = False

    def enter(self, transport: asyncio.BaseTransport, guard: _Guard, caller: Hashable | None) -> None:
        """Record a new connection. Raises TooManyError if there is no room for it; there always is for a stranger."""
        self._guards[transport] = guard
        if caller is not None:
            self._count(guard, caller)
            return
        self._strangers[transport] = None
        if len(self._strangers) > self._limits.strangers:
            # An earnest caller asks at once; the stranger that has been silent for longest makes room.
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            _end(oldest)

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Record that a connection has ended."""
        self._strangers.pop(transport, None)
        guard = self._guards.pop(transport, None)
        if guard is not None:
            self._forget(guard.caller)

    def _count(self, guard: _Guard, caller: Hashable) -> None:
        guard.caller = caller
        self._of[caller] += 1
        if caller in self._unlimited:
            return
        if self._of[caller] > self._limits.each:
            raise TooManyError(f"you have {self._limits.each} connections to the engine open; close some of them first")
        if self._of.total() > self._limits.total:
            raise TooManyError("the engine has as many connections open as it can have; try again later")

    def _forget(self, caller: Hashable | None) -> None:
        if caller is None:
            return
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]


class _Guard(asyncio.Protocol):
    """Stands between a connection and its handler."""

    def __init__(
        self,
        connections: Connections,
        handler: Callable[[], asyncio.Protocol],
        caller: Callable[[asyncio.BaseTransport], Hashable | None],
    ) -> None:
        self.caller: Hashable | None = None  # None: a stranger
        self._connections = connections
        self._make_handler = handler
        self._identify = caller
        self._handler: asyncio.Protocol | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0  # bytes since the last whole request
        self.answering = False

    def asked(self) -> None:
        """Record that a whole request came from a known caller."""
        self._received = 0
        self.answering = True
        if self._timer is not None:
            self._timer.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        try:
            self._connections.enter(transport, self, self._identify(transport))
        except TooManyError as error:
            assert isinstance(transport, asyncio.Transport)
            transport.write(_refusal(str(error)))
            transport.close()
            return
        self._timer = asyncio.get_running_loop().call_later(_SILENT_S, _end, transport)
        self._handler = self._make_handler()
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._handler is None or self._transport is None:
            return
        self._received += len(data)
        if self.answering or self._received > _REQUEST_MAX:
            # More data would be kept in memory until the request before it is answered.
            self._transport.close()
        else:
            self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received() if self._handler is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._connections.leave(self._transport)
        if self._handler is not None:
            self._handler.connection_lost(exc)
        self._handler = self._transport = None

    def pause_writing(self) -> None:
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        if self._handler is not None:
            self._handler.resume_writing()


def _end(transport: asyncio.BaseTransport) -> None:
    """End a connection at once: one that is only closed waits for a client that never reads its answer."""
    assert isinstance(transport, asyncio.Transport)
    transport.abort()


def _refusal(sentence: str) -> bytes:
    body = json.dumps({"error": sentence}).encode()
    head = (
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
