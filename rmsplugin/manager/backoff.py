"""Backoff: when an engine that has ended is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds before an engine that ended is started again: the first time, and at most.
FIRST_S, MOST_S = 1.0, 60.0
#: An engine that ran for so long has no history of failures.
STEADY_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """The ends of one engine in a row."""

    failures: int = 0

    def ended(self, ran_s: float) -> Backoff:
        """After one more end, of an engine that ran for so long."""
        return Backoff(1 if ran_s >= STEADY_S else self.failures + 1)

    @property
    def pause_s(self) -> float:
        """The seconds before the next start."""
        return min(MOST_S, FIRST_S * 2.0 ** min(self.failures - 1, 16)) if self.failures else 0.0
