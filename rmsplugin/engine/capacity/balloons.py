"""Balloons: ask guests to do with less memory, or let them have more again (``rmsplugin.decision.balloon``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rmsplugin.adapters.platform.base import Platform, VMPower
from rmsplugin.decision.balloon import Ballooned, targets
from rmsplugin.engine.capacity.observed_memory import needed_mib
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RmspluginError
from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: A guest is not asked again if its target differs by less than this from the memory that it has.
_LEAST_CHANGE_MIB = 32
#: The same bound on a node where all guests together have no more memory than they may.
_SPARE_CHANGE_MIB = 128


class Balloons:
    """The balloons of all VMs whose memory is observed."""

    def __init__(self, settings: Settings, ledger: Ledger, hypervisor: Platform, capabilities: Capabilities) -> None:
        """Begin; no guest was asked yet."""
        self._settings = settings
        self._ledger = ledger
        self._hypervisor = hypervisor
        self._capabilities = capabilities
        self._asked: dict[str, int] = {}  # by VM, the MiB that it was last asked to do with

    def forget_but(self, vms: Iterable[str]) -> None:
        """Forget all VMs but these."""
        self._asked = {vm: self._asked[vm] for vm in vms if vm in self._asked}

    def tell(self, seen: Observation, node: str, room_mib: int, vms: Sequence[tuple[VJobRow, VMRow]]) -> bool:
        """Ask guests of a node to change to their shares of ``room_mib``. Returns whether any target is new."""
        if not self._capabilities.balloons:
            return False
        sizes = [Ballooned(vm.name, _most_mib(vjob, vm), needed_mib(vm)) for vjob, vm in vms]
        still = {vm.name for vjob, vm in vms if vjob.state is not VJobState.RUNNING or vm.phase.moves}
        have = _have_mib(seen, node)
        # If all guests have room, a small change of a neighbour's need is no reason to ask any of them.
        fits = sum(have.get(vm.name, vm.size_mib) for vm in sizes) <= room_mib
        target_mib = targets(room_mib, sizes)
        wanted = [
            vm.name
            for vm in sizes
            if vm.name in have
            and vm.name not in still
            and abs(target_mib[vm.name] - have[vm.name])
            >= (_SPARE_CHANGE_MIB if fits and target_mib[vm.name] < vm.size_mib else _LEAST_CHANGE_MIB)
        ]
        try:
            told = [self._ask(node, name, have[name], target_mib[name]) for name in wanted]
            return any(told)
        except RmspluginError as error:  # a fault with one guest mostly concerns the others, too
            log.warning("the balloons on %s: %s", node, error)
            return False

    def _ask(self, node: str, name: str, has_mib: int, target_mib: int) -> bool:
        """Ask one guest. Returns whether the target is new; only a new target is an event."""
        bound_s = self._settings.hypervisor.connect_timeout_s
        self._hypervisor.set_memory(node, name, target_mib, timeout_s=bound_s)
        if self._asked.get(name) == target_mib:
            return False
        self._asked[name] = target_mib
        verb = "is asked to do with" if target_mib < has_mib else "may have"
        words = f"{name} {verb} {target_mib} MiB instead of {has_mib}"
        self._ledger.event("balloon", words, vm=name, node=node)
        return True


def _most_mib(vjob: VJobRow, vm: VMRow) -> int:
    """The most memory that a VM is left: its own, or less if it was resized; never less than it needs."""
    return max(needed_mib(vm), vjob.memory_mib_of(vm))


def _have_mib(seen: Observation, node: str) -> dict[str, int]:
    """By VM, the MiB that a guest of the node has now; guests that are not known to run are left out."""
    running = {name for name, info in seen.vms[node].items() if info.power is VMPower.RUNNING}
    return {
        name: each.memory_current_kib // 1024
        for name, each in seen.statistics[node].items()
        if name in running and each.memory_current_kib is not None
    }
