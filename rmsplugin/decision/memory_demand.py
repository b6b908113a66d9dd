"""Memory demand: the memory that a running VM needs, from its guest's reports. Pure: samples in, demand out.

A VM needs its working set: its memory without the part that its guest could give up at once (Linux: ``MemAvailable``),
such as pages of files that can be read again. The memory that the guest's kernel keeps for itself belongs to it. Unlike
CPUs, missing memory cannot be waited for. So demand is careful the other way round:

- a VM without samples demands all that was requested for it;
- a rise counts at once, with a margin for growth before the next sample;
- a fall counts after a window in which no more was seen, and goes down to the most that was seen;
- demand is a whole number of steps, so that small changes are ignored; it is at most the size of the VM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rmsplugin.model.made_at_once import made_at_once

#: The margin: a VM is taken to need so much more than its working set.
MARGIN = 0.1

#: A VM needs at least so much, in MiB: its kernel, and some room to begin with.
FLOOR_MIB = 64

#: Demands are multiples of it, in MiB.
STEP_MIB = 16


@made_at_once
@dataclass(frozen=True, slots=True)
class MemorySample:
    """One report of a guest.

    Attributes:
        time_s: its time, by a clock that never goes back (seconds; only differences count).
        working_set_mib: the guest's memory, without the part that it could give up.
    """

    time_s: float
    working_set_mib: int


@made_at_once
@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """A VM's demand by the samples so far, with the part of them that the next sample needs.

    Make one with ``MemoryDemand.requested`` when the VM boots, and replace it by ``after`` for each sample.

    Attributes:
        size_mib: the memory requested for the VM: it never demands more.
        mib: its demand.
        recent: the samples that the window reaches, and the last one before.
    """

    size_mib: int
    mib: int
    recent: tuple[MemorySample, ...] = ()

    @classmethod
    def requested(cls, size_mib: int) -> MemoryDemand:
        """The demand of a VM without samples: its size.

        Raises:
            ValueError: its size is below 1 MiB.
        """
        if size_mib < 1:
            raise ValueError(f"a VM has at least 1 MiB, not {size_mib}")
        return cls(size_mib, size_mib)

    def anew(self) -> MemoryDemand:
        """The same demand after a time without samples: a fall needs a whole window from then on."""
        return replace(self, recent=())

    def after(self, sample: MemorySample, window_s: float) -> MemoryDemand:
        """The demand after one more sample; one that is no later than the last one says nothing new.

        Args:
            sample: the report of the guest.
            window_s: demand falls only after so many seconds in which no more was seen.
        """
        if self.recent and sample.time_s <= self.recent[-1].time_s:
            return self
        reached = sample.time_s - window_s
        # The last sample before the window is kept, too: it tells the working set at the window's beginning.
        recent, first = (*self.recent, sample), 0
        while first + 1 < len(recent) and recent[first + 1].time_s <= reached:
            first += 1
        recent, mib = recent[first:], self._needed(sample.working_set_mib)
        if mib <= self.mib:
            covered = recent[0].time_s <= reached and len(recent) > 1
            # More memory never needs less: the largest working set tells the most that was needed.
            mib = self._needed(max([each.working_set_mib for each in recent])) if covered else self.mib
        return MemoryDemand(self.size_mib, mib, recent)

    def _needed(self, working_set_mib: int) -> int:
        """The working set with its margin, in whole steps, in MiB."""
        wanted = max(FLOOR_MIB, working_set_mib * (1 + MARGIN))
        return min(self.size_mib, STEP_MIB * -int(-wanted // STEP_MIB))
