"""Fewest: the least number of nodes for the VMs that shall run (VMPP), for the objective `nodes` and all reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState, VJob, running_on
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.bounds import fewest_for
from rmsplugin.packing.item import items_of
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, pack
from rmsplugin.planning.target.replacement import nodes_that_keep

#: The part of the time for placement that the packing may use (VEE'09, section 2: 15 of 60 seconds).
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
    """Pack the VMs that shall run; without a ``search`` only bound the number of nodes.

    VMs that the sample leaves on a node that accepts none (it drains, or is overloaded) are left there.
    """
    used = len(set(sample.values()))
    run = [vjob for vjob in source.vjobs if states[vjob.name] is VJobState.RUNNING]
    if run and search is not None:
        items = items_of(run)
        current = {name: location.node for name, location in source.locations.items() if location.node}
        packing = pack(items, source.nodes, search.part(_SHARE), current)
        if not isinstance(packing, NoPacking) and packing.nodes_used <= used:
            return Fewest(packing.nodes_used, packing.lower_bound, packing.assignment)
    keeping = nodes_that_keep(source, states, sample)
    left = {name for name, node in sample.items() if node in keeping and source.locations[name] == running_on(node)}
    return Fewest(used, min(used, _by_sums(source, run, left)))


def _by_sums(source: Configuration, run: Sequence[VJob], left: Collection[str]) -> int:
    """A lower bound on the number of nodes. It counts the nodes of VMs that are left on draining or overloaded nodes.

    It adds the least number of other nodes whose sums hold the other VMs' demand, without the room beside the first.
    """
    vms = [vm for vjob in run for vm in vjob.vms]
    taken: dict[str, Resources] = {}
    for vm in vms:
        if vm.name in left:
            here = source.locations[vm.name].node or ""
            taken[here] = taken.get(here, NOTHING) + vm.demand
    demands = [vm.demand for vm in vms if vm.name not in left]
    total = np.array([sum(each.centi_cpus for each in demands), sum(each.memory_mib for each in demands)])
    sizes = []
    for node in source.nodes:
        if node.state is NodeState.UP and node.name in taken:
            beside = node.capacity - taken[node.name]
            total -= np.maximum((beside.centi_cpus, beside.memory_mib), 0)
        elif node.state is NodeState.UP and node.capacity.holds(NOTHING):
            sizes.append((node.capacity.centi_cpus, node.capacity.memory_mib))
    more = fewest_for(total, np.array(sizes).reshape(-1, 2)) if demands and (total > 0).any() else 0
    return len(taken) + (more or bool(demands and not taken))
