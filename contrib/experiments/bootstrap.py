"""Bootstrap: how sure a mean over the jobs of a trace is.

Jobs that were submitted one after the other wait for the same reason: blocks of them are drawn, not jobs (the circular
block bootstrap, Politis and Romano 1992), so that the intervals are not too narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Consecutive jobs that are drawn together.
BLOCK = 25

_DRAWS = 2000


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, and the interval in which 95 % of the means of drawn samples are."""

    value: float
    low: float
    high: float


def mean_of(windows: Sequence[Sequence[float] | NDArray[np.float64]], seed: int = 0) -> Mean:
    """The mean of all values.

    Args:
        windows: values of consecutive jobs; no block is drawn across two windows.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    arrays = [np.asarray(window, dtype=np.float64) for window in windows]
    sums = sum(_drawn_sums(array, random) for array in arrays)
    count = sum(len(array) for array in arrays)
    low, high = np.percentile(sums / count, (2.5, 97.5))
    return Mean(float(np.concatenate(arrays).mean()), float(low), float(high))


def ratio_of(ours: Sequence[float] | NDArray[np.float64], theirs: Sequence[float] | NDArray[np.float64]) -> Mean:
    """The ratio of two means over the same consecutive jobs; the same blocks are drawn of both."""
    one, other = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    drawn = _drawn_sums(one, np.random.default_rng(0)) / _drawn_sums(other, np.random.default_rng(0))
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Mean(float(one.mean() / other.mean()), float(low), float(high))


def _drawn_sums(values: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """The sums of as many values as there are, drawn in blocks."""
    block = min(BLOCK, len(values))
    blocks = -(-len(values) // block)
    sums = np.concatenate(([0.0], np.cumsum(np.concatenate((values, values[: block - 1])))))
    of_block = sums[block:] - sums[:-block]
    drawn = random.integers(len(of_block), size=(_DRAWS, blocks))
    drawn_sums: NDArray[np.float64] = of_block[drawn].sum(axis=1)
    return drawn_sums * (len(values) / (blocks * block))
