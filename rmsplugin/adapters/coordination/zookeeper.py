"""ZooKeeper: a tree on an ensemble of servers, by kazoo, which is there only where `rmsplugin[ha]` is installed."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Stored
from rmsplugin.errors import SettingsError, UnavailableError

log = logging.getLogger(__name__)

#: Seconds between two tries to reach a server: at first, and at most.
_RETRY_S, _RETRY_MOST_S = 0.1, 0.5
#: Seconds for which a server may be silent to who connects. kazoo would wait for a session, at each one in turn, while
#: another one serves already: the servers that are left need that time to elect a leader.
_CONNECT_S = 1.0
#: A server that has answered nothing for this part of a session is left for another one. kazoo itself notices only a
#: connection without requests: it takes each one that it sends for a sign of life.
_SILENT_SESSIONS = 1 / 3
#: Seconds for which a session that is closed waits for the service's answer.
_CLOSE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Watcher:
    """What kazoo calls of a node that has changed. It keeps those that are equal once."""

    changed: Callable[[], object]

    def __call__(self, event: object) -> None:
        self.changed()


class ZooKeeperTree:
    """A ``Tree`` of one session. kazoo makes another session by itself when the service has ended this one."""

    def __init__(self, servers: Sequence[str], session_s: float, answer_s: float) -> None:
        """Begin to reach the ensemble; does not wait for it.

        Args:
            servers: HOST:PORT of each.
            session_s: after so long without a sign of this process, the service ends the session; servers have bounds.
            answer_s: bound of one request.

        Raises:
            SettingsError: kazoo is not installed.
        """
        try:
            from kazoo import exceptions
            from kazoo.client import KazooClient
            from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
        except ImportError:
            raise SettingsError(
                'cluster.coordination is "zookeeper", but the Python package kazoo is not installed: '
                'pip install "rmsplugin[ha]"'
            ) from None
        logging.getLogger("kazoo").setLevel(logging.ERROR)  # each try to connect is said, two a second
        self._errors, self._timeout_error = exceptions, KazooTimeoutError
        self._servers, self._answer_s, self._silent_s = ", ".join(servers), answer_s, session_s * _SILENT_SESSIONS
        self._connection: socket.socket | None = None  # the newest one
        self._heard = time.monotonic()  # the last answer, or the last connection that was left
        retry = {"max_tries": -1, "delay": _RETRY_S, "backoff": 2, "max_delay": _RETRY_MOST_S}
        handler = _connecting_soon(SequentialThreadingHandler(), self._note_connection)
        self._client: Any = KazooClient(
            hosts=",".join(servers), timeout=session_s, handler=handler, connection_retry=retry
        )
        self._up = self._client.start_async()

    def make(self, path: str, data: bytes) -> None:
        """See ``Tree``."""
        self._ask(path, "create_async", path, data)

    def make_of_session(self, path: str, data: bytes, *, numbered: bool = False) -> tuple[str, int]:
        """See ``Tree``."""
        made, stat = self._ask(path, "create_async", path, data, ephemeral=True, sequence=numbered, include_data=True)
        return str(made), int(stat.czxid)

    def read(self, path: str, changed: Callable[[], object] | None = None) -> Stored:
        """See ``Tree``."""
        data, stat = self._ask(path, "get_async", path, watch=None if changed is None else _Watcher(changed))
        return Stored(data, stat.version, stat.czxid, stat.mtime / 1000)

    def write(self, path: str, data: bytes, *, version: int = -1) -> int:
        """See ``Tree``."""
        return int(self._ask(path, "set_async", path, data, version=version).version)

    def remove(self, path: str) -> None:
        """See ``Tree``."""
        try:
            self._ask(path, "delete_async", path)
        except MissingError:
            return

    def children(self, path: str) -> tuple[str, ...]:
        """See ``Tree``."""
        return tuple(self._ask(path, "get_children_async", path))

    def close(self) -> None:
        """See ``Tree``."""
        closing = threading.Thread(target=self._close, name="zookeeper-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)

    def _close(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            log.warning("the session with ZooKeeper ends by itself: %s", error)

    def _note_connection(self, made: socket.socket) -> None:
        self._connection = made

    def _leave_silent_server(self) -> None:
        """End the connection to a server that has answered nothing for long: kazoo goes on with the next server."""
        now = time.monotonic()
        if self._connection is not None and now - self._heard >= self._silent_s:
            self._heard = now  # the next one has as long
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def _ask(self, path: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Ask, and wait for the answer. A request is not even made while no server is connected."""
        errors = self._errors
        if not self._up.wait(self._answer_s):
            raise UnavailableError(f"no server of ZooKeeper answers: {self._servers}")
        try:
            answer = getattr(self._client, method)(*arguments, **options).get(timeout=self._answer_s)
            self._heard = time.monotonic()
            return answer
        except errors.NoNodeError:
            self._heard = time.monotonic()
            raise MissingError(f"there is no node {path}") from None
        except (errors.BadVersionError, errors.NodeExistsError):
            self._heard = time.monotonic()
            raise ChangedError(f"another session has written the node {path}") from None
        except self._timeout_error:
            self._leave_silent_server()
            raise UnavailableError(f"ZooKeeper did not answer within {self._answer_s:g} s: {self._servers}") from None
        except errors.KazooException as error:
            what = str(error) or type(error).__name__
            raise UnavailableError(f"ZooKeeper does not answer: {what}: {self._servers}") from None


def _connecting_soon(handler: Any, note: Callable[[socket.socket], object]) -> Any:
    """Bound the time that kazoo's handler takes to connect to a server; ``note`` is told each connection."""
    connect = handler.create_connection

    def connect_soon(*arguments: Any, timeout: float, **options: Any) -> Any:
        made = connect(*arguments, timeout=min(timeout, _CONNECT_S), **options)
        note(made)
        return made

    handler.create_connection = connect_soon
    return handler
