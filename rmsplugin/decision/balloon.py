"""Balloons: targets for the memory of a node's VMs, so that their caches do not take memory that others need.

A guest keeps in its memory all that it has read, until one of its programs needs the memory; the host cannot see that.
A VM gets all that it needs. Each VM also gets its part of the node's remaining memory, by what it would like to have
besides. Where there is room for all requests, nothing is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Targets are multiples of it, in MiB: small changes of a neighbour's need have no effect.
STEP_MIB = 32


@dataclass(frozen=True, slots=True)
class Ballooned:
    """A VM of a node.

    Args:
        name: its name.
        size_mib: the most that it can have: the memory requested for it, or less if it was resized.
        needed_mib: its observed need.
    """

    name: str
    size_mib: int
    needed_mib: int


def targets(room_mib: int, vms: Sequence[Ballooned]) -> dict[str, int]:
    """The target of each VM, in MiB.

    Args:
        room_mib: the memory that these VMs may have together, without the memory of their hypervisor processes.
        vms: the VMs of one node.

    Returns:
        By name, between its need and its size: together no more than the room, unless the needs are more than that.
    """
    wish_mib = sum(vm.size_mib - vm.needed_mib for vm in vms)
    spare_mib = room_mib - sum(vm.needed_mib for vm in vms)
    if spare_mib >= wish_mib:
        return {vm.name: vm.size_mib for vm in vms}
    share = max(0, spare_mib) / wish_mib if wish_mib else 0.0
    return {vm.name: vm.needed_mib + _steps(share * (vm.size_mib - vm.needed_mib)) for vm in vms}


def _steps(amount_mib: float) -> int:
    return int(amount_mib // STEP_MIB) * STEP_MIB
