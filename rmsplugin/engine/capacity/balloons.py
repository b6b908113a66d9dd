"""Balloons: guests are asked to do with less memory, or may have more again (``rmsplugin.decision.balloon``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rmsplugin.adapters.hypervisor.base import VMPower
from rmsplugin.decision.balloon import Ballooned, targets
from rmsplugin.engine.capacity.observed_memory import needed_mib
from rmsplugin.engine.context.context import Context
from rmsplugin.engine.ledger.rows import VJobRow, VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.errors import RmspluginError
from rmsplugin.model.vjob import VJobState

log = logging.getLogger(__name__)

#: Targets that differ by less from what a guest has are not asked for again.
_LEAST_CHANGE_MIB = 32
#: Nor by less than this, where all that the guests of a node have is no more than they may.
_SPARE_CHANGE_MIB = 128


class Balloons:
    """The balloons of all VMs whose memory is observed."""

    def __init__(self, context: Context) -> None:
        """Nobody was asked yet."""
        self._context = context
        self._asked: dict[str, int] = {}  # what each VM was asked to do with last, MiB

    def forget_but(self, vms: Iterable[str]) -> None:
        """Forget all VMs but these."""
        self._asked = {vm: self._asked[vm] for vm in vms if vm in self._asked}

    def tell(self, seen: Observation, node: str, room_mib: int, vms: Sequence[tuple[VJobRow, VMRow]]) -> bool:
        """Ask the guests of a node to do with so much, where they have another amount; whether any of it is new."""
        sizes = [Ballooned(vm.name, vm.memory_mib, needed_mib(vm)) for _, vm in vms]
        still = {vm.name for vjob, vm in vms if vjob.state is not VJobState.RUNNING or vm.destination}
        have = _have_mib(seen, node)
        # Where all have room, small changes of a neighbour's need are no reason to ask anybody.
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
        except RmspluginError as error:  # what keeps one from being asked mostly keeps the others, too
            log.warning("the balloons on %s: %s", node, error)
            return False

    def _ask(self, node: str, name: str, has_mib: int, target_mib: int) -> bool:
        """Ask one guest; whether it was asked for something else before. Only that is an event."""
        bound_s = self._context.settings.hypervisor.connect_timeout_s
        self._context.hypervisor.set_memory(node, name, target_mib, timeout_s=bound_s)
        if self._asked.get(name) == target_mib:
            return False
        self._asked[name] = target_mib
        verb = "is asked to do with" if target_mib < has_mib else "may have"
        words = f"{name} {verb} {target_mib} MiB instead of {has_mib}"
        self._context.ledger.event("balloon", words, vm=name, node=node)
        return True


def _have_mib(seen: Observation, node: str) -> dict[str, int]:
    """What the guests of a node have of their memory now; those that are not known to run are left out."""
    running = {name for name, info in seen.vms[node].items() if info.power is VMPower.RUNNING}
    return {
        name: each.memory_current_kib // 1024
        for name, each in seen.statistics[node].items()
        if name in running and each.memory_current_kib is not None
    }
