"""Resident: memory that stays on its node whatever is decided, because a platform pauses its VMs and saves none.

Such a VM has its memory until its vjob ends, whether it runs or is paused. Policies take memory for given back by a
vjob that makes way; so it has to be *taken* from them: it is taken off its node, and the VM demands CPUs alone.

That is so for all that are paused. For one that runs it is only done where a decision gave the memory to others: else
policies that reserve a start would not see that it comes free when the vjob ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, NodeState, VJob, VMState
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState

#: Decisions about a vjob that give its memory back.
_ENDS = (VJobState.TERMINATED, VJobState.WAITING)


def residents(configuration: Configuration) -> frozenset[str]:
    """The names of the vjobs whose memory stays where it is, whether they run or not."""
    return frozenset(vjob.name for vjob in configuration.vjobs if is_resident(configuration, vjob))


def is_resident(configuration: Configuration, vjob: VJob) -> bool:
    """Whether the memory of a vjob stays where it is, whether the vjob runs or not."""
    if not vjob.can.only_pauses or vjob.lost or vjob.target in _ENDS:
        return False
    return all(configuration.locations[vm.name].state.holds_memory for vm in vjob.vms)


def with_memory_taken(configuration: Configuration, taken: Collection[str]) -> Configuration:
    """The configuration in which policies have not the memory of resident vjobs that are paused, or in ``taken``.

    One that runs where it should not be is not preemptible: it cannot leave, and ends the sooner.
    """
    known = residents(configuration)
    if not known:
        return configuration
    held: dict[str, int] = {}
    vjobs = []
    for vjob in configuration.vjobs:
        found = vjob
        if vjob.name in taken or (vjob.name in known and _is_paused(configuration, vjob)):
            _add(held, configuration, vjob)
            found = _by_cpus(configuration, vjob)
        if vjob.name in known and not _may_stay(configuration, vjob):
            found = replace(found, preemptible=False)
        vjobs.append(found)
    nodes = tuple(_without(node, held.get(node.name, 0)) for node in configuration.nodes)
    return replace(configuration, nodes=nodes, vjobs=tuple(vjobs), checked=True)


def _by_cpus(configuration: Configuration, vjob: VJob) -> VJob:
    """A vjob without a demand for memory; so its VMs may only be where they have it."""
    nodes = zip(vjob.vms, _nodes(configuration, vjob), strict=True)
    vms = tuple(replace(vm, demand=Resources(vm.demand.cpus, 0), only=node) for vm, node in nodes)
    return replace(vjob, vms=vms, together_mib=0, can=replace(vjob.can, migrate=False, elsewhere=False))


def given_away(configuration: Configuration, decision: Decision) -> frozenset[str]:
    """The names of resident vjobs that make way by a decision which gives their memory to others."""
    out = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] is not VJobState.RUNNING]
    leaving = [vjob for vjob in out if is_resident(configuration, vjob)]
    if not leaving:
        return frozenset()
    used: dict[str, int] = {}
    for vjob in leaving:
        _add(used, configuration, vjob)
    for vjob in configuration.vjobs:
        for vm in vjob.vms if decision.states[vjob.name] is VJobState.RUNNING else ():
            node = decision.placement[vm.name]
            used[node] = used.get(node, 0) + vm.demand.memory_mib
    short = {node for node, mib in used.items() if mib > configuration.node_by_name[node].capacity.memory_mib}
    return frozenset(vjob.name for vjob in leaving if not short.isdisjoint(_nodes(configuration, vjob)))


def _add(held: dict[str, int], configuration: Configuration, vjob: VJob) -> None:
    """Add the memory of a vjob's VMs to that of others, by node."""
    for vm, node in zip(vjob.vms, _nodes(configuration, vjob), strict=True):
        held[node] = held.get(node, 0) + vm.demand.memory_mib


def _nodes(configuration: Configuration, vjob: VJob) -> list[str]:
    """The node of each VM of a vjob, all of which are in memory."""
    return [configuration.locations[vm.name].node or "" for vm in vjob.vms]


def _is_paused(configuration: Configuration, vjob: VJob) -> bool:
    return any(configuration.locations[vm.name].state is VMState.PAUSED for vm in vjob.vms)


def _may_stay(configuration: Configuration, vjob: VJob) -> bool:
    nodes = [configuration.node_by_name[name] for name in _nodes(configuration, vjob)]
    return all(node.state is NodeState.UP and vjob.allows(node.name) for node in nodes)


def _without(node: Node, memory_mib: int) -> Node:
    if not memory_mib:
        return node
    return replace(node, capacity=Resources(node.capacity.cpus, max(0, node.capacity.memory_mib - memory_mib)))
