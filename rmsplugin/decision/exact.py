"""Exact packing: a place for all VMs of a set of vjobs together, where First Fit Decreasing found none."""

from __future__ import annotations

from collections.abc import Iterable

from rmsplugin.decision.near import loose, near, nodes_left
from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.model.elements import VJob
from rmsplugin.packing.feasible import Fits, fits
from rmsplugin.packing.item import items_of
from rmsplugin.packing.search import Search


def repack(site: Site, vjobs: Iterable[VJob], search: Search) -> NodeRoom | None:
    """Look for a room with all these vjobs in it, near where they are or else anywhere; vjobs in place stay there.

    Returns:
        The room, in which First Fit Decreasing can go on; None if there is none, or none was found within the limits.
    """
    members, search = list(vjobs), search.part(0.5)
    kept = near(loose(site), members, search)
    if kept is not None:
        return kept.room
    in_place = {name: site.pinned[name] for name in site.in_place}
    free = [vjob for vjob in members if vjob.name not in in_place]
    found = fits(items_of(free), nodes_left(site, in_place), search)
    if not isinstance(found, Fits):
        return None
    packed = {vjob.name: {vm.name: found.assignment[vm.name] for vm in vjob.vms} for vjob in free}
    if any(len(set(packed[name].values())) < len(packed[name]) for name in packed.keys() & site.configuration.apart):
        return None  # the search does not know which VMs need nodes of their own
    return site.with_pinned({**in_place, **packed}).pack(members)
