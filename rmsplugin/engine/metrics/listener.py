"""Listener: answers GET /metrics, on an address of its own, with bounds that nobody's slowness exceeds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from rmsplugin.engine.serve.connections import ConnectionLimits, Connections
from rmsplugin.engine.serve.http_library import web
from rmsplugin.settings.metrics import split_address

log = logging.getLogger(__name__)
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.CRITICAL)  # input that is not HTTP would fill the log

#: The most connections at once. Who comes then takes the place of the oldest one; each ends after 30 s anyway.
MOST = 16
#: The text is made anew after so many seconds at the earliest: many readers cost as little as one.
_FRESH_S = 1.0
#: Seconds between two tries to listen where the address cannot be had.
_RETRY_S = 30.0

#: Makes the text.
Make = Callable[[], bytes]


class Listener:
    """Answers until closed. Runs in the event loop of the caller."""

    def __init__(self, listen: str, content_type: str, make: Make) -> None:
        """Listen to nobody yet; ``listen``: ADDRESS:PORT; ``make``: makes the text, within milliseconds."""
        self._listen, self._content_type, self._make = listen, content_type, make
        self._text, self._made = b"", float("-inf")
        self._connections = Connections(ConnectionLimits(each=0, total=0, strangers=MOST), unlimited=())
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._opening: asyncio.Task[None] | None = None

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def open(self) -> None:
        """Listen; where that fails, say so and try again later: an engine without metrics still does its work."""
        app = web.Application(client_max_size=0)
        app.router.add_route("GET", "/metrics", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, logger=_http_log, shutdown_timeout=1.0, auto_decompress=False
        )
        await self._runner.setup()
        if not await self._try_to_listen(say=True):
            self._opening = asyncio.create_task(self._keep_trying())

    async def close(self) -> None:
        """Stop listening, and drop all connections."""
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._opening
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _keep_trying(self) -> None:
        while not await self._try_to_listen(say=False):
            await asyncio.sleep(_RETRY_S)

    async def _try_to_listen(self, *, say: bool) -> bool:
        assert self._runner is not None and self._runner.server is not None
        host, port = split_address(self._listen)
        factory = self._connections.guarded(self._runner.server, lambda _transport: None)
        try:
            self._server = await asyncio.get_running_loop().create_server(factory, str(host), port)
        except OSError as error:
            if say:
                log.error("no metrics: cannot listen on %s: %s; it is tried again", self._listen, error)
            return False
        log.info("metrics are told on %s", self._listen)
        return True

    async def _answer(self, _request: web.Request) -> web.Response:
        if time.monotonic() >= self._made + _FRESH_S:
            self._text, self._made = self._make(), time.monotonic()
        return web.Response(body=self._text, headers={"Content-Type": self._content_type})
