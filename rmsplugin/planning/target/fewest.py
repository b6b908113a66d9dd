"""Fewest: on how few nodes the VMs that shall run could be (VMPP), for the objective `nodes` and for every report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.bounds import fewest
from rmsplugin.packing.classes import Item, classify
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, pack

#: Of the time for placement, what the packing may use (VEE'09, section 2: 15 of 60 seconds).
_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Fewest:
    """The number of nodes aimed at, the proven lower bound, and a packing on so many (None: the sample is one)."""

    nodes: int
    lower_bound: int
    assignment: Mapping[str, str] | None = None


def fewest_nodes(
    source: Configuration, states: Mapping[str, VJobState], sample: Mapping[str, str], search: Search | None
) -> Fewest:
    """Pack what shall run; without a ``search`` only bound how few nodes can host it.

    VMs that the sample leaves on a node that takes none (it drains) are left there, and out of the packing.
    """
    items = [
        Item(vm, vjob.nodes, vjob.exclude)
        for vjob in source.vjobs
        if states[vjob.name] is VJobState.RUNNING
        for vm in vjob.vms
    ]
    used = len(set(sample.values()))
    classes = classify(items, source.nodes)
    if not items or search is None:
        return Fewest(used, min(used, fewest(classes)))
    current = {name: location.node for name, location in source.locations.items() if location.node}
    packing = pack(items, source.nodes, search.part(_SHARE), current)
    if isinstance(packing, NoPacking) or packing.nodes_used > used:
        return Fewest(used, min(used, fewest(classes)))
    return Fewest(packing.nodes_used, packing.lower_bound, packing.assignment)
