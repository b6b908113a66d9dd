"""Topology: the leaf switches of the RMS's nodes, asked for when somebody needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from rmsplugin.errors import UnavailableError

#: After so many seconds they are asked for again: topology.conf is seldom changed.
_AGAIN_S = 600.0


class Topology:
    """What was told last. For several threads."""

    def __init__(self, ask: Callable[[], Sequence[Collection[str]]], now: Callable[[], float]) -> None:
        """``ask``: the nodes of each leaf switch; it may raise UnavailableError."""
        self._ask, self._now = ask, now
        self._lock = threading.Lock()
        self._told: tuple[frozenset[str], ...] | None = None
        self._asked = 0.0

    def switches(self) -> tuple[frozenset[str], ...]:
        """The nodes of each leaf switch; none if there is no topology.

        Raises:
            UnavailableError: the RMS does not tell them, and has never told them.
        """
        with self._lock:
            if self._told is None or self._now() - self._asked >= _AGAIN_S:
                self._ask_again()
            assert self._told is not None
            return self._told

    def _ask_again(self) -> None:
        try:
            self._told = tuple(map(frozenset, self._ask()))
        except UnavailableError:
            if self._told is None:
                raise
        self._asked = self._now()


def fixed(switches: Sequence[Collection[str]]) -> Topology:
    """A topology that is known, and does not change: the nodes of each leaf switch."""
    return Topology(lambda: switches, lambda: 0.0)


#: For looks at no RMS: there are no switches.
NO_TOPOLOGY = fixed(())
