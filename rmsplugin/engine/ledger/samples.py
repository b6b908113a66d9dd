"""Samples: the CPUs and memory that running VMs demand and hold; each change is kept in the ledger, to the second.

A replay of the ledger sees what the engine saw, and when (``rmsplugin simulate --ledger``). There are few rows all the
same: a demand falls only after a whole window without a higher sample, and grows only above all samples of the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import sqlite_utils

from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.ledger.table import LedgerTable, Rows
from rmsplugin.model.vjob import Geometry, VJobState

#: The number of a user's newest vjobs that tell what the next one needs.
_NEWEST = 100


@dataclass(frozen=True, slots=True)
class Sample:
    """The demand of a VM, and the memory that it held, from a time on.

    Attributes:
        vm: its name.
        time: when it was seen, seconds since the epoch; the ledger rounds up, so that no sample is older than its run.
        centi_cpus: its demand, in hundredths of a CPU.
        memory_rss_kib: memory of the host that its hypervisor process held; None if the hypervisor cannot tell.
        memory_demand_mib: the part of its memory that it demanded; None in samples of a release that did not look.
    """

    vm: str
    time: float
    centi_cpus: int
    memory_rss_kib: int | None
    memory_demand_mib: int | None = None

    @property
    def demands(self) -> tuple[int, int | None]:
        """The demand: hundredths of a CPU, and MiB."""
        return self.centi_cpus, self.memory_demand_mib


class Samples(LedgerTable):
    """The ledger's table of samples; the present demand of a VM is in the VM's own row, too."""

    def __init__(
        self,
        write: Callable[[], AbstractContextManager[sqlite_utils.Database]],
        rows: Rows,
        clock: Callable[[], float],
        changed_vms: set[int],
    ) -> None:
        """``changed_vms``: receives the ids of jobs whose VMs the open transaction changes."""
        super().__init__(write, rows, clock)
        self._changed_vms = changed_vms

    def record(self, changes: Iterable[tuple[VJobRow, VMRow, Sample]]) -> None:
        """Record changed demands, all in one transaction.

        Each sample comes with the rows from which it was worked out. If the VM was suspended or replaced since, its
        sample is left out, because it belongs to another run.
        """
        with self._write() as db:
            for vjob, vm, sample in changes:
                changed = db.execute(
                    "update vms set centi_cpus = ?, memory_demand_mib = ? "
                    "where name = ? and uuid = ? and exists (select 1 from vjobs where "
                    "vjobs.job_id = vms.job_id and vjobs.state = ? and vjobs.state_since = ?)",
                    [*sample.demands, vm.name, vm.uuid, str(VJobState.RUNNING), vjob.state_since],
                ).rowcount
                if changed:
                    self._changed_vms.add(vm.job_id)
                    db.execute(
                        "insert or replace into samples (vm, time, memory_rss_kib, centi_cpus, memory_demand_mib) "
                        "values (?,?,?,?,?)",
                        [vm.name, math.ceil(sample.time), sample.memory_rss_kib, *sample.demands],
                    )

    def peaks(self, user: str, job_name: str, memory_mib: int, image: str) -> list[int]:
        """The peak memory demand, in MiB, of each of a user's newest vjobs with this job name, request and image.

        The need that is assumed of a VM before anything was seen of it is not a sample.
        """
        rows = self._rows(
            "select geometry, (select max(memory_demand_mib) from samples "
            "where vm >= 'vjob' || job_id || '-' and vm < 'vjob' || job_id || '.') as peak "
            "from vjobs where user = ? and job_name = ? order by job_id desc limit ?",
            [user, job_name, _NEWEST],
        )
        shapes = (Geometry.parse(row["geometry"]) for row in rows)
        alike = [shape.memory_mib == memory_mib and shape.image == image for shape in shapes]
        return [row["peak"] for row, is_alike in zip(rows, alike, strict=True) if is_alike and row["peak"] is not None]

    def of(self, vm: str) -> list[Sample]:
        """The samples of a VM, oldest first."""
        rows = self._rows("select * from samples where vm = ? order by time", [vm])
        return [Sample(**row) for row in rows]
