"""Handing: asks the engine of a group on behalf of a caller, here on its socket, or through the manager that has it.

On the socket, which only the engine's user can open, the caller is named in headers. Between managers, munge proves the
manager, and seals what it says; it is believed only if it comes from a host that counts as a controller.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmsplugin.adapters.coordination.members import Member
from rmsplugin.client import LOOK_S, MAX_MESSAGE_BYTES, EngineClient
from rmsplugin.engine.serve.vouched import ORIGIN, UID
from rmsplugin.errors import RmspluginError, UnavailableError, UnreachableError
from rmsplugin.manager.liveness import Liveness, Way, await_first_byte
from rmsplugin.manager.site import Site
from rmsplugin.settings import Settings

Reply = dict[str, Any]

#: The request between managers.
HAND_ON = "/v1/hand-on"
#: The longest wait for a connection; and for an answer, beyond what the request itself may wait for: a fence may take
#: two hours. A caller that gives up before takes its request along. In seconds.
_CONNECT_S, _ANSWER_S = 1.0, 7300.0
#: An engine that did not answer a list in time is not asked for others for so long, in seconds.
_REST_S = 5.0


@dataclass(frozen=True, slots=True)
class Handed:
    """A request as it is handed on.

    Attributes:
        method: GET or POST.
        target: path and query.
        data: the body.
        uid: the caller.
        origin: the address from which it asks; empty: the host of the manager that it asks.
    """

    method: str
    target: str
    data: bytes = b""
    uid: int = 0
    origin: str = ""


class Hands:
    """Ways to the engines of all groups; in one event loop."""

    def __init__(
        self,
        settings: Settings,
        site: Site,
        socket_of: Callable[[str], str],
        engine_uid: int,
        *,
        why_ended: Callable[[str], str] = lambda _group: "",
        munge_socket: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nobody yet.

        Args:
            settings: of the site.
            site: who has which group.
            socket_of: the path of the socket of a group's engine on this host.
            engine_uid: who asks other managers.
            why_ended: how the engine of a group on this host has ended; empty: it has not.
            munge_socket: empty: that of the system.
            clock: seconds that pass.
        """
        self._why_ended = why_ended
        self._settings, self._site, self._socket_of = settings, site, socket_of
        self._engine_uid, self._munge_socket, self._clock = engine_uid, munge_socket, clock
        self._liveness = Liveness()
        self._resting: dict[str, float] = {}  # by group, until when its engine is not asked for lists

    async def ask(self, group: str, request: Handed, *, wait_s: float = 0.0) -> Reply:
        """The answer of a group's engine, wherever it is.

        Raises:
            UnavailableError: it does not answer.
            RmspluginError: it answers with this.
        """
        assignment = self._site.assignments.get(group)
        if assignment is None or not assignment.manager:
            raise UnreachableError(f"group {group} has no manager now; try again in a moment")
        if assignment.manager == self._site.name:
            return await self.ask_here(group, request, wait_s=wait_s)
        handed = Handed("POST", HAND_ON, _envelope(group, request))
        who = f"{assignment.manager} of group {group}"
        return await self._ask_manager(assignment.manager, who, handed, orders=request.method != "GET", wait_s=wait_s)

    async def ask_manager(self, name: str, request: Handed) -> Reply:
        """The answer of another manager to a question; errors as of ``ask``."""
        return await self._ask_manager(name, name or "that leads", request, orders=False)

    async def _ask_manager(self, name: str, who: str, request: Handed, *, orders: bool, wait_s: float = 0.0) -> Reply:
        """Ask a manager as this one; ``orders``: whether the request may have something done."""
        member = self._site.members.get(name)
        if member is None or not member.about.get("url"):
            raise UnreachableError(f"the manager {who} is not there; try again later")
        client = EngineClient.tcp(member.about["url"], self._engine_uid, munge_socket=self._munge_socket)
        message, nonce = await asyncio.to_thread(client.prepare, request.method, request.target, request.data)
        exchanged = self._exchange(str(client), client.address, f"the manager {who}", message, wait_s, orders=orders)
        return await asyncio.to_thread(client.read, await exchanged, nonce)

    async def ask_here(self, group: str, request: Handed, *, wait_s: float = 0.0) -> Reply:
        """The answer of the engine of a group that this manager has; errors as of ``ask``."""
        path = self._socket_of(group)
        client = EngineClient.unix(path)
        headers = {UID: str(request.uid)}
        if request.origin:
            headers[ORIGIN] = request.origin
        message, _ = client.prepare(request.method, request.target, request.data, headers)
        where = f"of group {group}"
        try:
            orders = request.method != "GET"
            received = await self._exchange(where, path, f"the engine {where}", message, wait_s, orders=orders)
        except UnreachableError as error:
            if why := self._why_ended(group):
                raise UnreachableError(f"the engine of group {group} {why}; it is started again") from error
            raise
        return client.read(received, "")

    async def _exchange(self, where: str, way: Way, who: str, message: bytes, wait_s: float, *, orders: bool) -> bytes:
        """As ``_exchange``; an order is given only to a process that has answered a look just now."""
        if orders:
            await self._liveness.require(way, who)
        else:
            self._liveness.refuse_silent(way, who)
        connecting = asyncio.open_unix_connection(way) if isinstance(way, str) else asyncio.open_connection(*way)
        asking = _exchange(where, connecting, message, wait_s + _ANSWER_S)
        return await (asking if orders else self._liveness.answer(asking, way, who))

    async def require_manager(self, member: Member) -> None:
        """Raise UnreachableError unless this manager, another one or this one itself, serves just now."""
        if member.name == self._site.name:
            return
        if not (url := member.about.get("url")):
            raise UnreachableError("it has no address (engine.url of its settings does not name it)")
        way = EngineClient.tcp(url, self._engine_uid, munge_socket=self._munge_socket).address
        try:
            await await_first_byte(way, LOOK_S)
        except TimeoutError:
            raise UnreachableError("it does not answer: its process stands still, or its host is cut off") from None
        except OSError as error:
            raise UnreachableError(f"it cannot be reached: {error.strerror or error}") from None

    async def close(self) -> None:
        """Look at nobody any more."""
        await self._liveness.close()

    async def ask_each(
        self, groups: Mapping[str, Handed], within_s: float, *, rests: bool = True
    ) -> tuple[dict[str, Reply], dict[str, RmspluginError]]:
        """The answers of several engines, each asked at the same time; and the errors of the others.

        Args:
            groups: by group, the request.
            within_s: engines that take longer are left out.
            rests: whether these are not asked for a while.
        """
        now = self._clock()

        async def one(group: str, request: Handed) -> Reply | RmspluginError:
            if rests and now < self._resting.get(group, 0.0):
                return UnavailableError(f"the engine of group {group} has not answered in time")
            try:
                async with asyncio.timeout(within_s):
                    return await self.ask(group, request)
            except TimeoutError:
                self._resting[group] = self._clock() + _REST_S
                return UnavailableError(f"the engine of group {group} does not answer within {within_s:g} s")
            except RmspluginError as error:
                return error

        found = await asyncio.gather(*(one(*each) for each in groups.items()))
        answers = zip(groups, found, strict=True)
        replies: dict[str, Reply] = {}
        errors: dict[str, RmspluginError] = {}
        for group, answer in answers:
            if isinstance(answer, RmspluginError):
                errors[group] = answer
            else:
                replies[group] = answer
        return replies, errors


def _envelope(group: str, request: Handed) -> bytes:
    return json.dumps(
        {
            "group": group,
            "method": request.method,
            "target": request.target,
            "data": request.data.decode("utf-8", "surrogateescape"),
            "uid": request.uid,
            "origin": request.origin,
        }
    ).encode()


def opened(data: bytes) -> tuple[str, Handed]:
    """The group, and the request, of what another manager hands on. Raises ValueError."""
    said = json.loads(data)
    if not isinstance(said, dict) or said.keys() != {"group", "method", "target", "data", "uid", "origin"}:
        raise ValueError("it is no request that a manager hands on")
    if type(said["uid"]) is not int or not all(type(said[key]) is str for key in said.keys() - {"uid"}):
        raise ValueError("it is no request that a manager hands on")
    body = said["data"].encode("utf-8", "surrogateescape")
    return said["group"], Handed(said["method"], said["target"], body, said["uid"], said["origin"])


async def _exchange(engine: str, connecting: Any, message: bytes, answer_s: float) -> bytes:
    """All that comes until the connection is closed. Raises UnreachableError, UnavailableError."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await connecting
    except TimeoutError:
        raise UnreachableError(f"the engine {engine} did not take a connection within {_CONNECT_S:g} s") from None
    except OSError as error:
        raise UnreachableError(f"the engine {engine} cannot be reached: {error.strerror or error}") from None
    try:
        async with asyncio.timeout(answer_s):
            writer.write(message)
            received = bytearray()
            while len(received) <= MAX_MESSAGE_BYTES and (part := await reader.read(1 << 16)):
                received += part
    except TimeoutError:
        raise UnavailableError(f"the engine {engine} did not answer within {answer_s:g} s") from None
    except OSError as error:
        raise UnavailableError(f"the engine {engine} broke off: {error.strerror or error}") from None
    finally:
        writer.close()
    return bytes(received)
