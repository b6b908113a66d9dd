"""Clearing: VMs that have left a node by migration leave nothing there, so that it can be switched off.

The ledger has each node on which a VM ever was, since files may be there: they are removed when the vjob ends. A node
that is off could not be asked then. So once all VMs have left a node that may go off, nothing of them is left there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import Platform
from rmsplugin.adapters.power.base import PowerDriver
from rmsplugin.engine.context.machines import has_disk
from rmsplugin.engine.context.stores import Stores
from rmsplugin.engine.execute.executor import Executor
from rmsplugin.engine.execute.placing import Placing
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.observation import Observation
from rmsplugin.engine.power.idle import switchable
from rmsplugin.errors import RmspluginError
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings import Settings

log = logging.getLogger(__name__)

#: So many VMs in one cycle: their nodes are asked within it.
_AT_ONCE = 16


class Clearing:
    """Removes, once a cycle, what is left of VMs on nodes that they have left."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        hypervisor: Platform,
        nodes: Nodes,
        stores: Stores,
        power: PowerDriver,
        executor: Executor,
        placing: Placing,
    ) -> None:
        """Ask with these; while ``placing`` gives nothing away, no VM comes back."""
        self._settings = settings
        self._ledger = ledger
        self._hypervisor = hypervisor
        self._nodes = nodes
        self._stores = stores
        self._power = power
        self._executor = executor
        self._placing = placing

    def clear(self, seen: Observation) -> None:
        """Clear nodes without VMs that may be switched off. What fails is tried again in the next cycle."""
        if not self._settings.power.switch:
            return
        moved = [vm for vm in self._ledger.live_vms() if vm.phase is VMPhase.LIVE and vm.touched != (vm.host,)]
        empty = {node for vm in moved for node in vm.touched if seen.vms.get(node) == {}}
        if not empty:
            return
        empty &= {*switchable(self._settings, self._power, seen)} - self._ledger.power.switches().keys()
        left = [vm for vm in moved if not empty.isdisjoint(vm.touched)]
        for vm in left[:_AT_ONCE]:
            try:
                self._clear(vm, empty & {*vm.touched})
            except RmspluginError as error:
                log.debug("files of %s may still be on %s: %s", vm.name, ", ".join(vm.touched), error)

    def _clear(self, vm: VMRow, nodes: Collection[str]) -> None:
        with self._placing.lock:
            # From here on no operation on the vjob begins that brings the VM back.
            now = next((each for each in self._ledger.vms(vm.job_id) if each.name == vm.name), None)
            if (
                now != vm
                or vm.job_id in self._executor.busy()
                or has_disk(self._settings, self._ledger.vjob(vm.job_id))
            ):
                return
            for node in sorted(set(nodes) - {vm.host}):
                if not self._hypervisor.has_vm(node, vm.name):
                    self._nodes.drop_config(node, vm.name)
                    if not self._settings.nodes.shared:
                        self._stores.drop([node], vm)
                    self._ledger.untouch(vm.name, node)
