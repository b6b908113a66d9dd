"""Back-off: the pause before the next attempt after failures, longer each time."""

from __future__ import annotations

#: The first pause, doubled with each failure, and the longest.
_FIRST_S = 1.0
MOST_S = 300.0


def pause_s(failures: int, most_s: float = MOST_S) -> float:
    """The pause in seconds before the next attempt after that many failures in a row (from 1)."""
    return float(min(most_s, _FIRST_S * 2 ** min(failures - 1, 30)))
