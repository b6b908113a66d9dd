"""Agents told: what the node agents said last, noted when the engine asks them for its own work.

Nobody asks an agent for this: metrics tell what is known anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from rmsplugin.adapters.nodes.answers import UnownedError
from rmsplugin.adapters.nodes.base import NodeCheck, Space
from rmsplugin.engine.ledger.markers import SHARED
from rmsplugin.errors import NodeGoneError, NoStoreError, RmspluginError, TimedOutError, UnavailableError

T = TypeVar("T")

#: Errors of one that was not heard, and those among them that an agent itself tells.
_SILENCE, _ANSWERS = (UnavailableError, TimedOutError), (NoStoreError, UnownedError)


class AgentsTold:
    """By node. Written by the threads that ask agents, and read by several."""

    def __init__(self) -> None:
        """No agent was asked yet."""
        self._lock = threading.Lock()
        self._answers: dict[str, bool] = {}
        self._free_bytes: dict[str, int] = {}
        self._templates: dict[str, tuple[int, int]] = {}

    @property
    def answers(self) -> Mapping[str, bool]:
        """Whether the agent answered when it was asked last; an error is an answer, too."""
        with self._lock:
            return dict(self._answers)

    @property
    def free_bytes(self) -> Mapping[str, int]:
        """Room in the stores, as of their last look: of a node's own, and of the one that nodes share ("shared")."""
        with self._lock:
            return dict(self._free_bytes)

    @property
    def templates(self) -> Mapping[str, tuple[int, int]]:
        """The number of a node's templates, and their bytes, when it was last checked."""
        with self._lock:
            return dict(self._templates)

    def note(self, node: str, answer: object, *, shared: bool) -> None:
        """Note an answer, or the error in its place; ``shared``: it was asked of the shared store."""
        if isinstance(answer, NodeGoneError):
            return  # it was not asked
        with self._lock:
            self._answers[node] = isinstance(answer, _ANSWERS) or not isinstance(answer, _SILENCE)
            if isinstance(answer, Space):
                self._free_bytes[SHARED if shared else node] = answer.free_bytes
            elif isinstance(answer, NodeCheck) and answer.templates is not None:
                self._templates[node] = answer.templates


def noted(adapter: T, told: AgentsTold) -> T:
    """The node agents, with methods that note what each answers: the first argument names the one that is asked."""
    return cast(T, _Noted(adapter, told))


class _Noted:
    def __init__(self, adapter: object, told: AgentsTold) -> None:
        self._adapter, self._told = adapter, told

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._adapter, name)

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                answer = method(*arguments, **options)
            except RmspluginError as error:
                self._note(arguments, options, error)
                raise
            self._note(arguments, options, answer)
            return answer

        return call if callable(method) else method

    def _note(self, arguments: tuple[Any, ...], options: Mapping[str, Any], answer: object) -> None:
        for node in arguments[:1]:
            self._told.note(node, answer, shared=options.get("shared", False))
