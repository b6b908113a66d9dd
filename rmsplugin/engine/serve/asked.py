"""Asked: one request of the API; and a route of it with the function that answers. No HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rmsplugin.api.routes import Route
from rmsplugin.engine.serve import parsing
from rmsplugin.engine.serve.doors import LOCAL, Origin
from rmsplugin.engine.serve.parsing import Body, Query

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the caller's uid, and the parsed path, query and body.

    ``origin``: the host it comes from. ``powers``: whether root, the engine's user and operators count as such there.
    ``target`` and ``data``: path with query, and body, as they came.
    """

    uid: int
    path: Mapping[str, str]
    query: Query
    body: Body
    origin: Origin = LOCAL
    powers: bool = True
    target: str = ""
    data: bytes = b""

    @property
    def vjob(self) -> str:
        """The vjob that the path names."""
        return parsing.display_id(self.path["id"])

    @property
    def vjobs(self) -> str:
        """The vjobs that the path names."""
        return parsing.job_name(self.path["id"])


@dataclass(frozen=True, slots=True)
class Handled:
    """A route of the API with the function that answers it.

    Attributes:
        route: the description of the request.
        answer: answers a request, if it can.
        query: the keys that a query may have.
        body: the keys that a body may have.
    """

    route: Route
    answer: Callable[[Asked], Awaitable[Reply]]
    query: frozenset[str]
    body: frozenset[str]

    @classmethod
    def of(cls, route: Route, answer: Callable[[Asked], Awaitable[Reply]]) -> Handled:
        """The route with this function."""
        return cls(route, answer, frozenset(key.name for key in route.query), frozenset(key.name for key in route.body))
