"""Stored: the saved states of jobs that slept, with the times for which they were there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmsplugin.report.columns import Actions, Floats, Ints, time_key
from rmsplugin.report.lives import SLEEPING, Lives


@dataclass(frozen=True, slots=True)
class Stored:
    """A saved state of one VM in each row: from the end of its suspend to the end of its job's sleep.

    Attributes:
        row: of its job.
        begin, until: seconds since the epoch.
        mib: what the suspend wrote.
    """

    row: Ints
    begin: Floats
    until: Floats
    mib: Floats


def stored_states(actions: Actions, lives: Lives) -> Stored:
    """The saved states that these actions wrote while their jobs slept; checkpoints and states put aside are others."""
    chosen = actions.kind == actions.kinds.code("suspend")
    row, ended, size = actions.row[chosen], actions.ended[chosen], actions.bytes[chosen]
    sleeps = np.flatnonzero(lives.span_state == SLEEPING)
    if not len(sleeps) or not len(row):
        return Stored(np.empty(0, dtype=np.int64), *(np.empty(0) for _ in range(3)))
    origin = min(float(lives.begin[sleeps].min()), float(ended.min()))
    keys = time_key(lives.row[sleeps], lives.begin[sleeps] - origin)
    place = np.searchsorted(keys, time_key(row, ended - origin), side="right") - 1
    sleep = sleeps[np.maximum(place, 0)]
    kept = (place >= 0) & (lives.row[sleep] == row) & (ended < lives.until[sleep])
    return Stored(row[kept], ended[kept], lives.until[sleep][kept], size[kept] / (1 << 20))
