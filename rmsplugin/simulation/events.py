"""Events: what is going to happen at what time; of one time, in the order in which it was said."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


class Events:
    """What happens by the clock alone; times are seconds."""

    def __init__(self) -> None:
        """Nothing."""
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    @property
    def next_s(self) -> float:
        """When the next one is; infinite if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def at(self, when_s: float, what: Callable[[float], None]) -> None:
        """Something is to be done then, and told the time."""
        self._count += 1
        heapq.heappush(self._heap, (when_s, self._count, what))

    def proceed(self, now: float) -> None:
        """Do all that is due by now."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
