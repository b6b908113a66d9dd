"""Link: the connection to one node's libvirt, and calls on it that always come back in time.

libvirt's calls block in C for as long as the other side pleases. So each runs in a thread of its own, and the caller
waits for it no longer than it wants. Two measures keep abandoned threads from piling up:

* a connection that is up pings its peer (keepalive); when the peer is silent, libvirt fails the calls that hang on it,
  and their threads end;
* a connection that is being made has no keepalive yet, so at most ``_STUCK_OPENS`` attempts a node may hang; further
  calls fail at once.

A thread for which no caller waits closes a connection, after the last call on it. Closing talks to the peer as well,
and libvirt would free a connection that a call is still using.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import libvirt

from rmsplugin.adapters.platform.libvirt.errors import translate
from rmsplugin.adapters.platform.libvirt.events import Heard, listen, nothing
from rmsplugin.errors import DeposedError, RmspluginError, TimedOutError, UnavailableError

T = TypeVar("T")

#: Makes a connection to libvirt; blocks.
Connect = Callable[[], libvirt.virConnect]

#: A silent peer is given up after interval * (count + 1) seconds.
_KEEPALIVE_INTERVAL_S = 5
_KEEPALIVE_COUNT = 3

#: The time after which an attempt to connect is given up and another one made, and the most attempts that may hang.
_STUCK_AFTER_S = 60.0
_STUCK_OPENS = 3

#: A node that has just not answered is waited for so long to connect. The attempt goes on, and the next call finds it.
_SILENT_S = 2.0

_event_loop_lock = threading.Lock()
_event_loop_runs = False


def start_event_loop() -> None:
    """Run libvirt's event loop in a thread; without it there is no keepalive. Once a process: libvirt has only one."""
    global _event_loop_runs
    with _event_loop_lock:
        if _event_loop_runs:
            return
        # libvirt prints every error to stderr otherwise; ours are raised.
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        libvirt.virEventRegisterDefaultImpl()

        def serve_events() -> None:
            while True:
                libvirt.virEventRunDefaultImpl()

        threading.Thread(target=serve_events, name="libvirt-events", daemon=True).start()
        _event_loop_runs = True


class Call(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, what: str, function: Callable[[], T]) -> None:
        """Start ``function``; ``what`` says what it does, for messages."""
        self.what = what
        self.started = time.monotonic()
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._make_call, args=(function,), name=f"libvirt: {what}", daemon=True).start()

    def _make_call(self, function: Callable[[], T]) -> None:
        # Errors are kept without their tracebacks: those would hold libvirt's objects, and the thread that drops a
        # connection's last reference must not close it.
        try:
            self._value = function()
        except libvirt.libvirtError as error:
            self._error = translate(error, self.what)
        except BaseException as error:
            self._error = error.with_traceback(None)
        del function
        self._done.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether the call has ended within the time."""
        return self._done.wait(max(0.0, timeout_s))

    @property
    def failed(self) -> bool:
        """Whether the call has ended with an error."""
        return self._done.is_set() and self._error is not None

    def result(self) -> T:
        """The result of the ended call; raises its error."""
        assert self._done.is_set()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class Connection:
    """A connection that closes itself when it is retired and no call uses it any more."""

    def __init__(self, connect: Connect, heard: Heard | None = None) -> None:
        """Connect; blocks. ``heard``: see ``listen``; None: of a connection on which nobody listens."""
        self._conn: libvirt.virConnect = connect()
        self._users = 0
        self._retired = False
        self._lock = threading.Lock()
        self._conn.setKeepAlive(_KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT)
        self._hear_no_more = nothing if heard is None else listen(self._conn, heard)

    def usable(self) -> bool:
        """Whether calls may be made on it."""
        with self._lock:
            return not self._retired and bool(self._conn.isAlive())

    def use(self, function: Callable[[libvirt.virConnect], T]) -> T:
        """Call the function with libvirt's connection."""
        with self._lock:
            if self._retired:
                raise UnavailableError("the connection has just been given up")
            self._users += 1
        try:
            return function(self._conn)
        finally:
            with self._lock:
                self._users -= 1
                close = self._retired and self._users == 0
            if close:
                self._close()

    def retire(self) -> None:
        """Give the connection up: it is closed after the calls on it have ended. Returns at once."""
        with self._lock:
            if self._retired:
                return
            self._retired = True
            close = self._users == 0
        if close:
            threading.Thread(target=self._close, name="libvirt: close", daemon=True).start()

    def _close(self) -> None:
        self._hear_no_more()
        try:
            self._conn.close()
        except libvirt.libvirtError:
            return  # it was broken already


class Link:
    """The kept connection to one node, made when needed and made anew when broken.

    The first call to a node that falls silent waits for it; the next ones hardly do, so that a cycle does not wait for
    it each time.
    """

    def __init__(self, node: str, connect: Connect, connect_timeout_s: float, heard: Heard | None = None) -> None:
        """Connect to nothing yet. ``heard``: called for events on the kept connection, see ``listen``."""
        self.node = node
        self._connect = connect
        self._heard = heard
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._current: Connection | None = None
        self._spare: Connection | None = None  # from a long call that has ended
        self._closed = False
        self._silent = False  # the node did not answer in time when it was last asked
        self._opening: Call[Connection] | None = None
        self._stuck: list[Call[Connection]] = []

    def call(self, what: str, function: Callable[[libvirt.virConnect], T], timeout_s: float) -> T:
        """Make a short call on the kept connection.

        Raises:
            UnavailableError: no connection.
            DeposedError: the way to the node is closed to this engine.
            TimedOutError: no answer in time; the connection is given up.
            RmspluginError: our error for libvirt's.
        """
        deadline = time.monotonic() + timeout_s
        connection = self._connected(deadline)
        call = Call(f"{what} on {self.node}", lambda: connection.use(function))
        if not call.wait(deadline - time.monotonic()):
            self._silent = True
            self._drop(connection)
            raise TimedOutError(f"{call.what}: no answer within {timeout_s:g} s")
        return call.result()

    def query(self, what: str, function: Callable[[libvirt.virConnect], T], timeout_s: float) -> T:
        """Like ``call``, for a call that only reads: no answer means that the node is unavailable."""
        try:
            return self.call(what, function, timeout_s)
        except TimedOutError as error:
            raise UnavailableError(str(error)) from None

    def start(self, what: str, function: Callable[[libvirt.virConnect], T]) -> Call[T]:
        """Start a long call on a connection that no other call uses meanwhile.

        libvirtd works on only five calls of one connection at a time, so that saves would keep the queries waiting. One
        connection is kept for the next long call: a start consists of two calls, and TLS takes its time.
        """

        def call_on_spare() -> T:
            connection = self._take_spare() or Connection(self._connect)
            try:
                value = connection.use(function)
            except BaseException:
                connection.retire()
                raise
            self._keep_spare(connection)
            return value

        return Call(f"{what} on {self.node}", call_on_spare)

    def _take_spare(self) -> Connection | None:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is None or spare.usable():
            return spare
        spare.retire()
        return None

    def _keep_spare(self, connection: Connection) -> None:
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare = connection
                return
        connection.retire()

    def start_between(
        self, other: Link, what: str, function: Callable[[libvirt.virConnect, libvirt.virConnect], T]
    ) -> Call[T]:
        """Like ``start``, for a call that needs connections to this node and to another one."""

        def call_on_both() -> T:
            connections: list[Connection] = []
            try:
                for link in (self, other):
                    connections.append(Connection(link._connect))
                here, there = connections
                return here.use(lambda conn: there.use(lambda destination: function(conn, destination)))
            finally:
                for connection in connections:
                    connection.retire()

        return Call(f"{what} on {self.node}", call_on_both)

    def close(self) -> None:
        """Give the connections up."""
        with self._lock:
            self._closed = True
            connections = [self._current, self._spare]
            self._current = self._spare = self._opening = None
        for connection in filter(None, connections):
            connection.retire()

    def _drop(self, connection: Connection) -> None:
        with self._lock:
            if self._current is connection:
                self._current = None
        connection.retire()

    def _connected(self, deadline: float) -> Connection:
        with self._lock:
            if self._current is not None:
                if self._current.usable():
                    return self._current
                self._current.retire()
                self._current = None
            opening = self._open()
        bound_s = min(self._connect_timeout_s, _SILENT_S) if self._silent else self._connect_timeout_s
        if not opening.wait(min(bound_s, deadline - time.monotonic())):
            self._silent = True
            raise UnavailableError(f"the hypervisor of {self.node} does not answer: no connection in time")
        self._silent = False
        try:
            connection = opening.result()
        except DeposedError:
            raise
        except RmspluginError as error:
            raise UnavailableError(str(error)) from None
        finally:
            with self._lock:
                if self._opening is opening:
                    self._opening = None
        with self._lock:
            # All callers that waited for this attempt share it.
            if self._current is None and connection.usable():
                self._current = connection
        return connection

    def _open(self) -> Call[Connection]:
        """The attempt to wait for: the one under way, or a new one."""
        opening = self._opening
        if opening is not None and not opening.failed:
            if opening.wait(0) or time.monotonic() - opening.started < _STUCK_AFTER_S:
                return opening
            self._stuck = [call for call in self._stuck if not call.wait(0)]
            if len(self._stuck) >= _STUCK_OPENS:
                raise UnavailableError(f"the hypervisor of {self.node} does not answer: connections to it hang")
            self._stuck.append(opening)
        connect, heard = self._connect, self._heard
        self._opening = Call(f"connecting to {self.node}", lambda: Connection(connect, heard))
        return self._opening
