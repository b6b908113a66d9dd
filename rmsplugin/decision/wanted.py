"""Wanted: the further nodes on which waiting vjobs would start that find no place on the present ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from rmsplugin.model.elements import VM
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ffd import first_fit_decreasing

#: Places VMs on nodes with these free resources, all or none; tries a preferred node first.
Fit = Callable[[Sequence[VM], Mapping[str, Resources], Mapping[str, str]], dict[str, str] | None]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A waiting vjob.

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
    """The ``others`` (nodes without a room) on which vjobs would start that find no place in ``free``.

    Args:
        queue: the vjobs that do not start now, in queue order.
        free: the free resources of each node that takes VMs, or will soon.
        others: the capacity of nodes that could be held.
    """
    return frozenset().union(*places_beyond(queue, free, others).values())


def places_beyond(
    queue: Sequence[Candidate],
    free: Mapping[str, Resources],
    others: Mapping[str, Resources],
    fit: Fit = first_fit_decreasing,
) -> dict[str, frozenset[str]]:
    """The vjobs that find a place only with some of the ``others``: by vjob, the others on which it would have VMs.

    Each vjob of the queue takes its place, in queue order; one that finds none takes nothing.

    Args:
        queue: vjobs, in queue order.
        free: the free resources of nodes that are tried first.
        others: the free resources of other nodes.
        fit: places VMs. If it is another than First Fit Decreasing, vjobs that are alike may find different places.
    """
    left = {**free, **others}
    found: dict[str, frozenset[str]] = {}
    equal = fit is first_fit_decreasing
    in_vain: set[Hashable] = set()  # shapes that found no place in the free resources
    for item in queue:
        alike = tuple((vm.demand, item.prefer.get(vm.name)) for vm in item.vms), item.nodes, "" if equal else item.name
        if alike in in_vain:
            continue
        allowed = {name: amount for name, amount in left.items() if name in item.nodes}
        placement = fit(item.vms, allowed, item.prefer)
        if placement is None:
            in_vain.add(alike)
            continue
        in_vain.clear()
        for vm in item.vms:
            left[placement[vm.name]] -= vm.demand
        if beyond := frozenset(placement.values()) & others.keys():
            found[item.name] = beyond
    return found
