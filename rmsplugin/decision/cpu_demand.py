"""CPU demand: the number of CPUs that a running VM demands, from the counters of its hypervisor. Pure.

A VM uses the time that its vCPUs ran, and the time that they were ready but had to wait for a CPU: so a VM that shares
a CPU shows the CPUs that it would use alone. Demand follows use with care, for every change may cost a context switch:

- a VM without samples demands what it requested;
- a rise counts at the second sample that shows it: a spike, or one wrong reading, suspends nobody;
- a fall counts after a window in which no more was seen: a pause between two phases gives nothing away;
- a VM whose CPUs are bounded demands no more than these, however long its processes wait for others;
- demand is a whole number of hundredths of a CPU, and a change below a tenth is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rmsplugin.model.made_at_once import made_at_once

#: Demand falls only after so many seconds in which no more was seen.
WINDOW_S = 60.0

#: A smaller change of demand is ignored, in hundredths of a CPU.
_LEAST_CHANGE = 10

#: At least so many intervals have to show a fall: one wrong reading gives nothing away either.
_LEAST_INTERVALS = 2


@made_at_once
@dataclass(frozen=True, slots=True)
class CpuSample:
    """One reading of a VM's counters; a reading without CPU time is not a sample.

    Attributes:
        time_s: its time, by a clock that never goes back (seconds; only differences count).
        cpu_time_ns: the time that its vCPUs have run together since its hypervisor process began.
        vcpu_delay_ns: the time that they were ready and waited for a CPU; 0 where the hypervisor cannot tell.
    """

    time_s: float
    cpu_time_ns: int
    vcpu_delay_ns: int = 0

    @property
    def busy_ns(self) -> int:
        """The time that its vCPUs would have run on CPUs of their own."""
        return self.cpu_time_ns + self.vcpu_delay_ns


@made_at_once
@dataclass(frozen=True, slots=True)
class _Interval:
    """The use of a VM between two samples."""

    begin_s: float
    end_s: float
    centi_cpus: int


@made_at_once
@dataclass(frozen=True, slots=True)
class CpuDemand:
    """A VM's demand by the samples so far, with the part of them that the next sample needs.

    Make one with ``CpuDemand.requested`` when the VM boots, and replace it by ``after`` for each sample. A VM that
    migrates, or resumes, keeps it (``anew``): its counters begin anew, but not its work.
    """

    vcpus: int
    centi_cpus: int
    last: CpuSample | None = None
    intervals: tuple[_Interval, ...] = ()  # without a gap, up to ``last``; the intervals that the window reaches

    @classmethod
    def requested(cls, vcpus: int) -> CpuDemand:
        """The demand of a VM without samples: all its vCPUs.

        Raises:
            ValueError: it has fewer than 1.
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

    def after(self, sample: CpuSample, window_s: float = WINDOW_S, bound: int | None = None) -> CpuDemand:
        """The demand after one more sample.

        ``bound``: the CPUs that the VM may use at this time; None: all its vCPUs.

        A counter that went back (another hypervisor process, or a wrong reading), or a sample that is no later than the
        last one, says nothing about the use; the following samples are compared with it.
        """
        interval = self._used(sample, self.vcpus if bound is None else min(bound, self.vcpus))
        if interval is None:
            return replace(self.anew(), last=sample)
        before = self.intervals[-1] if self.intervals else None
        reached = sample.time_s - window_s
        first = 0
        while first < len(self.intervals) and self.intervals[first].end_s <= reached:
            first += 1
        # Where samples are rarer than the window is long, the last two intervals have to do.
        intervals = (*(self.intervals[first:] or self.intervals[-1:]), interval)
        seen = CpuDemand(self.vcpus, self.centi_cpus, sample, intervals)
        if before is not None and (risen := min(before.centi_cpus, interval.centi_cpus)) > self.centi_cpus:
            return seen._changed(risen)
        covered = intervals[0].begin_s <= reached and len(intervals) >= _LEAST_INTERVALS
        if covered and (most := max([each.centi_cpus for each in intervals])) < self.centi_cpus:
            return seen._changed(most)
        return seen

    def _used(self, sample: CpuSample, most: int) -> _Interval | None:
        """The use since the last sample, of ``most`` CPUs; None if unknown."""
        if self.last is None or sample.time_s <= self.last.time_s:
            return None
        # Each counter is checked by itself: where one begins anew, the other one may have grown by more.
        if sample.cpu_time_ns < self.last.cpu_time_ns or sample.vcpu_delay_ns < self.last.vcpu_delay_ns:
            return None
        cpus = (sample.busy_ns - self.last.busy_ns) / 1e9 / (sample.time_s - self.last.time_s)
        return _Interval(self.last.time_s, sample.time_s, round(100 * min(cpus, most)))

    def _changed(self, centi_cpus: int) -> CpuDemand:
        small = abs(centi_cpus - self.centi_cpus) < _LEAST_CHANGE
        return self if small else replace(self, centi_cpus=centi_cpus)


def cpu_demand(samples: Iterable[CpuSample], vcpus: int, window_s: float = WINDOW_S) -> float:
    """The demand of a VM in CPUs after all its samples, the oldest first.

    Args:
        samples: readings of its counters.
        vcpus: the CPUs requested for it.
        window_s: demand falls only after so many seconds in which no more was seen.

    Raises:
        ValueError: a VM without a vCPU.
    """
    demand = CpuDemand.requested(vcpus)
    for sample in samples:
        demand = demand.after(sample, window_s)
    return demand.cpus
