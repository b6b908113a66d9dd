"""Acting: the part of a configuration that a decision changes; the rest stays in place, and is subtracted from nodes.

Mostly a few vjobs of many start, sleep or resume, and there is room for them. A problem of these alone is small. Its
answer holds for all if nothing could be cheaper even if all others moved as well; the caller has to check that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Location, Node, NodeState, VJob, VMState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.vjob import VJobState

#: By the state of a vjob, that of its VMs.
_VM_STATES = {VJobState(state): state for state in VMState}


def acting(source: Configuration, states: Mapping[str, VJobState]) -> Configuration | None:
    """The vjobs whose state changes, and the nodes on which they are or might go, with the others' demand subtracted.

    Args:
        source: the present configuration.
        states: the decided state of every vjob, by name.

    Returns:
        None if a vjob whose state stays the same may have to move all the same.
    """
    if source.overloaded():
        return None
    acts: list[VJob] = []
    stay: list[VJob] = []
    for vjob in source.vjobs:
        (stay if states[vjob.name] is source.state(vjob) else acts).append(vjob)
    if not all(_may_stay(source, vjob) for vjob in stay):
        return None
    locations = {vm.name: source.locations[vm.name] for vjob in acts for vm in vjob.vms}
    return Configuration(tuple(_nodes(source, acts, locations)), tuple(acts), locations, checked=True)


def are_alike(source: Configuration, nodes: Collection[str]) -> bool:
    """Whether on each of these nodes all VMs that run or sleep there demand the same: none is cheaper to move."""
    demands: dict[str, Resources] = {}
    for vjob in source.vjobs:
        for vm in vjob.vms:
            node = source.locations[vm.name].node
            if node is not None and node in nodes and demands.setdefault(node, vm.demand) != vm.demand:
                return False
    return True


def _may_stay(source: Configuration, vjob: VJob) -> bool:
    """Whether all VMs of a vjob are in its state already, and may stay where they are."""
    state, locations = _VM_STATES[source.state(vjob)], source.locations
    if len(vjob.vms) == 1:
        return _is_kept(source, vjob, state, locations[vjob.vms[0].name])
    places = {id(at): at for at in (locations[vm.name] for vm in vjob.vms)}.values()
    return all(_is_kept(source, vjob, state, at) for at in places)


def _is_kept(source: Configuration, vjob: VJob, state: VMState, at: Location) -> bool:
    """Whether a VM is in the state of its vjob, and may stay where it is."""
    if at.state is not state:
        return False
    if state is not VMState.RUNNING:
        return True
    return at.node is not None and source.node_by_name[at.node].state is NodeState.UP and vjob.allows(at.node)


def _nodes(source: Configuration, acts: Sequence[VJob], locations: Mapping[str, Location]) -> list[Node]:
    """The nodes with the resources left for acting vjobs, without the nodes that have nothing for any of them."""
    own: dict[str, Resources] = {}
    for vjob in acts:
        for vm in vjob.vms:
            at = locations[vm.name]
            if at.node is not None:
                own[at.node] = own.get(at.node, NOTHING) + (vm.demand if at.state is VMState.RUNNING else NOTHING)
    demands = {id(vm.demand): vm.demand for vjob in acts for vm in vjob.vms}.values()
    least = Resources(
        min((each.cpus for each in demands), default=math.inf), min((each.memory_mib for each in demands), default=0)
    )
    found = []
    for node in source.nodes:
        left = source.free(node.name)
        if node.name in own:
            left += own[node.name]
        elif not left.holds(least):
            continue
        found.append(Node(node.name, left, node.state))
    return found
