"""Balloons: how much memory the VMs of a node are asked to do with, so that their caches do not take what others need.

A guest keeps in its memory whatever it has read, until somebody needs the room: the host does not see that nobody does.
What a VM needs is its own; of what is left of the node, each gets its part of what it would like to have besides. Where
there is room for all that was requested nothing is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Targets are multiples of it, in MiB: small changes of a neighbour's need change nothing.
STEP_MIB = 32


@dataclass(frozen=True, slots=True)
class Ballooned:
    """A VM of a node.

    Args:
        name: its own.
        size_mib: what was requested for it: the most that it can have.
        needed_mib: what it is seen to need.
    """

    name: str
    size_mib: int
    needed_mib: int


def targets(room_mib: int, vms: Sequence[Ballooned]) -> dict[str, int]:
    """What each VM is asked to do with, in MiB.

    Args:
        room_mib: what these VMs may have together, without the memory of their hypervisor processes.
        vms: of one node.

    Returns:
        By name, between what it needs and its size: together no more than the room, unless more is needed than that.
    """
    wish_mib = sum(vm.size_mib - vm.needed_mib for vm in vms)
    spare_mib = room_mib - sum(vm.needed_mib for vm in vms)
    if spare_mib >= wish_mib:
        return {vm.name: vm.size_mib for vm in vms}
    share = max(0, spare_mib) / wish_mib if wish_mib else 0.0
    return {vm.name: vm.needed_mib + _steps(share * (vm.size_mib - vm.needed_mib)) for vm in vms}


def _steps(amount_mib: float) -> int:
    return int(amount_mib // STEP_MIB) * STEP_MIB
