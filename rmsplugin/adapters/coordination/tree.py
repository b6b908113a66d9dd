"""The tree Protocol: what is needed of ZooKeeper. Small nodes, some of which end with the session that made them.

Contract, for every implementation (ZooKeeper's own promises, https://zookeeper.apache.org/doc/r3.8.0/zookeeperOver.html):

* All writes, of all sessions, are in one order, and each has a number (zxid) that grows in it.
* A session that sees one write sees all before it, its own included. What it sees may be old.
* Session nodes are removed, all at once, when the service has not heard of their session for its time.
* A call that raises UnavailableError may have been done, or may yet be. Each returns within the bound of a request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rmsplugin.errors import RmspluginError


class MissingError(RmspluginError):
    """The tree has no such node."""


class ChangedError(RmspluginError):
    """The node has another version than the write was meant for, or is there already."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A node as it was read."""

    data: bytes
    version: int  # of the data: 0 when it was made, one more with each write
    made: int  # the number of the write that made the node (czxid)
    written_s: float  # when the data was written, by the service's clock, in seconds since 1970


class Tree(Protocol):
    """One session's way to the tree. Paths begin with a slash; a parent has to be there before its children."""

    def make(self, path: str, data: bytes) -> None:
        """Make a lasting node. Raises ChangedError if it is there."""
        ...

    def make_of_session(self, path: str, data: bytes, *, numbered: bool = False) -> tuple[str, int]:
        """Make a node that ends with this session; ``numbered``: ten digits, which grow among siblings, end its name.

        Returns its path, and the number of the write. Raises ChangedError if it is there, MissingError without parent.
        """
        ...

    def read(self, path: str, changed: Callable[[], object] | None = None) -> Stored:
        """Read a node. Raises MissingError.

        Args:
            path: of the node.
            changed: called once, in a thread of the tree's own, soon after the node was written or removed. It may be
                called for nothing, and not at all where the connection changes. Those that are equal are called once.
                It may ask the tree, and raises nothing.
        """
        ...

    def write(self, path: str, data: bytes, *, version: int = -1) -> int:
        """Write a node of this version (-1: of any), and return its new version. Raises MissingError, ChangedError."""
        ...

    def remove(self, path: str) -> None:
        """Remove a node, if it is there."""
        ...

    def children(self, path: str) -> tuple[str, ...]:
        """The names of the node's children, in no order. Raises MissingError."""
        ...

    def close(self) -> None:
        """End the session, and its nodes. Never raises."""
        ...


def make_folder(tree: Tree, path: str) -> None:
    """Make a lasting node and all above it, each if it is not there."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts) + 1):
        try:
            tree.make("/" + "/".join(parts[:count]), b"")
        except ChangedError:
            continue
