"""Observed: the known CPU demand of a vjob's VMs: from a monitor that looks once a cycle, or known beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from rmsplugin.decision.cpu_demand import WINDOW_S, CpuDemand, CpuSample
from rmsplugin.workload.activity import Phase


class Monitor(Protocol):
    """Knows demands; from ``steady_from_s`` on they do not change, unless the activity of the VMs does."""

    steady_from_s: float

    def anew(self) -> None:
        """Note that the VMs boot."""

    def went_on(self, vms: Collection[int]) -> None:
        """Note that VMs, by their indices, have migrated or resumed."""

    def changes(self, now: float, cycle_s: float) -> None:
        """Note that the activity of the VMs has changed."""

    def count(self, elapsed_s: float, phase: Phase) -> None:
        """Count a time in which the VMs were busy, or ready for work."""

    def take_samples(self, now: float) -> bool:
        """Look at the VMs. Returns whether a demand may have changed."""

    def cpus(self, vm: int) -> float:
        """The demand of a VM, by its index."""


@dataclass(slots=True)
class Observed:
    """Demands of the VMs of one vjob; VMs that are always alike are looked at once.

    Attributes:
        vcpus: of each VM.
        columns: the number of VMs that differ: 1 where all are alike.
        window_s: a demand falls only if no more was seen for so long.
        steady_from_s: the observation does not change from then on, unless the activity of the VMs does.
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
        """Note that the VMs boot: nothing is known of them."""
        self.demands = [CpuDemand.requested(self.vcpus)] * self.columns
        self.busy_s = [0.0] * self.columns

    def went_on(self, vms: Collection[int]) -> None:
        """Note that VMs, by their indices, have migrated or resumed: counters begin anew, but not their demand."""
        for column in range(self.columns):
            if column in vms or self.columns == 1:
                self.demands[column] = self.demands[column].anew()

    def changes(self, now: float, cycle_s: float) -> None:
        """Note that the activity of the VMs has changed: this is seen after a window, and two more looks."""
        self.steady_from_s = now + self.window_s + 2 * cycle_s

    def count(self, elapsed_s: float, phase: Phase) -> None:
        """Count a time in which the VMs were busy, or ready for work."""
        for column in range(self.columns):
            self.busy_s[column] += elapsed_s * phase.of(column)

    def take_samples(self, now: float) -> bool:
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
    """Demands that were observed before: VMs demand their activity's CPUs from the instant of its change on."""

    steady_from_s = -math.inf

    def __init__(self, uses: Callable[[int], float]) -> None:
        """Take the function that tells the CPUs that a VM uses now, by its index."""
        self.cpus = uses

    def anew(self) -> None:
        """Forget nothing."""

    def went_on(self, vms: Collection[int]) -> None:
        """Count nothing, so that nothing begins anew."""

    def changes(self, now: float, cycle_s: float) -> None:
        """Know it at once."""

    def count(self, elapsed_s: float, phase: Phase) -> None:
        """Count nothing."""

    def take_samples(self, now: float) -> bool:
        """Return True: a look is taken only because the activity of the VMs has changed."""
        return True
