"""Asked: one request of the API; and a route: its path, its keys, the hosts from which it is taken. No HTTP."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmsplugin.engine.serve import parsing
from rmsplugin.engine.serve.doors import LOCAL, Origin
from rmsplugin.engine.serve.parsing import Body, Query

Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the caller's uid, and the parsed path, query and body.

    ``origin``: the host it comes from. ``powers``: whether root, the engine's user and operators count as such there.
    """

    uid: int
    path: Mapping[str, str]
    query: Query
    body: Body
    origin: Origin = LOCAL
    powers: bool = True

    @property
    def vjob(self) -> str:
        """The vjob that the path names."""
        return parsing.display_id(self.path["id"])

    @property
    def vjobs(self) -> str:
        """The vjobs that the path names."""
        return parsing.job_name(self.path["id"])


class Door(enum.Enum):
    """The hosts from which a request is taken (``engine.serve.doors``)."""

    ANY = "any"
    LOGIN = "login hosts"
    WRAPPER = "the front where the vjob's job runs, and login hosts"
    ACCESS = "for a wrapper the front where the vjob's job runs; login hosts"
    FRONT = "the front where the vjob's job runs: its hooks"
    ROOM = "the node of the room: its hooks"
    TRUSTED = "the controller"


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request of the API; ``long`` if its answer may be long."""

    method: str
    path: str
    answer: Callable[[Asked], Awaitable[Reply]]
    door: Door = Door.ANY
    query: frozenset[str] = field(default_factory=frozenset)
    body: frozenset[str] = field(default_factory=frozenset)
    long: bool = False
