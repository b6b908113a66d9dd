"""Measured: the times that a class of nodes takes to go off and to come on (T_d and T_w), as measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rmsplugin.energy.power import PowerClass

#: With fewer measurements the class's own time stays.
ENOUGH = 10
#: So many of the newest ones count.
_NEWEST = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """A time as it was measured.

    Attributes:
        count: how often.
        seconds: the median of the newest ones; None: it was not measured often enough.
    """

    count: int
    seconds: float | None


def measured(newest_first: Sequence[float]) -> Measured:
    """The median, which a node that hung once does not change."""
    enough = len(newest_first) >= ENOUGH
    return Measured(len(newest_first), statistics.median(newest_first[:_NEWEST]) if enough else None)


def with_measured(power: PowerClass, off: Measured, on: Measured) -> PowerClass:
    """The class with the times that were measured often enough."""
    return replace(
        power,
        off_s=power.off_s if off.seconds is None else off.seconds,
        on_s=power.on_s if on.seconds is None else on.seconds,
    )
