"""A listener of metrics that answers while a test asks it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

from patience import PATIENCE_S

from rmsplugin.engine.metrics.listener import Listener


class Listening:
    """A listener in an event loop of its own."""

    def __init__(
        self,
        text: bytes | Callable[[], bytes] = b"text",
        port: int | None = None,
        content_type: str = "text/plain",
    ) -> None:
        self.made = 0
        self.port = port or free_port()
        self.listener = Listener(f"127.0.0.1:{self.port}", content_type, self._make)
        self._text = text
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._do(self.listener.open())

    def _make(self) -> bytes:
        self.made += 1
        return self._text() if callable(self._text) else self._text

    def _do(self, what: Any) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE_S)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def ask(self, method: str = "GET", path: str = "/metrics") -> tuple[int, bytes]:
        with self.connect() as connection:
            connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self.listener.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
