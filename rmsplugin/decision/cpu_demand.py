"""CPU demand: how many CPUs a running VM demands, from the counters of its hypervisor. Pure: samples in, demand out.

What a VM uses is the time that its vCPUs ran and the time that they were ready but had to wait for a CPU, so that a VM
that shares a CPU shows what it would use. Demand follows use with care, for every change may cost a context switch:

- a VM of which nothing is known demands what it requested;
- a rise counts at the second sample that shows it: a spike, or one wrong reading, suspends nobody;
- a fall counts after a window in which nothing more was seen: a pause between two phases gives nothing away;
- demand is a whole number of hundredths of a CPU, and a change below a tenth is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: So long nothing more has to be seen before demand falls.
WINDOW_S = 60.0

#: A smaller change of demand is none, in hundredths of a CPU.
_LEAST_CHANGE = 10

#: So many intervals at least have to show a fall: one wrong reading gives nothing away either.
_LEAST_INTERVALS = 2


@dataclass(frozen=True, slots=True)
class CpuSample:
    """One reading of a VM's counters; a reading without CPU time is none.

    Attributes:
        time_s: when, by a clock that never goes back (seconds; only differences count).
        cpu_time_ns: how long its vCPUs have run together since its hypervisor process began.
        vcpu_delay_ns: how long they were ready and waited for a CPU; 0 where the hypervisor cannot tell.
    """

    time_s: float
    cpu_time_ns: int
    vcpu_delay_ns: int = 0

    @property
    def busy_ns(self) -> int:
        """How long its vCPUs would have run on CPUs of their own."""
        return self.cpu_time_ns + self.vcpu_delay_ns


@dataclass(frozen=True, slots=True)
class _Interval:
    """What a VM used between two samples."""

    begin_s: float
    end_s: float
    centi_cpus: int


@dataclass(frozen=True, slots=True)
class CpuDemand:
    """What a VM demands by the samples so far, and what of them the next one needs.

    Make one with ``CpuDemand.requested`` when the VM boots, and replace it by ``after`` for each sample. A VM that
    migrates, or resumes, keeps it (``anew``): its counters begin anew, its work does not.
    """

    vcpus: int
    centi_cpus: int
    last: CpuSample | None = None
    intervals: tuple[_Interval, ...] = ()  # without a gap, up to ``last``; those that the window reaches

    @classmethod
    def requested(cls, vcpus: int) -> CpuDemand:
        """The demand of a VM of which nothing is known yet: all its vCPUs.

        Raises:
            ValueError: fewer than one.
        """
        if vcpus < 1:
            raise ValueError(f"a VM has at least 1 vCPU, not {vcpus}")
        return cls(vcpus, 100 * vcpus)

    @property
    def cpus(self) -> float:
        """The demand in CPUs, two decimals at most: from 0 to its vCPUs."""
        return self.centi_cpus / 100

    def anew(self) -> CpuDemand:
        """The same demand where the counters begin anew: the next sample is compared with none before it."""
        return replace(self, last=None, intervals=())

    def after(self, sample: CpuSample, window_s: float = WINDOW_S) -> CpuDemand:
        """The demand after one more sample.

        A counter that went back (another hypervisor process, or a wrong reading), or a sample that is no later than the
        last one, says nothing about what was used; what follows is compared with it.
        """
        interval = self._used(sample)
        if interval is None:
            return replace(self.anew(), last=sample)
        before = self.intervals[-1] if self.intervals else None
        reached = sample.time_s - window_s
        # Where samples are rarer than the window is long, the last two intervals have to do.
        recent = tuple(each for each in self.intervals if each.end_s > reached) or self.intervals[-1:]
        intervals = (*recent, interval)
        seen = replace(self, last=sample, intervals=intervals)
        if before is not None and (risen := min(before.centi_cpus, interval.centi_cpus)) > self.centi_cpus:
            return seen._changed(risen)
        covered = intervals[0].begin_s <= reached and len(intervals) >= _LEAST_INTERVALS
        if covered and (most := max(each.centi_cpus for each in intervals)) < self.centi_cpus:
            return seen._changed(most)
        return seen

    def _used(self, sample: CpuSample) -> _Interval | None:
        """What was used since the last sample; None if nobody knows."""
        if self.last is None or sample.time_s <= self.last.time_s:
            return None
        # Each by itself: where one counter begins anew, the other one may have grown by more.
        if sample.cpu_time_ns < self.last.cpu_time_ns or sample.vcpu_delay_ns < self.last.vcpu_delay_ns:
            return None
        cpus = (sample.busy_ns - self.last.busy_ns) / 1e9 / (sample.time_s - self.last.time_s)
        return _Interval(self.last.time_s, sample.time_s, round(100 * min(cpus, self.vcpus)))

    def _changed(self, centi_cpus: int) -> CpuDemand:
        small = abs(centi_cpus - self.centi_cpus) < _LEAST_CHANGE
        return self if small else replace(self, centi_cpus=centi_cpus)


def cpu_demand(samples: Iterable[CpuSample], vcpus: int, window_s: float = WINDOW_S) -> float:
    """The demand of a VM in CPUs after all its samples, the oldest first.

    Args:
        samples: readings of its counters.
        vcpus: how many CPUs were requested for it.
        window_s: so long nothing more has to be seen before demand falls.

    Raises:
        ValueError: a VM without a vCPU.
    """
    demand = CpuDemand.requested(vcpus)
    for sample in samples:
        demand = demand.after(sample, window_s)
    return demand.cpus
