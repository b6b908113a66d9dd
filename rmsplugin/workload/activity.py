"""Activity: the number of CPUs that the VMs of a job use, phase after phase, if nothing holds them up."""

from __future__ import annotations

from typing import NamedTuple


class Phase(NamedTuple):
    """A part of a job's work.

    Attributes:
        work_s: its duration at full speed, in seconds.
        cpus: the CPUs that each VM uses, in the VMs' order; a single number holds for all.
    """

    work_s: float
    cpus: tuple[float, ...]

    def of(self, vm: int) -> float:
        """The CPUs of one VM, by its index."""
        return self.cpus[vm] if len(self.cpus) > 1 else self.cpus[0]


#: The whole work of a job.
Activity = tuple[Phase, ...]


def cpu_s(activity: Activity, vms: int) -> float:
    """CPU seconds that the VMs of a job use together."""
    return sum(phase.work_s * (sum(phase.cpus) if len(phase.cpus) > 1 else vms * phase.cpus[0]) for phase in activity)
