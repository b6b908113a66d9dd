"""Leaving: where not all that must run fit together, as many as fit leave the nodes that drain; the others stay.

Each vjob is kept near where it is. A vjob that stays behind is on a node that takes no VMs (it drains, or its user's
rules say so now), or on one that is overloaded and stays so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rmsplugin.decision.near import nodes_left
from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.model.elements import VJob, VMState
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.wording import counted
from rmsplugin.packing.item import items_of
from rmsplugin.packing.leaving import leave
from rmsplugin.packing.repair import Repair
from rmsplugin.packing.search import Search

#: The number of nodes that are named in a reason.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Partly:
    """A room with all that must run in it.

    Attributes:
        room: all are pinned; ``room.site.in_place`` names the vjobs of which a VM stays behind.
        behind: by the name of such a vjob, the reason why its VMs stay behind.
    """

    room: NodeRoom
    behind: dict[str, str]


def as_many_as_leave(site: Site, musts: Sequence[VJob], search: Search | None) -> Partly | None:
    """Find room for all that must run, with as few of them as possible on nodes where they should not be.

    Args:
        site: nodes, and pinned vjobs.
        musts: the vjobs that must run.
        search: limits of the solver; None: no solver is started.

    Returns:
        None if a vjob that does not run yet finds no room, or nothing was found within the limits.
    """
    configuration, locations = site.configuration, site.configuration.locations
    free = [vjob for vjob in musts if vjob.name not in site.pinned]
    runs = [vjob for vjob in free if configuration.state(vjob) is VJobState.RUNNING]
    places = {vm.name: locations[vm.name] for vjob in runs for vm in vjob.vms}
    current = {name: at.node for name, at in places.items() if at.state is VMState.RUNNING and at.node is not None}
    repair = Repair(items_of(free), nodes_left(site, site.pinned), current)
    may_stay = {name: current[name] for item in repair.homeless if (name := item.vm.name) in current}
    found = leave(repair, may_stay, search)
    if found is None:
        return None
    stays = {name: current[name] for name in may_stay.keys() - found.assignment.keys()}
    placement = {**found.assignment, **stays}
    pinned = {vjob.name: {vm.name: placement[vm.name] for vm in vjob.vms} for vjob in free}
    overloaded = {
        vm.name for vjob in free for vm in vjob.vms if placement[vm.name] in found.closed and vm.name not in stays
    }
    left = {vjob.name for vjob in free if any(vm.name in stays or vm.name in overloaded for vm in vjob.vms)}
    # The sentences about vjobs that stay are true while the others are there. A solver has tried all their places, too.
    in_place = frozenset(left if search else pinned) if left else frozenset[str]()
    room = Site(configuration, {**site.pinned, **pinned}, in_place, site.effort).pack(musts)
    assert room is not None, "what is pinned is not packed"
    behind = {vjob.name: _why(room, vjob, stays.keys(), overloaded) for vjob in free if vjob.name in left}
    return Partly(room, behind)


def _why(room: NodeRoom, vjob: VJob, stay: Collection[str], overloaded: Collection[str]) -> str:
    """The reason why VMs of a vjob stay where they should not be, or else on overloaded nodes."""
    vms = [vm for vm in vjob.vms if vm.name in stay] or [vm for vm in vjob.vms if vm.name in overloaded]
    whose = "its VM" if len(vjob.vms) == 1 else f"{len(vms)} of its {len(vjob.vms)} VMs"
    nodes = sorted({room.placement[vm.name] for vm in vms})
    where = " and ".join(nodes[:_NAMED])
    free = _free_elsewhere(room, vjob, nodes)
    if vms[0].name not in stay:
        return f"{whose} on {where}, where more is demanded than there is, and no room elsewhere relieves it: {free}"
    least = min((vm.demand for vm in vms), key=lambda demand: (demand.memory_mib, demand.cpus))
    return f"{whose} cannot leave {where}: it needs {least}, and {free}"


def _free_elsewhere(room: NodeRoom, vjob: VJob, nodes: Collection[str]) -> str:
    """The free resources on other nodes that a vjob may use."""
    usable = [(room.free_at(name), name) for name in room.site.up if vjob.allows(name) and name not in nodes]
    if not usable:
        return "no other node that it may use takes VMs now"
    usable.sort(key=lambda each: (-each[0].cpus, -each[0].memory_mib, each[1]))
    free = [f"{Resources(max(0.0, left.cpus), max(0, left.memory_mib))} on {name}" for left, name in usable[:_NAMED]]
    more = f" and less on {counted(len(usable) - _NAMED, 'other')}" if len(usable) > _NAMED else ""
    return f"free beside those that must run are {', '.join(free)}{more}"
