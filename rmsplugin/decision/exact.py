"""Exact packing: a place for all VMs of a set of vjobs together, where First Fit Decreasing found none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.packing.classes import Item
from rmsplugin.packing.feasible import Fits, fits
from rmsplugin.packing.search import Search


def repack(site: Site, vjobs: Iterable[VJob], search: Search) -> NodeRoom | None:
    """Look for a room with all these vjobs in it; those that are reserved in place stay there.

    Returns:
        The room, in which First Fit Decreasing can go on; None if there is none, or none was found within the limits.
    """
    members = list(vjobs)
    in_place = {name: site.pinned[name] for name in site.in_place}
    loose = [vjob for vjob in members if vjob.name not in in_place]
    placed = _placement(site, loose, search)
    if placed is None:
        return None
    packed = {vjob.name: {vm.name: placed[vm.name] for vm in vjob.vms} for vjob in loose}
    return replace(site, pinned={**in_place, **packed}).pack(members)


def _placement(site: Site, vjobs: list[VJob], search: Search) -> Mapping[str, str] | None:
    vm_by_name = site.configuration.vm_by_name
    taken: dict[str, Resources] = {}
    for name in site.in_place:
        for vm, node in site.pinned[name].items():
            taken[node] = taken.get(node, NOTHING) + vm_by_name[vm].demand
    # What is overloaded by those in place has less than nothing left, and takes no more.
    nodes = [replace(node, capacity=node.capacity - taken.get(node.name, NOTHING)) for node in site.up.values()]
    items = [Item(vm, vjob.nodes, vjob.exclude) for vjob in vjobs for vm in vjob.vms]
    found = fits(items, nodes, search)
    return found.assignment if isinstance(found, Fits) else None
