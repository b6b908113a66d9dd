"""FFD: First Fit Decreasing, the packing heuristic of the papers (RR-6929 section 3.2; VEE'09 section 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources


def decreasing(vm: VM) -> tuple[float, float, str]:
    """The key that sorts VMs as the papers do: by memory, then CPU (both descending), then name."""
    return (-vm.demand.memory_mib, -vm.demand.cpus, vm.name)


def first_fit_decreasing(
    vms: Iterable[VM], free: Mapping[str, Resources], prefer: Mapping[str, str] | None = None
) -> dict[str, str] | None:
    """Place VMs, sorted by memory, then CPU (descending), then name, each on the first node with room.

    It is for a few VMs, and for measured demands that are no multiple of a hundredth of a CPU; ``FirstFit`` does the
    same for a whole queue.

    Args:
        vms: the VMs to place.
        free: the free resources of each node, in the order in which nodes are tried.
        prefer: by VM name, a node that is tried first (e.g. the one that holds its saved state).

    Returns:
        Node by VM name, or None if some VM finds no node with room.
    """
    left = dict(free)
    placed: dict[str, str] = {}
    for vm in sorted(vms, key=decreasing):
        first = (prefer or {}).get(vm.name)
        candidates = ([first] if first in left else []) + [name for name in left if name != first]
        node = next((name for name in candidates if left[name].holds(vm.demand)), None)
        if node is None:
            return None
        left[node] -= vm.demand
        placed[vm.name] = node
    return placed
