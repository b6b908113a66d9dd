"""Sizes: gives the VMs of vjobs that were resized by hand the CPUs, and the memory, that the ledger has for them.

A VM with a kernel of its own has its guest do with fewer CPUs; its memory is taken by balloons (``capacity.balloons``).
Where the platform bounds VMs, it is asked for both.

The wanted size is in the ledger, and what a VM was given is only in memory. Giving it once more does no harm: so it is
done again after a restart of the engine, and after each start or resume, since a VM that was booted, or went back to a
checkpoint, may have another size. A migration takes it along. What fails is tried again, later each time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from rmsplugin.adapters.guests.base import Guests
from rmsplugin.adapters.platform.base import Platform, VMStatistics
from rmsplugin.assessment.back_off import pause_s
from rmsplugin.engine.context.clock import Clock
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.errors import RmspluginError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.model.wording import counted

log = logging.getLogger(__name__)

#: A guest whose job computes with all its CPUs answers late.
_TIMEOUT_S = 20.0
_PARALLEL = 32


class _Wanted(NamedTuple):
    """The size of a VM, and the run in which it is to have it."""

    uuid: str
    state_since: float  # since when its vjob has been running
    cpus: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class _Given:
    """The last attempt to give a VM its size."""

    wanted: _Wanted
    failures: int = 0
    not_before: float = 0.0


class Sizes:
    """The sizes of all VMs whose vjobs were resized. ``carry_out`` blocks, and is called by one thread at a time."""

    def __init__(self, ledger: Ledger, guests: Guests, hypervisor: Platform, clock: Clock) -> None:
        """Begin; nothing is known of any VM."""
        self._ledger = ledger
        self._guests = guests
        self._hypervisor = hypervisor
        self._clock = clock
        self._bounds = hypervisor.capabilities.bounds
        self._given: dict[str, _Given] = {}  # by VM

    @property
    def is_due(self) -> bool:
        """Whether a VM is to be given another size now."""
        return bool(self._due(self._resized()))

    def carry_out(self) -> None:
        """Give all VMs their sizes, as far as they can have them now."""
        resized = self._resized()
        self._given = {vm.name: self._given[vm.name] for _, vm in resized if vm.name in self._given}
        if due := self._due(resized):
            with ThreadPoolExecutor(min(_PARALLEL, len(due)), thread_name_prefix="sizes") as pool:
                list(pool.map(lambda each: self._give(*each), due))

    def _resized(self) -> Sequence[tuple[VJobRow, VMRow]]:
        """The VMs of running vjobs that were resized."""
        vjobs = [each for each in self._ledger.vjobs() if self._is_resized(each) and each.state is VJobState.RUNNING]
        return [(vjob, vm) for vjob in vjobs for vm in self._ledger.vms(vjob.job_id)]

    def _is_resized(self, vjob: VJobRow) -> bool:
        return bool(vjob.resized_cpus or (self._bounds and vjob.resized_memory_mib))

    def _due(self, resized: Sequence[tuple[VJobRow, VMRow]]) -> Sequence[tuple[VJobRow, VMRow]]:
        return [(vjob, vm) for vjob, vm in resized if vm.phase is VMPhase.LIVE and self._is_due(vjob, vm)]

    def _is_due(self, vjob: VJobRow, vm: VMRow) -> bool:
        given = self._given.get(vm.name)
        if given is None or given.wanted != _wanted(vjob, vm):
            return True
        return bool(given.failures) and self._clock.now() >= given.not_before

    def _give(self, vjob: VJobRow, vm: VMRow) -> None:
        wanted = _wanted(vjob, vm)
        try:
            done = self._bound(vjob, vm) if self._bounds else self._tell_guest(vjob, vm)
        except RmspluginError as error:
            self._failed(vjob, vm, error)
            return
        self._given[vm.name] = _Given(wanted)
        for words in done:
            self._ledger.event("resized", f"{vm.name} {words}", vjob=vjob.display_id, vm=vm.name, node=vm.host)

    def _tell_guest(self, vjob: VJobRow, vm: VMRow) -> list[str]:
        """Have the guest use its CPUs; returns what has changed."""
        cpus = vjob.cpus_of(vm.idx)
        before = self._guests.set_cpus(vm.address, vm.host_key_public, cpus, timeout_s=_TIMEOUT_S)
        return [] if before == cpus else [_uses_cpus(vjob, vm, before)]

    def _bound(self, vjob: VJobRow, vm: VMRow) -> list[str]:
        """Have the platform bound the VM; returns what has changed."""
        cpus, memory_mib = vjob.cpus_of(vm.idx), vjob.memory_mib_of(vm)
        before = self._hypervisor.statistics(vm.host).get(vm.name) or VMStatistics(None, None, None, None)
        had_mib = None if before.memory_current_kib is None else before.memory_current_kib // 1024
        done = []
        if vjob.resized_cpus and before.cpus != cpus:
            self._hypervisor.set_cpus(vm.host, vm.name, cpus, timeout_s=_TIMEOUT_S)
            done.append(_uses_cpus(vjob, vm, before.cpus))
        if vjob.resized_memory_mib and had_mib != memory_mib:
            self._hypervisor.set_memory(vm.host, vm.name, memory_mib, timeout_s=_TIMEOUT_S)
            had = "" if had_mib is None else f", and had {had_mib}"
            done.append(f"may use {memory_mib} of its {vm.memory_mib} MiB{had}")
        return done

    def _failed(self, vjob: VJobRow, vm: VMRow, error: RmspluginError) -> None:
        wanted, last = _wanted(vjob, vm), self._given.get(vm.name)
        failures = 1 + (last.failures if last is not None and last.wanted == wanted else 0)
        self._given[vm.name] = _Given(wanted, failures, self._clock.now() + pause_s(failures))
        words = f"{vm.name} is not resized to {self._size(vjob, vm)} yet, and is asked again: {error}"
        log.log(logging.WARNING if failures == 1 else logging.INFO, "%s", words)
        still = self._ledger.vjobs_among([vjob.job_id]).get(vjob.job_id)
        if failures == 1 and still is not None and still.state is VJobState.RUNNING:
            self._ledger.event("resize-failed", words, vjob=vjob.display_id, vm=vm.name, node=vm.host)

    def _size(self, vjob: VJobRow, vm: VMRow) -> str:
        cpus = [counted(vjob.cpus_of(vm.idx), "CPU")] if vjob.resized_cpus else []
        memory = [f"{vjob.memory_mib_of(vm)} MiB"] if self._bounds and vjob.resized_memory_mib else []
        return " and ".join(cpus + memory)


def _wanted(vjob: VJobRow, vm: VMRow) -> _Wanted:
    return _Wanted(vm.uuid, vjob.state_since, vjob.cpus_of(vm.idx), vjob.memory_mib_of(vm))


def _uses_cpus(vjob: VJobRow, vm: VMRow, before: int | None) -> str:
    booked = counted(vjob.geometry.cpus_of(vm.idx), "CPU")
    return f"uses {vjob.cpus_of(vm.idx)} of its {booked}" + ("" if before is None else f", and used {before}")
