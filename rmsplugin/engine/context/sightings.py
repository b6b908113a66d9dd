"""Sightings: when each VM was last seen on a node, and what that and a room's epilog prove of a node that is silent."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import VMRow

#: An epilog's report arrives at most this late, in seconds; a VM may have arrived since.
_LATE_S = 60.0


class Sightings:
    """By the VM's name and the node's. In memory only; one thread writes, several read."""

    def __init__(self, ledger: Ledger) -> None:
        """Nothing was seen yet."""
        self._ledger = ledger
        self._last: dict[tuple[str, str], float] = {}

    def seen(self, vm: str, nodes: Iterable[str], time: float) -> None:
        """The VM was seen on these nodes at ``time``, in seconds since the epoch."""
        for node in nodes:
            self._last[vm, node] = time

    def retain(self, vms: Collection[str]) -> None:
        """Forget all VMs but these."""
        for vm, node in [key for key in self._last if key[0] not in vms]:
            del self._last[vm, node]

    def has_left(self, node: str, vm: VMRow) -> bool:
        """Whether it is proved that the VM does not exist on the node, although the node cannot be asked."""
        if node in self._ledger.nodes.gone() or self._ledger.power.is_off(node):
            return True
        clean = self._ledger.room_reports.clean_epilog(node)
        if clean <= self._last.get((vm.name, node), 0.0):
            return False  # no epilog has told anything since the VM was seen there, if any ever has
        arrived = self._ledger.last_arrival(vm.name, node)
        if not arrived:
            return False  # nothing is known of how it came there
        return clean > arrived + _LATE_S
