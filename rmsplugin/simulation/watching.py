"""Watching: looks at the demand of VMs once a cycle, as the engine does, for as long as it may change."""

from __future__ import annotations

import math
from collections.abc import Callable

from rmsplugin.simulation.events import Events
from rmsplugin.simulation.vjob import SimulatedVJob


class Watching:
    """Looks at the VMs of vjobs whose demand is observed."""

    def __init__(self, events: Events, cycle_s: float, changed: Callable[[SimulatedVJob], None]) -> None:
        """Look at no vjob yet.

        Args:
            events: the events of the replay.
            cycle_s: the time between two looks.
            changed: called with a vjob whose demand has changed.
        """
        self._events, self._cycle_s, self._changed = events, cycle_s, changed

    def watch(self, vjob: SimulatedVJob, now: float) -> None:
        """Look at the demand of a vjob's VMs, cycle after cycle, until nothing new is seen."""
        observed = vjob.observed
        if observed is None:
            return
        watched = now < observed.steady_from_s
        observed.changes(now, self._cycle_s)
        if not watched:
            self._sample(vjob, now)

    def _sample(self, vjob: SimulatedVJob, now: float) -> None:
        observed = vjob.observed
        if observed is None or not vjob.computes:
            if observed is not None:
                observed.steady_from_s = -math.inf
            return
        vjob.count(now)
        if observed.take_samples(now):
            self._changed(vjob)
        if now < observed.steady_from_s:
            self._events.at(now + max(1.0, self._cycle_s), lambda then: self._sample(vjob, then))
