"""Events: what will happen at which time; events of one time happen in the order in which they were added."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Events:
    """Events that the clock alone brings; times are seconds."""

    def __init__(self) -> None:
        """Begin with no event."""
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    @property
    def next_s(self) -> float:
        """The time of the next event; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def at(self, when_s: float, what: Callable[[float], None]) -> None:
        """Call a function at that time, with the time."""
        self._count += 1
        heapq.heappush(self._heap, (when_s, self._count, what))

    def proceed(self, now: float) -> None:
        """Call all functions that are due by now."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
