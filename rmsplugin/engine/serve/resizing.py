"""Resizing: a user has the VMs of a running vjob do with less than is booked, or takes it back; kept until it ends.

A vjob gets no more than Slurm has allocated to its job, and its job keeps that: Slurm changes CPUs and memory of no job
that runs. So Slurm's limits and accounting stay true. What is given up is there for others as soon as it is not seen to
be used any more: CPUs and memory of running VMs are booked by observation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow
from rmsplugin.engine.serve.naming import Named
from rmsplugin.errors import RefusedError
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.wording import counted

#: Each vjob is resized once in so many seconds: each time is an event, and work in its guests.
APART_S = 10.0

#: States without VMs that could be resized, and why.
_NO_VMS = {
    VJobState.WAITING: "is waiting, and has no VMs yet",
    VJobState.STARTING: "is starting; its VMs can be resized when it runs",
    VJobState.STOPPING: "is ending",
    VJobState.TERMINATED: "has ended",
}


@dataclass(frozen=True, slots=True)
class Size:
    """What each VM is to have. None: no change; 0: all that is booked for it."""

    cpus: int | None = None
    memory_mib: int | None = None


class Resizing:
    """Keeps in the ledger to what vjobs are resized. Several threads may call."""

    def __init__(self, ledger: Ledger, capabilities: Capabilities, now: Callable[[], float]) -> None:
        """Begin; ``now``: seconds since the epoch."""
        self._ledger = ledger
        self._capabilities = capabilities
        self._now = now
        self._lock = threading.Lock()
        self._last: dict[int, float] = {}  # by job id, when it was resized last

    def resize(self, user: str, found: Named, size: Size) -> dict[str, Any]:
        """Keep the size of vjobs. Nothing is begun here.

        Returns:
            The vjobs for which it is kept; and by vjob, a sentence where it is not.

        Raises:
            RefusedError: it is kept for none of them.
        """
        whole = "is not split off its array by Slurm yet, and has no VMs"
        refused = {element: f"vjob {element} {whole}" for element in found.waiting}
        with self._lock, self._ledger.transaction():
            self._forget_old()
            refused |= {row.display_id: why for row in found.rows if (why := self._objection(row, size))}
            taken = [row for row in found.rows if row.display_id not in refused]
            for row in taken:
                self._keep(user, row, size)
        if not taken:
            raise RefusedError(next(iter(refused.values())))
        return {"vjobs": [row.display_id for row in taken], "refused": refused}

    def _forget_old(self) -> None:
        self._last = {job: last for job, last in self._last.items() if self._now() - last < APART_S}

    def _keep(self, user: str, row: VJobRow, size: Size) -> None:
        changes, booked = _changes(row, size), row.geometry
        if not changes:
            return
        most = {
            "resized_cpus": counted(booked.cpus, "CPU"),
            "resized_memory_mib": f"{booked.memory_mib} MiB",
        }
        words = " and ".join(f"{value} of {most[key]}" for key, value in changes.items())
        self._last[row.job_id] = self._now()
        self._ledger.update_vjob(row.job_id, **changes)
        self._ledger.event("resize", f"{user} resizes each VM to {words}", vjob=row.display_id)

    def _objection(self, row: VJobRow, size: Size) -> str:
        """Why a vjob cannot have this size; empty: it can."""
        name = f"vjob {row.display_id}"
        if row.state in _NO_VMS:
            return f"{name} {_NO_VMS[row.state]}"
        if not self._capabilities.resize:
            return f"{name} runs on a platform that resizes nothing while it runs"
        if why := _more_than_booked(row, size):
            return f"{name} {why}"
        if self._capabilities.bounds:
            if why := self._needs_more(row, size):
                return f"{name} {why}"
        elif size.memory_mib and not all(vm.observed for vm in self._ledger.vms(row.job_id)):
            return (
                f"{name} has its memory booked as requested, and nothing on its nodes would hold a guest to less; "
                f'where an administrator sets memory = "observed" in [partition.{row.partition}], new vjobs can be '
                "resized"
            )
        if row.job_id in self._last and _changes(row, size):
            return f"{name} was resized less than {APART_S:.0f} s ago; try again in a moment"
        return ""

    def _needs_more(self, row: VJobRow, size: Size) -> str:
        """Why the platform is not to bound a vjob to a size: a VM needs more memory; empty: none is seen to."""
        wanted = replace(row, resized_memory_mib=size.memory_mib or 0)
        for vm in self._ledger.vms(row.job_id):
            needed_mib, wanted_mib = vm.memory_demand_mib or 0, wanted.memory_mib_of(vm)
            if needed_mib > wanted_mib:
                return (
                    f"was last seen to need {needed_mib} MiB in {vm.name}, with a margin for growth: "
                    f"with {wanted_mib} MiB one of its processes may be ended"
                )
        return ""


def _changes(row: VJobRow, size: Size) -> dict[str, int]:
    """The columns that change by this size. What is all that is booked is kept, too: guests have to be told of it."""
    wanted = {}
    if size.cpus is not None:
        wanted["resized_cpus"] = size.cpus or row.geometry.cpus
    if size.memory_mib is not None:
        wanted["resized_memory_mib"] = size.memory_mib or row.geometry.memory_mib
    return {key: value for key, value in wanted.items() if getattr(row, key) != value}


def _more_than_booked(row: VJobRow, size: Size) -> str:
    booked = row.geometry
    for wanted, most, so_many in (
        (size.cpus, booked.cpus, counted(booked.cpus, "CPU")),
        (size.memory_mib, booked.memory_mib, f"{booked.memory_mib} MiB"),
    ):
        if wanted is not None and wanted > most:
            return f"has {so_many} for each VM by its job, and Slurm gives a job that runs no more"
    return ""
