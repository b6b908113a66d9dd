"""Samples: the observed demands of all VMs of a report, 12 bytes for each: a busy year has tens of millions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmsplugin.report.columns import Codes, Floats, Ints, Jobs


@dataclass(frozen=True, slots=True)
class VMs:
    """The VMs of all jobs, numbered one job after the other.

    Attributes:
        first: the number of each job's first VM, by row; at the end the number of all VMs.
        row: the row of each VM's job.
        cpus: the CPUs that each VM requested.
    """

    first: Ints
    row: Codes
    cpus: Ints

    @staticmethod
    def of(jobs: Jobs) -> VMs:
        """The VMs of these jobs."""
        first = np.append(0, np.cumsum(jobs.vms))
        row = np.repeat(np.arange(len(jobs), dtype=np.int32), jobs.vms)
        is_large = np.arange(len(row)) - first[row] < jobs.large[row]
        return VMs(first, row, np.where(is_large, jobs.cpus[row], jobs.small_cpus[row]))

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, slots=True)
class Samples:
    """The demands of VMs from a time on: those of one VM are next to each other, in the order of time.

    Attributes:
        vm: the VM's number in VMs; the order of the VMs is not specified.
        time: seconds since the epoch, whole ones.
        centi_cpus: hundredths of a CPU.
    """

    vm: Codes
    time: NDArray[np.uint32]
    centi_cpus: Codes

    @staticmethod
    def of(jobs: Jobs, vms: VMs, found: Iterable[tuple[Ints, Codes, Floats, Codes]]) -> Samples:
        """The samples of these jobs.

        Args:
            jobs: of the report.
            vms: of these jobs.
            found: see ``LedgerReader.samples``.
        """
        parts = [_of(jobs, vms, *piece) for piece in found]
        columns = ([each[place] for each in parts] for place in range(3))
        types = (np.int32, np.uint32, np.int32)
        return Samples(
            *(np.concatenate([np.empty(0, type_), *each]) for each, type_ in zip(columns, types, strict=True))
        )

    def __len__(self) -> int:
        return len(self.vm)

    def slices(self) -> Iterator[Samples]:
        """All samples, so many at a time; a VM is in one slice."""
        begin = 0
        while begin < len(self):
            end = min(begin + SLICE, len(self))
            while end < len(self) and self.vm[end] == self.vm[end - 1]:
                end += 1
            yield Samples(self.vm[begin:end], self.time[begin:end], self.centi_cpus[begin:end])
            begin = end

    def between(self, begin: float, until: float) -> Samples:
        """The samples of that time."""
        there = np.flatnonzero((self.time >= begin) & (self.time < until))
        return Samples(self.vm[there], self.time[there], self.centi_cpus[there])


#: The number of samples that are looked at together.
SLICE = 500_000


def _of(
    jobs: Jobs, vms: VMs, job_id: Ints, index: Codes, time: Floats, centi_cpus: Codes
) -> tuple[Codes, NDArray[np.uint32], Codes]:
    row = jobs.rows_of(job_id)
    kept = np.flatnonzero((row >= 0) & (index < jobs.vms[row])) if len(jobs) else np.empty(0, np.int64)
    vm = (vms.first[row[kept]] + index[kept]).astype(np.int32)
    return vm, time[kept].astype(np.uint32), centi_cpus[kept]
