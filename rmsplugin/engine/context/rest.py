"""Rest: a neighbour that has failed is left alone for a while; twice as long after each further failure."""

from __future__ import annotations

from collections.abc import Callable


class Rest:
    """The rest of one neighbour."""

    def __init__(self, clock: Callable[[], float], first_s: float, most_s: float) -> None:
        """None yet.

        Args:
            clock: seconds.
            first_s: of the rest after the first failure.
            most_s: of the longest one.
        """
        self._clock, self._first_s, self._most_s = clock, first_s, most_s
        self._failures, self._until = 0, 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the neighbour failed when it was last asked."""
        return self._failures > 0

    @property
    def is_over(self) -> bool:
        """Whether it may be asked."""
        return not self._failures or self._clock() >= self._until

    def begin(self) -> None:
        """It has failed."""
        self._failures += 1
        self._until = self._clock() + min(self._most_s, self._first_s * 2 ** min(self._failures - 1, 30))

    def end(self) -> None:
        """It has answered."""
        self._failures = 0
