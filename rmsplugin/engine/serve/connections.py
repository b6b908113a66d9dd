"""Connections: how many each caller may have open, and what ends one that asks nothing or too much.

A file descriptor is what every connection costs whatever it asks, and there are only so many of them: without a bound
for each caller, one user who opens connections shuts out all others, Slurm's hooks and all wrappers. Over TCP nobody
knows who calls before the first request: until then the caller is a *stranger*, of whom no number shuts out anybody.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

from rmsplugin.engine.serve.waits import TooManyError

#: A connection without a request, or with one that does not say truly who sends it, ends after so long.
_SILENT_S = 30.0
#: More than a request of the API can be, with its headers.
_REQUEST_MAX = 256 * 1024
#: Descriptors for the ledger, hypervisors and ssh connections to nodes and guests.
_OTHER_DESCRIPTORS = 512
_ENOUGH_DESCRIPTORS = 65536
#: More than the wrappers of all vjobs of one user on one front.
_EACH_MAX = 4096


@dataclass(frozen=True, slots=True)
class Limits:
    """Most connections open at once: of each caller, of all callers together, and of strangers besides."""

    each: int
    total: int
    strangers: int

    @classmethod
    def of_this_process(cls) -> Limits:
        """What the file descriptors that this process may have allow; its soft limit is raised to the hard one."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_DESCRIPTORS)
        if soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        every = most - min(most // 2, _OTHER_DESCRIPTORS)
        return cls(each=min(_EACH_MAX, every // 4), total=every - every // 4, strangers=every // 4)


class Connections:
    """All connections to the service. Used in one event loop."""

    def __init__(self, limits: Limits, unlimited: Collection[Hashable]) -> None:
        """``unlimited``: callers who are always let in, and who must not be shut out by others."""
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
            handler: makes what handles a connection.
            caller: who is at the other end; None if this is not known before the first request.
        """
        return lambda: _Guard(self, handler, caller)

    def asked(self, transport: asyncio.BaseTransport, caller: Hashable) -> None:
        """A whole request came, and it is known who sent it. ``answered`` follows.

        Raises:
            TooManyError: this caller has too many connections open, or sent more requests without waiting for answers.
        """
        guard = self._guards.get(transport)
        if guard is None or not isinstance(transport, asyncio.Transport):
            return  # it has ended meanwhile
        if not transport.is_reading():
            # Nobody would see the end of a connection that is not read from because requests pile up there.
            raise TooManyError("send one request at a time over one connection")
        guard.asked()
        if guard.caller != caller:
            self._strangers.pop(transport, None)
            self._forget(guard.caller)
            self._count(guard, caller)

    def answered(self, transport: asyncio.BaseTransport) -> None:
        """The request has its answer; another one may come."""
        guard = self._guards.get(transport)
        if guard is not None:
            guard.answering = False

    def enter(self, transport: asyncio.BaseTransport, guard: _Guard, caller: Hashable | None) -> None:
        """A connection is made. Raises TooManyError if there is no room for it; for a stranger there is."""
        self._guards[transport] = guard
        if caller is not None:
            self._count(guard, caller)
            return
        self._strangers[transport] = None
        if len(self._strangers) > self._limits.strangers:
            # Who means it asks at once; who has said nothing for the longest time makes room.
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """A connection has ended."""
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
    """Between a connection and what handles it."""

    def __init__(
        self,
        connections: Connections,
        handler: Callable[[], asyncio.Protocol],
        caller: Callable[[asyncio.BaseTransport], Hashable | None],
    ) -> None:
        self.caller: Hashable | None = None  # a stranger
        self._connections = connections
        self._make_handler = handler
        self._identify = caller
        self._handler: asyncio.Protocol | None = None
        self._transport: asyncio.BaseTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = 0  # bytes since the last whole request
        self.answering = False

    def asked(self) -> None:
        """A whole request came, and it is known who sent it."""
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
        self._timer = asyncio.get_running_loop().call_later(_SILENT_S, transport.close)
        self._handler = self._make_handler()
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._handler is None or self._transport is None:
            return
        self._received += len(data)
        if self.answering or self._received > _REQUEST_MAX:
            # It would be kept in memory until the answer to the request before it is made.
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


def _refusal(sentence: str) -> bytes:
    body = json.dumps({"error": sentence}).encode()
    head = (
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
