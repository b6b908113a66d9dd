"""Which further nodes waiting vjobs could use: where they would start that find no place in what there is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A vjob that waits.

    Args:
        name: of the vjob.
        vms: its VMs.
        nodes: the nodes that it may use.
        prefer: by VM name, the node to try first (where its saved state is).
    """

    name: str
    vms: tuple[VM, ...]
    nodes: frozenset[str] = frozenset()
    prefer: Mapping[str, str] = field(default_factory=dict)


def nodes_wanted(
    queue: Sequence[Candidate], free: Mapping[str, Resources], others: Mapping[str, Resources]
) -> frozenset[str]:
    """Which of the ``others`` (nodes without a room) vjobs would start on that find no place in what is ``free``.

    Args:
        queue: the vjobs that do not start now, in queue order.
        free: what is left of each node that takes VMs, or will soon.
        others: capacity of nodes that could be held.
    """
    left = {**free, **others}
    wanted: set[str] = set()
    in_vain: set[Hashable] = set()  # what found no place in what is left
    for item in queue:
        alike = tuple((vm.demand, item.prefer.get(vm.name)) for vm in item.vms), item.nodes
        if alike in in_vain:
            continue
        allowed = {name: amount for name, amount in left.items() if name in item.nodes}
        placement = first_fit_decreasing(item.vms, allowed, item.prefer)
        if placement is None:
            in_vain.add(alike)
            continue
        in_vain.clear()
        for vm in item.vms:
            node = placement[vm.name]
            left[node] -= vm.demand
            wanted |= {node} & others.keys()
    return frozenset(wanted)
