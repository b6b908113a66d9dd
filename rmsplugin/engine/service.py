"""Service: the engine's HTTP+JSON API on a unix socket, and over TCP sealed by munge (docs/protocols.md, section 2)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from rmsplugin import __version__
from rmsplugin.client import SEALED_TYPE
from rmsplugin.engine import views
from rmsplugin.engine.context import Context
from rmsplugin.engine.cycle import Cycle
from rmsplugin.engine.requests import Requests
from rmsplugin.engine.rows import Operation
from rmsplugin.engine.sealing import CallerIdentity, seal_response, verify_request
from rmsplugin.errors import (
    ForbiddenError,
    NotFoundError,
    RefusedError,
    RmspluginError,
    UnavailableError,
)
from rmsplugin.model.vjob import IllegalTransitionError, VJobState

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[dict[str, Any]]]
Front = Callable[[Handler, web.Request], Awaitable[web.Response]]

#: How long any request may wait for something to happen.
_MAX_WAIT_S = 300.0
_BODY_MAX = 64 * 1024
_THREADS = 64
_UCRED = struct.Struct("iII")  # pid, uid, gid
_UID = web.RequestKey("uid", int)

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (RefusedError, 409),
    (IllegalTransitionError, 409),
    (UnavailableError, 503),
    (RmspluginError, 409),
)


class BadRequestError(RmspluginError):
    """The request is not of the API's form."""


class Service:
    """Serves requests until closed. Runs in the event loop of the caller; the work is done in threads."""

    def __init__(self, context: Context, requests: Requests, cycle: Cycle) -> None:
        self._context = context
        self._requests = requests
        self._cycle = cycle
        self._started = time.time()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="service")
        self._runners: list[web.AppRunner] = []

    async def open(self) -> None:
        """Listen on the unix socket and, if the settings say so, on TCP.

        Raises:
            UnavailableError: an address cannot be used.
        """
        settings = self._context.settings.engine
        try:
            await self._serve(self._by_peer, lambda runner: web.SockSite(runner, _unix_socket(str(settings.socket))))
            if settings.listen:
                host, _, port = settings.listen.rpartition(":")
                await self._serve(self._by_munge, lambda runner: web.TCPSite(runner, host, int(port)))
        except OSError as error:
            raise UnavailableError(f"cannot listen on {settings.socket} or {settings.listen}: {error}") from error

    async def close(self) -> None:
        """Stop listening and drop what is open."""
        for runner in self._runners:
            await runner.cleanup()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _serve(self, front: Front, site: Callable[[web.AppRunner], web.BaseSite]) -> None:
        app = web.Application(client_max_size=_BODY_MAX)
        for method, path, handler in self._routes():
            app.router.add_route(method, path, partial(front, handler))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        await site(runner).start()

    # -- who calls -----------------------------------------------------------------------------------------------

    async def _by_peer(self, handler: Handler, request: web.Request) -> web.Response:
        assert request.transport is not None
        connection = request.transport.get_extra_info("socket")
        _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        status, body = await self._answer(request, handler, uid)
        return web.json_response(body, status=status)

    async def _by_munge(self, handler: Handler, request: web.Request) -> web.Response:
        data = await request.read()
        try:
            caller: CallerIdentity = await self._in_thread(
                lambda: verify_request(request.headers, request.method, request.raw_path, data)
            )
        except ForbiddenError as error:
            log.warning("refused a request from %s: %s", request.remote, error)
            return web.json_response({"error": "no valid munge credential"}, status=401)
        except RmspluginError as error:
            log.warning("a request from %s could not be checked: %s", request.remote, error)
            return web.json_response({"error": "munge does not answer on the controller"}, status=503)
        status, body = await self._answer(request, handler, caller.uid)
        sealed = await self._in_thread(lambda: seal_response(caller, status, body))
        return web.Response(text=sealed, content_type=SEALED_TYPE)

    async def _answer(self, request: web.Request, handler: Handler, uid: int) -> tuple[int, dict[str, Any]]:
        request[_UID] = uid
        try:
            return 200, await handler(request)
        except BadRequestError as error:
            return 400, {"error": str(error)}
        except (RmspluginError, IllegalTransitionError) as error:
            return next(status for kind, status in _STATUS if isinstance(error, kind)), {"error": str(error)}
        except Exception:
            log.exception("%s %s", request.method, request.path)
            return 500, {"error": "internal error; see the engine's log"}

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        await self._in_thread(lambda: self._context.ledger.wait(condition, min(seconds, _MAX_WAIT_S)))

    # -- routes --------------------------------------------------------------------------------------------------

    def _routes(self) -> list[tuple[str, str, Handler]]:
        job = "/v1/jobs/{id:[0-9_]+}"
        return [
            ("POST", job + "/prolog", self._prolog),
            ("POST", job + "/epilog", self._epilog),
            ("GET", job + "/access", self._access),
            ("POST", job + "/started", self._started_script),
            ("POST", job + "/attached", self._attached),
            ("POST", job + "/finished", self._finished),
            ("POST", job + "/suspend", self._suspend),
            ("POST", job + "/resume", self._resume),
            ("POST", job + "/migrate", self._migrate),
            ("GET", "/v1/operations/{number:[0-9]+}", self._operation),
            ("GET", "/v1/vjobs", self._vjobs),
            ("GET", "/v1/vms", self._vms),
            ("GET", "/v1/nodes", self._nodes),
            ("GET", "/v1/events", self._events),
            ("GET", "/v1/status", self._status),
        ]

    async def _prolog(self, request: web.Request) -> dict[str, Any]:
        job_id = int(request.match_info["id"])
        await self._in_thread(lambda: self._requests.hook(request[_UID], job_id))
        await self._wait(lambda: self._requests.state(job_id)["state"] == VJobState.RUNNING, _seconds(request))
        return await self._in_thread(lambda: self._requests.state(job_id))

    async def _epilog(self, request: web.Request) -> dict[str, Any]:
        job_id = int(request.match_info["id"])
        await self._in_thread(lambda: self._requests.hook(request[_UID], job_id))
        return await self._in_thread(lambda: self._requests.state(job_id))

    async def _access(self, request: web.Request) -> dict[str, Any]:
        uid, name, wrapper = request[_UID], request.match_info["id"], request.query.get("wrapper") == "1"

        def ask() -> dict[str, Any]:
            return self._requests.access(uid, name, wrapper=wrapper)

        answer = await self._in_thread(ask)
        if answer["state"] != VJobState.RUNNING and _seconds(request) > 0:
            await self._wait(lambda: self._context.ledger.find_vjob(name).state is VJobState.RUNNING, _seconds(request))
            answer = await self._in_thread(ask)
        return answer

    async def _started_script(self, request: web.Request) -> dict[str, Any]:
        return await self._in_thread(lambda: self._requests.started(request[_UID], request.match_info["id"]))

    async def _attached(self, request: web.Request) -> dict[str, Any]:
        return await self._in_thread(lambda: self._requests.attached(request[_UID], request.match_info["id"]))

    async def _finished(self, request: web.Request) -> dict[str, Any]:
        body = await _json(request)
        code, signal = _integer(body, "exit_code"), _integer(body, "signal")
        return await self._in_thread(
            lambda: self._requests.finished(request[_UID], request.match_info["id"], code, signal)
        )

    async def _suspend(self, request: web.Request) -> dict[str, Any]:
        return await self._begin(lambda: self._requests.suspend(request[_UID], request.match_info["id"]))

    async def _resume(self, request: web.Request) -> dict[str, Any]:
        to = _string(await _json(request), "to")
        return await self._begin(lambda: self._requests.resume(request[_UID], request.match_info["id"], to))

    async def _migrate(self, request: web.Request) -> dict[str, Any]:
        body = await _json(request)
        vm, to = _string(body, "vm"), _string(body, "to")
        return await self._begin(lambda: self._requests.migrate(request[_UID], request.match_info["id"], vm, to))

    async def _begin(self, begin: Callable[[], Operation]) -> dict[str, Any]:
        return {"operation": (await self._in_thread(begin)).id}

    async def _operation(self, request: web.Request) -> dict[str, Any]:
        uid, number = request[_UID], int(request.match_info["number"])
        answer = await self._in_thread(lambda: self._requests.operation(uid, number))
        if not answer["ended"] and _seconds(request) > 0:
            await self._wait(lambda: self._requests.operation_ended(number), _seconds(request))
            answer = await self._in_thread(lambda: self._requests.operation(uid, number))
        return answer

    async def _vjobs(self, request: web.Request) -> dict[str, Any]:
        ended = request.query.get("ended") == "1"
        return {"vjobs": await self._in_thread(lambda: views.vjob_views(self._context, ended=ended))}

    async def _vms(self, _: web.Request) -> dict[str, Any]:
        return {"vms": await self._in_thread(lambda: views.vm_views(self._context))}

    async def _nodes(self, _: web.Request) -> dict[str, Any]:
        return {"nodes": await self._in_thread(lambda: views.node_views(self._context, self._cycle.seen))}

    async def _events(self, request: web.Request) -> dict[str, Any]:
        since, limit = _number(request, "since", 0), _number(request, "limit", 1000)
        vjob = request.query.get("vjob", "")
        events = await self._in_thread(lambda: self._context.ledger.events(since=since, vjob=vjob, limit=limit))
        return {"events": [asdict(event) for event in events]}

    async def _status(self, _: web.Request) -> dict[str, Any]:
        report = self._cycle.report
        return {
            "version": __version__,
            "started": self._started,
            "last_cycle": {"time": report.time, "seconds": report.seconds, "sentence": report.sentence},
            "problems": report.problems,
        }


def _unix_socket(path: str) -> socket.socket:
    """A socket that every local user may connect to: who it is, the kernel says."""
    if os.path.exists(path):
        os.unlink(path)  # left by an engine that was killed; the lock on the state directory keeps out a second one
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    os.chmod(path, 0o666)
    return listening


def _seconds(request: web.Request) -> float:
    try:
        return max(0.0, float(request.query.get("wait", "0")))
    except ValueError:
        raise BadRequestError("wait must be a number of seconds") from None


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isdecimal() or len(text) > 15:
        raise BadRequestError(f"{name} must be a whole number")
    return int(text)


async def _json(request: web.Request) -> dict[str, Any]:
    data = await request.read()
    try:
        body = json.loads(data or b"{}")
    except ValueError:
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    return body


def _string(body: dict[str, Any], name: str) -> str:
    value = body.get(name) or ""
    if not isinstance(value, str) or len(value) > 256:
        raise BadRequestError(f"{name} must be a string")
    return value


def _integer(body: dict[str, Any], name: str) -> int:
    value = body.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**31) <= value < 2**31:
        raise BadRequestError(f"{name} must be a whole number")
    return value
