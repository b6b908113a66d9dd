"""Observed: what is known of the CPU demand of a vjob's VMs: by a monitor that looks once a cycle, or beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from rmsplugin.decision.cpu_demand import WINDOW_S, CpuDemand, CpuSample
from rmsplugin.workload.activity import Phase


class Monitor(Protocol):
    """Knows demands; ``steady_from_s``: what it knows does not change from then on, unless what the VMs do does."""

    steady_from_s: float

    def anew(self) -> None:
        """The VMs boot."""

    def went_on(self, vms: Collection[int]) -> None:
        """VMs, by their indices, have migrated or resumed."""

    def changes(self, now: float, cycle_s: float) -> None:
        """What the VMs do has changed."""

    def count(self, elapsed_s: float, phase: Phase) -> None:
        """The VMs were busy, or ready for it, for a while."""

    def look(self, now: float) -> bool:
        """Look at the VMs. Returns whether a demand may have changed."""

    def cpus(self, vm: int) -> float:
        """The demand of a VM, by its index."""


@dataclass(slots=True)
class Observed:
    """Demands of the VMs of one vjob; VMs that are always alike are looked at once.

    Attributes:
        vcpus: of each VM.
        columns: how many VMs differ: 1 where all are alike.
        window_s: so long nothing more has to be seen before a demand falls.
        steady_from_s: what is seen does not change from then on, unless what the VMs do does.
    """

    vcpus: int
    columns: int
    window_s: float = WINDOW_S
    steady_from_s: float = 0.0
    demands: list[CpuDemand] = field(default_factory=list)
    busy_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.anew()

    def anew(self) -> None:
        """The VMs boot: nothing is known of them."""
        self.demands = [CpuDemand.requested(self.vcpus)] * self.columns
        self.busy_s = [0.0] * self.columns

    def went_on(self, vms: Collection[int]) -> None:
        """VMs, by their indices, have migrated or resumed: their counters begin anew, their demand does not."""
        for column in range(self.columns):
            if column in vms or self.columns == 1:
                self.demands[column] = self.demands[column].anew()

    def changes(self, now: float, cycle_s: float) -> None:
        """What the VMs do has changed: it is seen after a window, and two more looks."""
        self.steady_from_s = now + self.window_s + 2 * cycle_s

    def count(self, elapsed_s: float, phase: Phase) -> None:
        """The VMs were busy, or ready for it, for a while."""
        for column in range(self.columns):
            self.busy_s[column] += elapsed_s * phase.of(column)

    def look(self, now: float) -> bool:
        """Take a sample of each VM. Returns whether a demand has changed."""
        before = [demand.centi_cpus for demand in self.demands]
        self.demands = [
            demand.after(CpuSample(now, round(busy_s * 1e9)), self.window_s)
            for demand, busy_s in zip(self.demands, self.busy_s, strict=True)
        ]
        return before != [demand.centi_cpus for demand in self.demands]

    def cpus(self, vm: int) -> float:
        """The demand of a VM, by its index."""
        return self.demands[vm if self.columns > 1 else 0].cpus


class Known:
    """Demands that were observed before: VMs demand what their activity says, from the instant on at which it does."""

    steady_from_s = -math.inf

    def __init__(self, uses: Callable[[int], float]) -> None:
        """Take what tells the CPUs that a VM uses now, by its index."""
        self.cpus = uses

    def anew(self) -> None:
        """Nothing is forgotten."""

    def went_on(self, vms: Collection[int]) -> None:
        """Nothing is counted, so that nothing begins anew."""

    def changes(self, now: float, cycle_s: float) -> None:
        """It is known at once."""

    def count(self, elapsed_s: float, phase: Phase) -> None:
        """Nothing is counted."""

    def look(self, now: float) -> bool:
        """Whoever looks does so because the VMs do something else."""
        return True
