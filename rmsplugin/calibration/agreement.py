"""Agreement: whether expected durations of context switches can be told, because the last ones were right. Pure."""

from __future__ import annotations

from collections.abc import Sequence

#: The newest so many context switches count, and at least so many have to be known.
NEWEST, _ENOUGH = 20, 5
#: So large a share of them has to have been right: within this factor, or within so many seconds.
_SHARE, _FACTOR, _SECONDS = 0.8, 2.0, 5.0


def agrees(durations: Sequence[tuple[float, float]]) -> bool:
    """Whether the next expected duration is likely to be right within a factor of 2.

    Args:
        durations: of each context switch that was done, the seconds that it was expected to take, and took; the newest
            come last.
    """
    newest = durations[-NEWEST:]
    right = sum(is_right(expected_s, took_s) for expected_s, took_s in newest)
    return len(newest) >= _ENOUGH and right >= _SHARE * len(newest)


def is_right(expected_s: float, took_s: float) -> bool:
    """Whether an expected duration was right: within a factor of 2, or within some seconds."""
    least, most = sorted((expected_s, took_s))
    return most - least <= _SECONDS or most <= _FACTOR * least
