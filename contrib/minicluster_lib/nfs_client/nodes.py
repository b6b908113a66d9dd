"""Nodes: the files that the kernel knows, by the numbers that it has for them."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass

ROOT = 1


@dataclass
class Node:
    """A file that the kernel knows.

    Attributes:
        handle: by which the server knows it.
        lookups: how often the kernel was told its number.
        opens: how often it is open here.
        hidden: directory and name that it got when it was removed while it was open.
    """

    number: int
    handle: bytes
    lookups: int = 0
    opens: int = 0
    hidden: tuple[bytes, bytes] | None = None


class Nodes:
    """All of one mount."""

    def __init__(self, root: bytes) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(ROOT + 1)
        first = Node(ROOT, root, lookups=1)
        self._by_number, self._by_handle = {ROOT: first}, {root: first}

    def __getitem__(self, number: int) -> Node:
        return self._by_number[number]

    def looked_up(self, handle: bytes) -> Node:
        """The node of a file whose number the kernel is told."""
        with self._lock:
            node = self._by_handle.get(handle)
            if node is None:
                node = Node(next(self._numbers), handle)
                self._by_number[node.number] = self._by_handle[handle] = node
            node.lookups += 1
            return node

    def opened(self, node: Node, by: int) -> int:
        """Count that it was opened (1) or closed (-1); returns how often it is open."""
        with self._lock:
            node.opens += by
            return node.opens

    def open_with(self, handle: bytes) -> Node | None:
        """The node with this handle, if it is open."""
        with self._lock:
            node = self._by_handle.get(handle)
            return node if node is not None and node.opens else None

    def forget(self, number: int, lookups: int) -> None:
        """The kernel was told of it so many times less."""
        with self._lock:
            node = self._by_number.get(number)
            if node is None:
                return
            node.lookups -= lookups
            if node.lookups <= 0 and number != ROOT:
                del self._by_number[number], self._by_handle[node.handle]
