"""Shield: stands between the engine and an adapter, so that nodes that are gone are asked nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from rmsplugin.engine.ledger.node_book import NodeBook
from rmsplugin.errors import NodeGoneError

T = TypeVar("T")

#: By method, the positions of nodes' names among its arguments; in all other methods the first argument names the node.
_NODES = {"migrate": slice(1, 3), "send": slice(0, 2), "reach": slice(0, 2), "close": slice(0, 0)}


def shielded(adapter: T, book: NodeBook) -> T:
    """The adapter with methods that raise NodeGoneError at once if they are called for a node that is gone."""
    return adapter if isinstance(adapter, _Shield) else cast(T, _Shield(adapter, book))


class _Shield:
    def __init__(self, adapter: object, book: NodeBook) -> None:
        self._adapter = adapter
        self._book = book

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._adapter, name)

        def call(*arguments: Any, **options: Any) -> Any:
            gone = self._book.gone()
            for node in arguments[_NODES.get(name, slice(0, 1))] if gone else ():
                if node in gone:
                    raise NodeGoneError(gone[node].sentence)
            return method(*arguments, **options)

        return call if callable(method) else method
