"""Bill: the cost of a plan under construction, so far and at least in the end (VEE'09, equations 6 to 8), in MiB."""

from __future__ import annotations

from collections.abc import Sequence


class Bill:
    """Counts pools as they are closed; ``arrivals`` are still to come, and ``owed`` is their own cost."""

    def __init__(self, arrivals: int, owed: int) -> None:
        """Begin with a cost of 0."""
        self.cost = 0
        self._before = 0  # the cost of all pools so far, which each later action pays
        self._arrivals = arrivals
        self._owed = owed

    @property
    def at_least(self) -> int:
        """The least cost of the whole plan: the remaining actions pay for all pools so far."""
        return self.cost + self._before * self._arrivals + self._owed

    def owe(self, arrivals: int, cost: int) -> None:
        """Add so many arrivals that are to come (or fewer), at so much more cost (or less)."""
        self._arrivals += arrivals
        self._owed += cost

    def close(self, costs: Sequence[int]) -> None:
        """End a pool of actions with these costs."""
        self.cost += sum(costs) + self._before * len(costs)
        self._before += max(costs, default=0)
