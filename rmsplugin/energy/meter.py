"""Meter: adds up watts over time to kilowatt-hours, with their cost and CO2 by the time of day."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

from rmsplugin.energy.local_clock import LocalClock
from rmsplugin.energy.parameters import EnergyParameters
from rmsplugin.energy.power import PowerClass

_J_A_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Energy:
    """Kilowatt-hours of one schedule, with cost and CO2 as far as they are known."""

    kwh: float
    cost: float | None
    co2_kg: float | None


class Meter:
    """Adds up watts over time, within the schedule: joules, and those times the price, and the grams of CO2."""

    def __init__(self, parameters: EnergyParameters, begin_s: float, end_s: float, clock: LocalClock) -> None:
        self._dailies = (parameters.price, parameters.co2)
        self.begin_s, self.end_s, self._clock = begin_s, end_s, clock
        self._joules = 0.0
        self._weighed = [0.0, 0.0]

    def copy(self) -> Meter:
        """Another one, which has added up the same so far."""
        other = copy(self)
        other._weighed = list(self._weighed)
        return other

    def add(self, watts: float, begin_s: float, end_s: float) -> None:
        """Add watts for a time; what lies outside the schedule does not count."""
        begin_s, end_s = max(begin_s, self.begin_s), min(end_s, self.end_s)
        if end_s <= begin_s:
            return
        self._joules += watts * (end_s - begin_s)
        for place, daily in enumerate(self._dailies):
            if daily is not None:
                for since_s, until_s in self._clock.spans(begin_s, end_s):
                    self._weighed[place] += watts * (until_s - since_s) * daily.mean(since_s, until_s)

    def read(self) -> Energy:
        """All so far."""
        cost, grams = (
            None if daily is None else sums / _J_A_KWH for daily, sums in zip(self._dailies, self._weighed, strict=True)
        )
        return Energy(self._joules / _J_A_KWH, cost, None if grams is None else grams / 1000)


def switch_off(meter: Meter, power: PowerClass, begin_s: float, on_s: float | None) -> None:
    """Count a node that is off, in place of an idle one."""
    end_s = meter.end_s if on_s is None else on_s
    meter.add(power.transition_w - power.idle_w, begin_s, begin_s + power.off_s)
    meter.add(power.off_w - power.idle_w, begin_s + power.off_s, end_s)
    if on_s is not None:
        meter.add(power.transition_w - power.idle_w, on_s, on_s + power.on_s)
