"""Guest CPUs: gives the guests of vjobs that were resized by hand the number of CPUs that the ledger has for them.

The wanted number is in the ledger, and what a guest was given is only in memory. Giving it once more does no harm: so
it is done again after a restart of the engine, and after each start or resume, since a VM that was booted, or went back
to a checkpoint, may have another number. A migration takes it along. What fails is tried again, later each time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rmsplugin.adapters.guests.base import Guests
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


@dataclass(frozen=True, slots=True)
class _Given:
    """The last attempt to give a guest its CPUs."""

    wanted: tuple[str, float, int]  # uuid of the VM, since when its vjob has been running, and CPUs
    failures: int = 0
    not_before: float = 0.0


class GuestCpus:
    """The CPUs of all guests whose vjobs were resized. ``carry_out`` blocks, and is called by one thread at a time."""

    def __init__(self, ledger: Ledger, guests: Guests, clock: Clock) -> None:
        """Begin; nothing is known of any guest."""
        self._ledger = ledger
        self._guests = guests
        self._clock = clock
        self._given: dict[str, _Given] = {}  # by VM

    @property
    def is_due(self) -> bool:
        """Whether a guest is to be given another number of CPUs now."""
        return bool(self._due(self._resized()))

    def carry_out(self) -> None:
        """Give all guests their CPUs, as far as they answer."""
        resized = self._resized()
        self._given = {vm.name: self._given[vm.name] for _, vm in resized if vm.name in self._given}
        if due := self._due(resized):
            with ThreadPoolExecutor(min(_PARALLEL, len(due)), thread_name_prefix="guest-cpus") as pool:
                list(pool.map(lambda each: self._give(*each), due))

    def _resized(self) -> Sequence[tuple[VJobRow, VMRow]]:
        """The VMs of running vjobs that were resized."""
        vjobs = [each for each in self._ledger.vjobs() if each.resized_cpus and each.state is VJobState.RUNNING]
        return [(vjob, vm) for vjob in vjobs for vm in self._ledger.vms(vjob.job_id)]

    def _due(self, resized: Sequence[tuple[VJobRow, VMRow]]) -> Sequence[tuple[VJobRow, VMRow]]:
        return [(vjob, vm) for vjob, vm in resized if vm.phase is VMPhase.LIVE and self._is_due(vjob, vm)]

    def _is_due(self, vjob: VJobRow, vm: VMRow) -> bool:
        given = self._given.get(vm.name)
        if given is None or given.wanted != _wanted(vjob, vm):
            return True
        return bool(given.failures) and self._clock.now() >= given.not_before

    def _give(self, vjob: VJobRow, vm: VMRow) -> None:
        wanted, cpus = _wanted(vjob, vm), vjob.cpus_of(vm.idx)
        try:
            before = self._guests.set_cpus(vm.address, vm.host_key_public, cpus, timeout_s=_TIMEOUT_S)
        except RmspluginError as error:
            self._failed(vjob, vm, error)
            return
        self._given[vm.name] = _Given(wanted)
        if before != cpus:
            words = f"{vm.name} uses {cpus} of its {vjob.geometry.cpus_of(vm.idx)} CPUs, and used {before}"
            self._ledger.event("resized", words, vjob=vjob.display_id, vm=vm.name, node=vm.host)

    def _failed(self, vjob: VJobRow, vm: VMRow, error: RmspluginError) -> None:
        wanted, last = _wanted(vjob, vm), self._given.get(vm.name)
        failures = 1 + (last.failures if last is not None and last.wanted == wanted else 0)
        self._given[vm.name] = _Given(wanted, failures, self._clock.now() + pause_s(failures))
        words = f"{vm.name} is not resized to {counted(vjob.cpus_of(vm.idx), 'CPU')} yet, and is asked again: {error}"
        log.log(logging.WARNING if failures == 1 else logging.INFO, "%s", words)
        still = self._ledger.vjobs_among([vjob.job_id]).get(vjob.job_id)
        if failures == 1 and still is not None and still.state is VJobState.RUNNING:
            self._ledger.event("resize-failed", words, vjob=vjob.display_id, vm=vm.name, node=vm.host)


def _wanted(vjob: VJobRow, vm: VMRow) -> tuple[str, float, int]:
    return vm.uuid, vjob.state_since, vjob.cpus_of(vm.idx)
