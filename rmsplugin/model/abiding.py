"""Abiding: vjobs as their platforms let them be, so that nothing is decided or planned that a platform cannot do.

The abilities of platforms become facts that every policy and the planner know anyhow: the nodes where a vjob may be,
whether it is preemptible, and VMs that can only be where they are. The checker does not look at these, but at the
abilities themselves (``rmsplugin.planning.checker``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rmsplugin.model.capabilities import Capabilities
from rmsplugin.model.elements import SHARED, VM, Location, Node, VJob, VMState
from rmsplugin.model.rules import Rules, confined_to, fenced, unadmitted


def abiding(nodes: Sequence[Node], vjobs: Sequence[VJob], locations: Mapping[str, Location]) -> tuple[VJob, ...]:
    """The same vjobs, with what follows from their platforms (``VJob.platform``, ``VJob.can``).

    - They may only be on nodes of their platform (RR-7398, section 3.1: platform boundaries are respected).
    - One whose VMs can be neither saved nor paused is not preemptible.
    - A VM in memory that cannot migrate, and a saved one that cannot be restored elsewhere, stay where they are.
    """
    of: dict[str, set[str]] = {}
    for node in nodes:
        of.setdefault(node.platform, set()).add(node.name)
    known = {name: frozenset(members) for name, members in of.items()}
    return tuple(_abiding(vjob, known, locations) for vjob in vjobs)


def _abiding(vjob: VJob, nodes: Mapping[str, frozenset[str]], locations: Mapping[str, Location]) -> VJob:
    rules = vjob.rules
    if nodes.keys() != {vjob.platform}:
        rules = _within(rules, nodes.get(vjob.platform, frozenset()))
    vms = vjob.vms
    if vjob.can.anchors and not vjob.lost:
        vms = tuple(anchored(vjob.can, vm, locations.get(vm.name)) for vm in vms)
        here = frozenset(vm.only for vm in vms if vm.only is not None)
        if all(vm.only is not None for vm in vms) and not unadmitted(rules, here):
            rules = _within(rules, here)  # else its rules keep it from where it is: it is saved, or stays against them
    preemptible = vjob.preemptible and vjob.can.makes_way
    if rules is vjob.rules and vms is vjob.vms and preemptible is vjob.preemptible:
        return vjob
    return replace(vjob, vms=vms, rules=rules, preemptible=preemptible)


def anchored(can: Capabilities, vm: VM, at: Location | None) -> VM:
    """The VM, bound to its node if the platform can move it from there in no way."""
    if at is None or at.node is None or at.node == SHARED:
        return vm
    moves = can.elsewhere if at.state is VMState.SLEEPING else can.migrate
    return vm if moves else replace(vm, only=at.node)


def _within(rules: Rules, nodes: frozenset[str]) -> Rules:
    only = confined_to(rules)
    return fenced(rules, nodes if only is None else nodes & only)
