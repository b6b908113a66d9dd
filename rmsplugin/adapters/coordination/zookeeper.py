"""ZooKeeper: a tree on an ensemble of servers, by kazoo, which is there only where `rmsplugin[ha]` is installed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Stored
from rmsplugin.errors import SettingsError, UnavailableError

log = logging.getLogger(__name__)

#: Seconds between two tries to reach a server: at first, and at most.
_RETRY_S, _RETRY_MOST_S = 0.1, 0.5
#: Seconds for which a server may be silent to who connects. kazoo would wait for a session, at each one in turn, while
#: another one serves already: the servers that are left need that time to elect a leader.
_CONNECT_S = 1.0
#: Seconds for which a session that is closed waits for the service's answer.
_CLOSE_S = 2.0


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
        self._servers, self._answer_s = ", ".join(servers), answer_s
        retry = {"max_tries": -1, "delay": _RETRY_S, "backoff": 2, "max_delay": _RETRY_MOST_S}
        handler = _connecting_soon(SequentialThreadingHandler())
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

    def read(self, path: str) -> Stored:
        """See ``Tree``."""
        data, stat = self._ask(path, "get_async", path)
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

    def _ask(self, path: str, method: str, *arguments: Any, **options: Any) -> Any:
        """Ask, and wait for the answer. A request is not even made while no server is connected."""
        errors = self._errors
        if not self._up.wait(self._answer_s):
            raise UnavailableError(f"no server of ZooKeeper answers: {self._servers}")
        try:
            return getattr(self._client, method)(*arguments, **options).get(timeout=self._answer_s)
        except errors.NoNodeError:
            raise MissingError(f"there is no node {path}") from None
        except (errors.BadVersionError, errors.NodeExistsError):
            raise ChangedError(f"another session has written the node {path}") from None
        except self._timeout_error:
            raise UnavailableError(f"ZooKeeper did not answer within {self._answer_s:g} s: {self._servers}") from None
        except errors.KazooException as error:
            what = str(error) or type(error).__name__
            raise UnavailableError(f"ZooKeeper does not answer: {what}: {self._servers}") from None


def _connecting_soon(handler: Any) -> Any:
    """Bound the time that kazoo's handler takes to connect to a server."""
    connect = handler.create_connection

    def connect_soon(*arguments: Any, timeout: float, **options: Any) -> Any:
        return connect(*arguments, timeout=min(timeout, _CONNECT_S), **options)

    handler.create_connection = connect_soon
    return handler
