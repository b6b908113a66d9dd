"""Wishes: the nodes where balloons are to make room for a VM that was refused, or waits for caches."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: For so many seconds balloons make room for a VM that was refused, so that there is room when it is tried again.
WISH_S = 600.0


class Wishes:
    """By node, how much room is wished for. Several threads may call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Wish for nothing; ``clock``: seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._wished: dict[str, tuple[float, int]] = {}  # by node: until when, and how much

    def wish(self, node: str, mib: int) -> None:
        """Wish for so much room there, in MiB, from now on; a wish from before is forgotten."""
        with self._lock:
            self._wished[node] = (self._clock() + WISH_S, mib)

    def come_true(self, node: str) -> None:
        """Wish for no more room there."""
        with self._lock:
            self._wished.pop(node, None)

    def room_mib(self, node: str) -> int:
        """The room that was wished for there last, in MiB; 0: none."""
        with self._lock:
            return self._wished.get(node, (0.0, 0))[1]

    def nodes(self) -> set[str]:
        """The nodes with wishes; what was wished for too long ago is forgotten."""
        now = self._clock()
        with self._lock:
            self._wished = {node: wish for node, wish in self._wished.items() if now < wish[0]}
            return {*self._wished}
