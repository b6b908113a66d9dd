"""Balloons: guests are asked to do with less memory, or may have more again (``rmsplugin.decision.balloon``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rmsplugin.adapters.hypervisor.base import VMPower
from rmsplugin.decision.balloon import Ballooned, targets
from rmsplugin.engine.rows import VJobRow, VMRow
from rmsplugin.errors import RmspluginError
from rmsplugin.model.vjob import VJobState

if TYPE_CHECKING:
    from rmsplugin.engine.context import Context
    from rmsplugin.engine.observation import Observation

log = logging.getLogger(__name__)

#: Targets that differ by less from what a guest has are not asked for again.
_LEAST_CHANGE_MIB = 32


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
        sizes = [Ballooned(vm.name, vjob.geometry.memory_mib, _needs_mib(vjob, vm)) for vjob, vm in vms]
        still = {vm.name for vjob, vm in vms if vjob.state is not VJobState.RUNNING or vm.destination}
        new = False
        for name, target_mib in targets(room_mib, sizes).items():
            statistics, info = seen.statistics[node].get(name), seen.vms[node].get(name)
            has_kib = statistics.memory_current_kib if statistics is not None else None
            if name in still or has_kib is None or info is None or info.power is not VMPower.RUNNING:
                continue
            if abs(target_mib - has_kib // 1024) >= _LEAST_CHANGE_MIB:
                new |= self._ask(node, name, has_kib // 1024, target_mib)
        return new

    def _ask(self, node: str, name: str, has_mib: int, target_mib: int) -> bool:
        """Ask one guest; whether it was asked for something else before. Only that is an event."""
        bound_s = self._context.settings.hypervisor.stop_timeout_s
        try:
            self._context.hypervisor.set_memory(node, name, target_mib, timeout_s=bound_s)
        except RmspluginError as error:
            log.warning("the balloon of %s on %s: %s", name, node, error)
            return False
        if self._asked.get(name) == target_mib:
            return False
        self._asked[name] = target_mib
        verb = "is asked to do with" if target_mib < has_mib else "may have"
        words = f"{name} {verb} {target_mib} MiB instead of {has_mib}"
        self._context.ledger.event("balloon", words, vm=name, node=node)
        return True


def _needs_mib(vjob: VJobRow, vm: VMRow) -> int:
    size_mib = vjob.geometry.memory_mib
    return size_mib if vm.memory_demand_mib is None else min(size_mib, vm.memory_demand_mib)
