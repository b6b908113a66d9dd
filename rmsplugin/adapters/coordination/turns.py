"""Turns: a lasting node with the last leader's turn, written before it acts: who comes next knows how long to wait."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree
from rmsplugin.errors import RefusedError


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of one leader."""

    epoch: int
    name: str  # of the engine
    place: str  # where its ledger is: HOST:DIRECTORY, or the name of a shared one
    wait_s: float  # so long after it lost, nothing that it has begun is under way
    ended: bool  # it has resigned, at rest: nobody has to wait


class Turns:
    """The node with the last turn."""

    def __init__(self, tree: Tree, path: str) -> None:
        """Read nothing yet; ``path``: of the node, whose parent is there when the first turn is written."""
        self._tree, self._path = tree, path
        self._version: int | None = None  # of the node as it was read or written last; None: it is not there

    def last(self) -> Turn | None:
        """The last turn; None before the first. Raises UnavailableError, and RefusedError if it cannot be read."""
        try:
            stored = self._tree.read(self._path)
        except MissingError:
            self._version = None
            return None
        self._version = stored.version
        try:
            found = json.loads(stored.data)
            return Turn(
                int(found["epoch"]),
                str(found["name"]),
                str(found["place"]),
                float(found["wait_s"]),
                found["ended"] is True,
            )
        except (ValueError, KeyError, TypeError):
            raise RefusedError(
                f"the node {self._path} of the ensemble holds no turn of an engine: {stored.data[:60]!r}; "
                "another program, or another release, has written it"
            ) from None

    def write(self, turn: Turn) -> None:
        """Write a turn in place of the one that was read, or written, last.

        Raises:
            ChangedError: another engine has written since.
            UnavailableError: nobody answers; it may be written all the same.
        """
        data = json.dumps(asdict(turn)).encode()
        if self._version is None:
            self._tree.make(self._path, data)
            self._version = 0
        else:
            self._version = self._tree.write(self._path, data, version=self._version)

    def end(self, turn: Turn) -> None:
        """Write that this engine's turn has ended, at rest. Errors as of ``write``."""
        try:
            self.write(replace(turn, ended=True))
        except MissingError:
            raise ChangedError(f"{self._path} was removed") from None
