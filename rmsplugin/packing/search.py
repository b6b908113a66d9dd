"""Search: the limits within which a solver may look for a better answer than it has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rmsplugin.packing.net import Net


@dataclass(frozen=True, slots=True)
class Search:
    """Limits of a search; whatever ends it, the best found so far and the proven bound are returned.

    With ``deterministic_limit`` the answer depends only on the input, the seed and the number of workers; the
    unit is the solver's own (about a second of one core). Without it the clock of the machine ends the search. A
    ``net`` is for searches with a deterministic limit: it may end them by the clock all the same, and notes that.
    """

    time_limit_s: float = 5.0
    workers: int = 1
    seed: int = 0
    deterministic_limit: float | None = None
    net: Net | None = field(default=None, compare=False)

    def part(self, share: float) -> Search:
        """The same with a share of the limits."""
        limit = self.deterministic_limit
        return replace(
            self,
            time_limit_s=self.time_limit_s * share,
            deterministic_limit=None if limit is None else limit * share,
        )
