"""Shield: stands between the engine and an adapter, so that nodes that are gone, and others, are asked nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from rmsplugin.engine.ledger.node_book import NodeBook
from rmsplugin.errors import NodeGoneError

T = TypeVar("T")

#: By method, the positions of nodes' names among its arguments; in all other methods the first argument names the node.
_NODES = {
    "migrate": slice(1, 3),
    "send": slice(0, 2),
    "reach": slice(0, 2),
    "close": slice(0, 0),
    "listen": slice(0, 0),
}
#: The same of the nodes that are asked something by us. A state is sent by the node that has it, also to a node of
#: another group, which takes it by the key of that node.
_ASKED = {**_NODES, "send": slice(0, 1)}


def shielded(adapter: T, book: NodeBook, refuse: Callable[[str], None] = lambda node: None) -> T:
    """The adapter with methods that raise NodeGoneError at once if they are called for a node that is gone.

    Before, they call ``refuse`` with each node that they are called for; it may raise, too.
    """
    return adapter if isinstance(adapter, _Shield) else cast(T, _Shield(adapter, book, refuse))


class _Shield:
    def __init__(self, adapter: object, book: NodeBook, refuse: Callable[[str], None]) -> None:
        self._adapter = adapter
        self._book = book
        self._refuse = refuse

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Any] = getattr(self._adapter, name)

        def call(*arguments: Any, **options: Any) -> Any:
            gone = self._book.gone()
            for node in arguments[_ASKED.get(name, slice(0, 1))]:
                self._refuse(node)
            for node in arguments[_NODES.get(name, slice(0, 1))]:
                if node in gone:
                    raise NodeGoneError(gone[node].sentence)
            return method(*arguments, **options)

        return call if callable(method) else method
