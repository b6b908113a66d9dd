"""Front: takes HTTP+JSON requests on a unix socket, and over TCP sealed by munge (docs/protocols.md, section 2).

It proves who asks, and knows nothing of what is asked.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable
from functools import partial
from typing import Protocol, TypeVar

from rmsplugin.api.answers import Failure
from rmsplugin.api.routes import Route, Tag, Who
from rmsplugin.client import LOOK_PATH, SEALED_TYPE
from rmsplugin.engine.serve.asked import Asked, Handled, Reply
from rmsplugin.engine.serve.browsers import Browsers, shown
from rmsplugin.engine.serve.connections import ConnectionLimits, Connections
from rmsplugin.engine.serve.doors import LOCAL, Origin
from rmsplugin.engine.serve.http_library import web
from rmsplugin.engine.serve.parsing import BadRequestError, Body, Query
from rmsplugin.engine.serve.rare_log import RareLog
from rmsplugin.engine.serve.sealing import AnswerTooLargeError, CallerIdentity, seal_response, verify_request
from rmsplugin.engine.serve.turns import Turns
from rmsplugin.engine.serve.vouched import vouched
from rmsplugin.engine.serve.waits import TooManyError
from rmsplugin.errors import (
    ForbiddenError,
    LedgerUnavailableError,
    NotFoundError,
    RefusedError,
    RmspluginError,
    UnavailableError,
)
from rmsplugin.settings.engine import Engine

log = logging.getLogger(__name__)
# aiohttp logs input that is not HTTP with a traceback: every user of the host could fill the log. The sender is told.
_http_log = logging.getLogger(f"{__name__}.http")
_http_log.setLevel(logging.CRITICAL)

T = TypeVar("T")

#: One way in: finds the sender of a request, has it answered, and makes the response.
Way = Callable[[Handled, web.Request], Awaitable[web.Response]]

#: Bytes of the body of a request.
BODY_MAX = 64 * 1024
#: How long a request may take to arrive, and how long a connection may idle between two.
_ARRIVAL_S = 10.0
_KEEPALIVE_S = 60.0
#: How long munge may take for a request, with requests of others before it; then the caller has to try again.
_SEAL_S = 20.0
#: Wrappers of a whole front may connect at the same instant.
_BACKLOG = 1024
_UCRED = struct.Struct("iII")  # pid, uid, gid
#: Stands for a request that the API does not have.
_NONE = Route("none", "*", "", Failure, "no request of the API", Who.ANYONE, Tag.MONITORING)

#: The answer of an engine whose lease has ended meanwhile; and why it has not heard what was asked.
_DEPOSED, _STANDS_STILL = "this engine does not lead now; try again", "its lease has run out"

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (BadRequestError, 400),
    (TooManyError, 429),
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (RefusedError, 409),
    (UnavailableError, 503),
    (LedgerUnavailableError, 503),
    (RmspluginError, 409),
)


class Answers(Protocol):
    """Answers requests whose callers are known."""

    def table(self) -> list[Handled]:
        """All kinds of requests, each with the function that answers it."""
        ...

    async def admitted(self, route: Route, asked: Asked) -> Asked:
        """The request, with the powers of the host it comes from.

        Raises:
            ForbiddenError: the request is not taken from that host.
            UnavailableError: it is not known yet whether it is taken from that host.
        """
        ...


class Front:
    """Takes requests until closed. Runs in the event loop of the caller."""

    def __init__(
        self,
        settings: Engine,
        engine_uids: Collection[int],
        answers: Answers,
        turns: Turns,
        *,
        browsers: Browsers | None = None,
        leads: Callable[[], bool] = lambda: True,
        body_max: int = BODY_MAX,
        behind_a_manager: bool = False,
        unheard: Callable[[str], None] = lambda _why: None,
        hears: Callable[[], bool] = lambda: True,
        answered: Callable[[str, int], None] = lambda _route, _status: None,
    ) -> None:
        """Listen to nobody yet.

        Args:
            settings: where to listen.
            engine_uids: callers that are always let in.
            answers: what is done with requests.
            turns: threads in which long answers are written.
            browsers: rules for browsers and proxies on the socket; None: those without settings.
            leads: whether this process may act: asked before each answer.
            body_max: the most bytes of the body of a request.
            behind_a_manager: whether root and the engine's user say, on the socket, for whom they ask.
            unheard: told what kept a request from being heard, where that is no fault of its sender.
            hears: whether requests over TCP can be heard; else a look is told so, and the client asks another one.
            answered: told the name of the route and the status of each answer to a caller who is known.
        """
        self._answered = answered
        self._unheard, self._hears = unheard, hears
        self._behind_a_manager = behind_a_manager
        self._browsers = browsers or Browsers()
        self._settings, self._engine_uids, self._answers = settings, engine_uids, answers
        self._turns, self._leads, self._body_max = turns, leads, body_max
        self._sealing = Turns("munge")
        self._routes = answers.table()
        self._rare = RareLog(log)
        self._connections = Connections(ConnectionLimits.of_this_process(), unlimited=engine_uids)
        self._servers: list[asyncio.Server] = []
        self._runners: list[web.AppRunner] = []

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def open(self) -> None:
        """Listen on the unix socket and, if the settings say so, on TCP.

        Raises:
            UnavailableError: an address cannot be used.
        """
        settings, loop = self._settings, asyncio.get_running_loop()
        try:
            listening = _unix_socket(str(settings.socket))
            factory = self._connections.guarded(await self._handlers(self._by_peer, _alive), _peer_uid)
            self._servers.append(await loop.create_server(factory, sock=listening, backlog=_BACKLOG))
            if settings.listen:
                host, _, port = settings.listen.rpartition(":")
                factory = self._connections.guarded(await self._handlers(self._by_munge, self._answer_look), _stranger)
                self._servers.append(await loop.create_server(factory, host.strip("[]"), int(port), backlog=_BACKLOG))
        except OSError as error:
            raise UnavailableError(f"cannot listen on {settings.socket} or {settings.listen}: {error}") from error

    async def close(self) -> None:
        """Stop listening, and drop all connections."""
        for server in self._servers:
            server.close()
        for runner in self._runners:
            await runner.cleanup()
        self._sealing.close()

    async def _handlers(
        self, way: Way, look: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[], asyncio.Protocol]:
        app = web.Application(client_max_size=self._body_max)
        methods: defaultdict[str, list[str]] = defaultdict(list)
        for handled in self._routes:
            route = handled.route
            app.router.add_route(route.method, route.path, partial(way, handled))
            methods[route.path].append(route.method)
        for path, allowed in methods.items():
            app.router.add_route("*", path, partial(way, Handled.of(_NONE, _refuses_method(allowed))))
        app.router.add_route("GET", LOOK_PATH, look)
        app.router.add_route("*", "/{path:.*}", partial(way, Handled.of(_NONE, _unknown)))
        # A request whose connection ends is not waited for, and a compressed body is not unpacked: it is not JSON.
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_http_log,
            shutdown_timeout=1.0,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=_KEEPALIVE_S,
        )
        await runner.setup()
        self._runners.append(runner)
        assert runner.server is not None
        return runner.server

    # -- callers -------------------------------------------------------------------------------------------------

    async def _by_peer(self, handled: Handled, request: web.Request) -> web.Response:
        if request.transport is None:
            return _plain(400, "the connection has ended")
        uid, origin = _peer_uid(request.transport), LOCAL
        try:
            data = await self._read(request)
            if self._behind_a_manager and uid in self._engine_uids:
                uid, origin = vouched(request.headers, uid)
            self._browsers.refuse_foreign(request.method, request.headers)
            uid = self._browsers.caller(uid, handled.route, request.headers)
        except BadRequestError as error:
            return _plain(400, str(error))
        except ForbiddenError as error:
            return _plain(403, str(error))
        status, body = await self._counted(handled, request, data, uid, origin)
        if status == 200 and (page := shown(handled.route, body, request.headers)) is not None:
            return page
        text = (
            await self._turns.take((uid, False), lambda: json.dumps(body)) if handled.route.long else json.dumps(body)
        )
        return _response(status, text, "application/json")

    async def _by_munge(self, handled: Handled, request: web.Request) -> web.Response:
        try:
            data = await self._read(request)
            identity = await self._identity(request, data)
        except BadRequestError as error:
            return _plain(400, str(error))
        except ForbiddenError as error:
            self._rare.warning("refused a request from %s: %s", request.remote, error)
            return _plain(401, "no valid munge credential")
        except RmspluginError as error:
            self._rare.warning("a request from %s could not be checked: %s", request.remote, error)
            self._unheard(str(error))
            return _plain(503, "munge does not answer on the controller")
        status, body = await self._counted(handled, request, data, identity.uid, _origin(request))
        try:
            sealed = await self._sealed(identity, status, body)
            # It may have waited for munge meanwhile.
            return sealed if self._leads() else await self._sealed(identity, 503, {"error": _DEPOSED})
        except AnswerTooLargeError as error:
            return await self._sealed(identity, 409, {"error": str(error)})
        except RmspluginError as error:
            self._rare.warning("an answer to %s could not be sealed: %s", request.remote, error)
            return _plain(503, "munge does not answer on the controller")

    async def _identity(self, request: web.Request, data: bytes) -> CallerIdentity:
        headers, method, path = request.headers, request.method, request.raw_path
        return await self._by_turns(request.remote, lambda: verify_request(headers, method, path, data))

    async def _sealed(self, identity: CallerIdentity, status: int, body: Reply) -> web.Response:
        text = await self._by_turns(identity.uid, lambda: seal_response(identity, status, body))
        return _response(status, text, SEALED_TYPE, sealed=True)

    async def _by_turns(self, who: Hashable, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(_SEAL_S):
                return await self._sealing.take(who, work)
        except TimeoutError:
            raise UnavailableError(f"munge did not get to this request within {_SEAL_S:.0f} s") from None

    async def _answer_look(self, request: web.Request) -> web.Response:
        return await _alive(request) if self._hears() else _plain(503, "this process cannot hear now")

    async def _counted(
        self, handled: Handled, request: web.Request, data: bytes, uid: int, origin: Origin
    ) -> tuple[int, Reply]:
        status, body = await self._answer(handled, request, data, uid, origin)
        self._answered(handled.route.name, status)
        return status, body

    async def _answer(
        self, handled: Handled, request: web.Request, data: bytes, uid: int, origin: Origin
    ) -> tuple[int, Reply]:
        transport = request.transport
        if transport is None:
            return 400, {"error": "the connection has ended"}
        try:
            # Root of another host with munge is not root of this one: each such host has a bound of its own.
            ours = origin.here or uid not in self._engine_uids
            self._connections.asked(transport, uid if ours else (uid, origin.address))
            query = Query.parse(request.raw_path, handled.query)
            body = Body.parse(data, handled.body)
            asked = Asked(uid, request.match_info, query, body, origin, target=request.raw_path, data=data)
            admitted = await self._answers.admitted(handled.route, asked)
            self._refuse_unless_leading()
            answer = await handled.answer(admitted)
            # An answer can be an order: a wrapper that is told to go on runs its script.
            self._refuse_unless_leading()
            return 200, answer
        except LedgerUnavailableError as error:
            self._unheard(str(error))
            return _status(error), {"error": str(error)}
        except RmspluginError as error:
            # An error that another engine has answered with keeps its status.
            return error.status or _status(error), {"error": str(error)}
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return 500, {"error": "internal error; see the engine's log"}
        finally:
            self._connections.answered(transport)

    def _refuse_unless_leading(self) -> None:
        if not self._leads():
            self._unheard(_STANDS_STILL)
            raise UnavailableError(_DEPOSED)

    async def _read(self, request: web.Request) -> bytes:
        """The whole body. Raises BadRequestError."""
        try:
            async with asyncio.timeout(_ARRIVAL_S):
                return await request.read()
        except web.HTTPRequestEntityTooLarge:
            raise BadRequestError(f"the body is larger than {self._body_max} bytes") from None
        except TimeoutError:
            raise BadRequestError(f"the body did not arrive within {_ARRIVAL_S:.0f} s") from None
        except Exception as error:  # aiohttp raises many for input that is not HTTP, and not all are public
            raise BadRequestError(f"the body cannot be read: {type(error).__name__}") from None


def _status(error: Exception) -> int:
    return next(status for kind, status in _STATUS if isinstance(error, kind))


async def _alive(_: web.Request) -> web.Response:
    """That this process runs, which everybody may know."""
    return _plain(200, "alive")


def _plain(status: int, sentence: str) -> web.Response:
    """The answer to an improper request; nothing more is read from its connection."""
    response = _response(status, json.dumps({"error": sentence}), "application/json")
    response.force_close()
    return response


def _response(status: int, text: str, content_type: str, *, sealed: bool = False) -> web.Response:
    # A sealed answer has its status inside; the status outside must not be believed.
    response = web.Response(status=200 if sealed else status, text=text, content_type=content_type)
    if status == 429:
        response.force_close()
    return response


async def _unknown(asked: Asked) -> Reply:
    raise NotFoundError("there is no such request in the engine's API (docs/protocols.md, section 2)")


def _refuses_method(allowed: list[str]) -> Callable[[Asked], Awaitable[Reply]]:
    async def answer(asked: Asked) -> Reply:
        raise BadRequestError(f"this path takes {' or '.join(allowed)} only")

    return answer


def _peer_uid(transport: asyncio.BaseTransport) -> int:
    connection = transport.get_extra_info("socket")
    _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


def _origin(request: web.Request) -> Origin:
    """The origin of a request over TCP; unknown if its connection has ended."""
    transport = request.transport
    peer, own = (transport.get_extra_info(end) if transport is not None else None for end in ("peername", "sockname"))
    return Origin.of(peer[0], own[0]) if peer and own else Origin(None, here=False)


def _stranger(transport: asyncio.BaseTransport) -> None:
    """Return None: over TCP only the credential of the first request tells the caller."""


def _unix_socket(path: str) -> socket.socket:
    """A socket that every local user may connect to: the kernel tells the user."""
    if os.path.exists(path):
        os.unlink(path)  # left by an engine that was killed; the lock on the state directory keeps out a second one
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    os.chmod(path, 0o666)
    return listening
