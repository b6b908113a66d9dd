"""Line: engines wait in a line of session nodes, in the order of their arrival. The first one may take its turn.

Each place is a node of its own name, so no engine can write to, or remove, the place of another by mistake. A place is
renewed by a write to it. It is done only if the node, and with it the session, is there at that point of the order of
all writes. A ping would prove less: ZooKeeper's followers answer pings without asking their leader.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from rmsplugin.adapters.coordination.tree import MissingError, Tree, make_folder
from rmsplugin.errors import UnavailableError

#: Digits at the end of a place's name.
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a line."""

    node: str  # the name of its node
    data: bytes  # what its engine says of itself
    written_s: float  # when it said so last, by the service's clock


class Line:
    """The place of one engine in a line."""

    def __init__(self, tree: Tree, folder: str) -> None:
        """Wait nowhere yet.

        Args:
            tree: where the line is.
            folder: path of the line's node; made if it is not there.
        """
        self._tree, self._folder = tree, folder
        self._path: str | None = None
        self._epoch = 0
        #: Names of its places that are to be gone: the answer to a removal, or to a making, may have been lost.
        self._given_up: set[str] = set()
        self._name = ""

    @property
    def epoch(self) -> int:
        """The number of the write that made the place: it grows along the line."""
        return self._epoch

    @property
    def node(self) -> str:
        """The name of the node of its place; empty for an engine that has none."""
        return "" if self._path is None else self._path.rpartition("/")[2]

    def join(self, data: bytes) -> None:
        """Have a place in the line, at its end; nothing changes for an engine that has one. Raises UnavailableError.

        Args:
            data: what the engine says of itself, for others to read.
        """
        if self._path is not None:
            return
        if self._name:
            self._given_up.add(self._name)
        make_folder(self._tree, self._folder)
        self._name = uuid.uuid4().hex
        self._path, self._epoch = self._tree.make_of_session(f"{self._folder}/{self._name}-", data, numbered=True)

    def renew(self, data: bytes) -> None:
        """Say this now. Raises MissingError if the place is lost, UnavailableError if nobody answers."""
        if self._path is None:
            raise MissingError("this engine has no place in the line")
        self._tree.write(self._path, data)

    def give_up(self) -> None:
        """Leave the line. Others see it at once if the service answers, else when the session has ended."""
        path, self._path = self._path, None
        self._given_up |= {self._name} - {""}
        if path is not None:
            try:
                self._tree.remove(path)
            except UnavailableError:
                return  # `first` finds it

    def first(self) -> bytes | None:
        """What the first engine in the line says of itself; None if this one is the first. Raises UnavailableError.

        What is seen may be old: then there are more places before this one than there are, and never fewer, for the
        session sees its own place, and so all that were made before.
        """
        while self._path is not None and self._path.rpartition("/")[2] in (places := self._places()):
            first = f"{self._folder}/{places[0]}"
            if first == self._path:
                return None
            if places[0][: -_DIGITS - 1] in self._given_up:
                self._tree.remove(first)
                continue
            try:
                return self._tree.read(first).data
            except MissingError:
                continue  # it has just left
        # Its session has ended, or somebody has removed the node: the next campaign takes a new place.
        self.give_up()
        raise UnavailableError("this engine has lost its place in the line")

    def is_before(self, node: str) -> bool:
        """Whether this engine waits before the place of that node, which is there. Raises UnavailableError."""
        places = self._places()
        return {node, self.node} <= {*places} and places.index(self.node) < places.index(node)

    def waiting(self) -> list[Place]:
        """All places in the line, in order. Raises UnavailableError."""
        found = []
        for node in self._places():
            try:
                stored = self._tree.read(f"{self._folder}/{node}")
            except MissingError:
                continue
            found.append(Place(node, stored.data, stored.written_s))
        return found

    def _places(self) -> list[str]:
        try:
            names = self._tree.children(self._folder)
        except MissingError:
            return []
        return sorted((name for name in names if name[-_DIGITS:].isdecimal()), key=lambda name: int(name[-_DIGITS:]))
