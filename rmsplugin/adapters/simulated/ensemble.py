"""Simulated ensemble: trees in memory, with sessions that end by a clock, and faults of the network and the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmsplugin.adapters.coordination.tree import ChangedError, MissingError, Stored
from rmsplugin.errors import UnavailableError


@dataclass
class _Node:
    data: bytes
    made: int
    session: SimulatedTree | None
    written_s: float
    version: int = 0
    numbered: int = 0  # children that were given a number


class SimulatedEnsemble:
    """A service; ``clock`` gives seconds that pass."""

    def __init__(self, clock: Callable[[], float], *, first: int = 0x1_0000_0000) -> None:
        """Begin empty; ``first``: the number of the first write."""
        self._clock = clock
        self.zxid = first
        self.nodes: dict[str, _Node] = {}
        self.sessions: list[SimulatedTree] = []
        self._watchers: dict[str, list[tuple[SimulatedTree, Callable[[], object]]]] = {}  # by path
        self._quorum = True

    @property
    def quorum(self) -> bool:
        """Without, nothing is answered and no session ends. With it again, each session has its whole time anew."""
        return self._quorum

    @quorum.setter
    def quorum(self, there: bool) -> None:
        if there and not self._quorum:
            for session in self.sessions:
                session.heard = self._clock()
        self._quorum = there

    def open(self, session_s: float) -> SimulatedTree:
        """Begin a session."""
        tree = SimulatedTree(self, session_s)
        tree.heard = self._clock()
        self.sessions.append(tree)
        return tree

    def begin_anew(self, first: int) -> None:
        """Lose everything, as an ensemble that was set up again: it counts from ``first``."""
        self.zxid, self.nodes = first, {}

    def pass_time(self) -> None:
        """End the sessions that were not heard of in time."""
        for session in self.sessions if self.quorum else ():
            if not session.ended and self._clock() >= session.heard + session.session_s:
                session.end()

    def watch(self, path: str, session: SimulatedTree, changed: Callable[[], object]) -> None:
        """Have a session told of the next change of a node."""
        known = self._watchers.setdefault(path, [])
        if (session, changed) not in known:
            known.append((session, changed))

    def tell(self, path: str) -> None:
        """Tell those who watch the node that it has changed: their clients hear it when they live next."""
        for session, changed in self._watchers.pop(path, ()):
            session.news.append(changed)

    def number(self) -> int:
        """Count a write."""
        self.zxid += 1
        return self.zxid

    def now(self) -> float:
        """The clock."""
        return self._clock()


class SimulatedTree:
    """A ``Tree`` of one session, with switches for faults."""

    def __init__(self, ensemble: SimulatedEnsemble, session_s: float) -> None:
        self.ensemble, self.session_s = ensemble, session_s
        self.heard = 0.0
        self.news: list[Callable[[], object]] = []  # to be called by the client
        self.ended = False
        self.closed = False  # by its client
        self.cut = False  # no request arrives
        self.answers_lost = 0  # of so many requests to come the answer is lost; they are done
        self.early: Callable[[], None] | None = None  # called once, before a request arrives
        self.late: Callable[[], None] | None = None  # called once, between what a request does and its answer

    def end(self) -> None:
        """The service ends the session, and the client begins another with its next request."""
        self.ended = True
        mine = [path for path, node in self.ensemble.nodes.items() if node.session is self]
        for path in mine:
            del self.ensemble.nodes[path]
            self.ensemble.tell(path)
        if mine:
            self.ensemble.number()

    def live(self) -> None:
        """The client tells the service that it is there, as clients do without being asked."""
        ensemble = self.ensemble
        if self.cut or not ensemble.quorum:
            return
        ensemble.pass_time()
        self.ended = False
        self.heard = ensemble.now()
        news, self.news = self.news, []
        for changed in news:
            changed()

    def _reach(self) -> None:
        early, self.early = self.early, None
        if early is not None:
            early()
        self.live()
        if self.cut or not self.ensemble.quorum:
            raise UnavailableError("no server answers")

    def _answer(self) -> None:
        late, self.late = self.late, None
        if late is not None:
            late()
        if self.answers_lost:
            self.answers_lost -= 1
            raise UnavailableError("the answer is lost")

    def _node(self, path: str) -> _Node:
        if path not in self.ensemble.nodes:
            raise MissingError(f"there is no node {path}")
        return self.ensemble.nodes[path]

    def make(self, path: str, data: bytes) -> None:
        """See ``Tree``."""
        self._reach()
        self._make(path, data, None)
        self._answer()

    def make_of_session(self, path: str, data: bytes, *, numbered: bool = False) -> tuple[str, int]:
        """See ``Tree``."""
        self._reach()
        if numbered:
            parent = self._node(path.rpartition("/")[0])
            path = f"{path}{parent.numbered:010d}"
            parent.numbered += 1
        made = self._make(path, data, self)
        self._answer()
        return path, made

    def _make(self, path: str, data: bytes, session: SimulatedTree | None) -> int:
        if path in self.ensemble.nodes:
            raise ChangedError(f"{path} is there")
        if parent := path.rpartition("/")[0]:
            self._node(parent)
        node = self.ensemble.nodes[path] = _Node(data, self.ensemble.number(), session, self.ensemble.now())
        return node.made

    def read(self, path: str, changed: Callable[[], object] | None = None) -> Stored:
        """See ``Tree``."""
        self._reach()
        node = self._node(path)
        if changed is not None:
            self.ensemble.watch(path, self, changed)
        stored = Stored(node.data, node.version, node.made, node.written_s)
        self._answer()
        return stored

    def write(self, path: str, data: bytes, *, version: int = -1) -> int:
        """See ``Tree``."""
        self._reach()
        node = self._node(path)
        if version not in (-1, node.version):
            raise ChangedError(f"{path} has version {node.version}")
        self.ensemble.number()
        node.data, node.version, node.written_s = data, node.version + 1, self.ensemble.now()
        self.ensemble.tell(path)
        self._answer()
        return node.version

    def remove(self, path: str) -> None:
        """See ``Tree``."""
        self._reach()
        if self.ensemble.nodes.pop(path, None) is not None:
            self.ensemble.number()
            self.ensemble.tell(path)
        self._answer()

    def children(self, path: str) -> tuple[str, ...]:
        """See ``Tree``."""
        self._reach()
        self._node(path)
        self._answer()
        start = f"{path}/"
        return tuple(
            each[len(start) :]
            for each in self.ensemble.nodes
            if each.startswith(start) and "/" not in each[len(start) :]
        )

    def close(self) -> None:
        """See ``Tree``."""
        if not self.cut and self.ensemble.quorum:
            self.end()
        self.closed = self.cut = True
