"""Turns: a lasting node with the last leader's turn, written before it acts: who comes next knows how long to wait.

A leader writes the node again at each renewal, before it renews its place. So whoever has seen the node as it is in the
end, and notes when, knows a moment before which the last renewal was sent. Who looks now and then has often not seen
the last one: servers that have lost their leader answer nobody for seconds. So it is looked at once a change is told.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Tree
from rmsplugin.errors import RefusedError, UnavailableError

#: The variable in which a manager tells an engine that it starts since when the last turn is as it is.
TURN_SEEN = "RMSPLUGIN_TURN_SEEN"


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of one leader."""

    epoch: int
    name: str  # of the engine
    place: str  # where its ledger is: HOST:DIRECTORY, or the name of a shared one
    wait_s: float  # so long after it lost, nothing that it has begun is under way
    ended: bool  # it has resigned, at rest: nobody has to wait
    renewed: bool = True  # its leader writes it at each renewal, which those of older releases do not


@dataclass(frozen=True, slots=True)
class Seen:
    """The node as it was seen at some time.

    Attributes:
        made: the number of the write that made it.
        version: of its data.
        at: when it was first seen to be so, by the clock of this host: it was written before.
    """

    made: int
    version: int
    at: float

    def __str__(self) -> str:
        return f"{self.made}:{self.version}:{self.at!r}"

    @classmethod
    def of(cls, text: str) -> Seen | None:
        """What was written by ``str``; None for any other text."""
        try:
            made, version, at = text.split(":")
            return cls(int(made), int(version), float(at))
        except ValueError:
            return None


class Turns:
    """The node with the last turn."""

    def __init__(self, tree: Tree, path: str) -> None:
        """Read nothing yet; ``path``: of the node, whose parent is there when the first turn is written."""
        self._tree, self._path = tree, path
        self._version: int | None = None  # of the node as it was read or written last; None: it is not there
        self._made = 0  # the number of the write that made the node that was read last
        self._unsure = False  # the answer to a write was lost

    def last(self) -> Turn | None:
        """The last turn; None before the first. Raises UnavailableError, and RefusedError if it cannot be read."""
        try:
            stored = self._tree.read(self._path)
        except MissingError:
            self._version, self._unsure = None, False
            return None
        self._version, self._made, self._unsure = stored.version, stored.made, False
        try:
            found = json.loads(stored.data)
            return Turn(
                int(found["epoch"]),
                str(found["name"]),
                str(found["place"]),
                float(found["wait_s"]),
                found["ended"] is True,
                found.get("renewed") is True,
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
        if self._unsure:
            self._be_sure(turn)
        self._unsure = True
        try:
            self._write(data)
        except (ChangedError, MissingError):
            self._unsure = False
            raise
        self._unsure = False

    def _be_sure(self, turn: Turn) -> None:
        """Read the version again: the write before was done, or not. Raises ChangedError: another engine has written.

        There is no other engine with this epoch.
        """
        last = self.last()
        if last is not None and last.epoch > turn.epoch:
            raise ChangedError(f"another engine has written the node {self._path}")

    def since(self, before: Seen | None, now: float) -> Seen | None:
        """Since when the node is as it was read last: since ``before``, if it was so then. None: it is not there."""
        if self._version is None:
            return None
        if before is not None and (before.made, before.version) == (self._made, self._version):
            return before
        return Seen(self._made, self._version, now)

    def _write(self, data: bytes) -> None:
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


class Watch:
    """Since when the node with the last turn is as it is, for one who waits for his own. All threads may call."""

    def __init__(self, tree: Tree, path: str, clock: Callable[[], float], seen: Seen | None = None) -> None:
        """Look at nothing yet.

        Args:
            tree: where the node is.
            path: of the node.
            clock: of this host.
            seen: the node as another process of this host has seen it, by the same clock.
        """
        self._tree, self._path, self._clock = tree, path, clock
        self._seen, self._looks = seen, False
        self._lock = threading.Lock()

    @property
    def seen(self) -> Seen | None:
        """The node as it was seen last; None: it never was, or it is not there."""
        return self._seen

    def note_turn(self) -> None:
        """Read the node now, and then whenever the tree tells of a change, until ``rest``. Raises UnavailableError."""
        self._looks = True
        self._read()

    def rest(self, seen: Seen | None) -> None:
        """Read no more; ``seen``: since when the node is as it is."""
        with self._lock:
            self._looks, self._seen = False, seen

    def _read(self) -> None:
        try:
            stored = self._tree.read(self._path, self._look_again)
        except MissingError:
            self._seen = None
            return
        with self._lock:
            before = self._seen
            if not self._looks:
                return
            if before is None or before.made != stored.made or before.version < stored.version:
                # Of two threads that read, the one that was first may be here last.
                self._seen = Seen(stored.made, stored.version, self._clock())

    def _look_again(self) -> None:
        with suppress(UnavailableError):  # the next one is told
            if self._looks:
                self._read()
