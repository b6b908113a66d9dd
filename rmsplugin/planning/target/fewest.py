"""Fewest: on how few nodes the VMs that shall run could be (VMPP), for the objective `nodes` and for every report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState, VJob
from rmsplugin.model.resources import NOTHING
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.bounds import fewest_for
from rmsplugin.packing.classes import Item
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
    used = len(set(sample.values()))
    run = [vjob for vjob in source.vjobs if states[vjob.name] is VJobState.RUNNING]
    if run and search is not None:
        items = [Item(vm, vjob.nodes, vjob.exclude) for vjob in run for vm in vjob.vms]
        current = {name: location.node for name, location in source.locations.items() if location.node}
        packing = pack(items, source.nodes, search.part(_SHARE), current)
        if not isinstance(packing, NoPacking) and packing.nodes_used <= used:
            return Fewest(packing.nodes_used, packing.lower_bound, packing.assignment)
    return Fewest(used, min(used, _by_sums(run, source.nodes)))


def _by_sums(run: Sequence[VJob], nodes: Sequence[Node]) -> int:
    """A lower bound on the number of nodes: as many as have together what all these demand."""
    if not run:
        return 0
    demands = [vm.demand for vjob in run for vm in vjob.vms]
    total = np.array([sum(each.centi_cpus for each in demands), sum(each.memory_mib for each in demands)])
    sizes = [node.capacity for node in nodes if node.state is NodeState.UP and node.capacity.holds(NOTHING)]
    return fewest_for(total, np.array([(size.centi_cpus, size.memory_mib) for size in sizes]).reshape(-1, 2))
