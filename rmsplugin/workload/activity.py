"""Activity: how many CPUs the VMs of a job use, phase after phase, as long as nothing holds them up."""

from __future__ import annotations

from typing import NamedTuple


class Phase(NamedTuple):
    """A part of a job's work.

    Attributes:
        work_s: how long it takes at full speed, in seconds.
        cpus: used by each VM, in their order; a single number is that of all.
    """

    work_s: float
    cpus: tuple[float, ...]

    def of(self, vm: int) -> float:
        """CPUs of one VM, by its index."""
        return self.cpus[vm] if len(self.cpus) > 1 else self.cpus[0]


#: All the work of a job.
Activity = tuple[Phase, ...]


def cpu_s(activity: Activity, vms: int) -> float:
    """CPU seconds that the VMs of a job use together."""
    return sum(phase.work_s * (sum(phase.cpus) if len(phase.cpus) > 1 else vms * phase.cpus[0]) for phase in activity)
