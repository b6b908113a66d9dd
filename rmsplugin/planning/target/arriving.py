"""Arriving: the target that better-fit makes of the present places, a baseline (RR-7398, section 2.1.2).

The events of one decision come in this order: VMs that make way end, and the nodes that they leave are emptied; VMs
leave overloaded nodes, and nodes where they may not be; the others arrive in the order of the queue; underutilised
nodes are emptied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState, VMState
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.item import Item
from rmsplugin.planning.plan import Unreachable


def better_fit_hosts(
    source: Configuration, states: Mapping[str, VJobState], stay: Collection[str]
) -> dict[str, str] | Unreachable:
    """The node of each VM that shall run, by its name; Unreachable if better-fit finds no room for one.

    Args:
        source: the present configuration.
        states: the decided state of every vjob, by name.
        stay: running VMs that keep their nodes.
    """
    fit = BetterFit(source.nodes)
    arriving: list[Item] = []
    leaving: list[str] = []
    for vjob in source.vjobs:
        runs = states[vjob.name] is VJobState.RUNNING
        for vm in vjob.vms:
            item, at = Item(vm, vjob.rules_of(vm)), source.locations[vm.name]
            if at.state is not VMState.RUNNING or at.node is None:
                if runs:
                    arriving.append(item)
            elif vm.name in stay or not runs:
                fit.put(item, at.node, stays=runs)
                if not runs:
                    leaving.append(vm.name)
            elif source.node_by_name[at.node].state is NodeState.UP and vjob.allows(at.node):
                fit.put(item, at.node)
            else:
                arriving.append(item)
    for node in dict.fromkeys([fit.remove(name) for name in leaving]):
        fit.empty(node)
    for node in fit.overloaded():
        if not fit.relieve(node):
            return Unreachable(f"better-fit finds no room for VMs of {node}, which is overloaded")
    for item in arriving:
        if not fit.insert(item):
            return Unreachable(f"better-fit finds no node with room for VM {item.vm.name}")
    for node in fit.underloaded():
        fit.empty(node)
    return fit.assignment
