"""Near: room for vjobs where they are, or near that, so that none is suspended for want of a few migrations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rmsplugin.decision.reasons import no_room
from rmsplugin.decision.result import Reason
from rmsplugin.decision.room import NodeRoom, Room, Site
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import Node, VJob, VMState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import confined_to
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.item import items_of
from rmsplugin.packing.repair import Repair
from rmsplugin.packing.search import Search


@dataclass(frozen=True, slots=True)
class Near:
    """A room in which every VM is pinned, most of them where they are."""

    room: NodeRoom
    moved_mib: int  # memory of the running VMs that migrate, and of the saved states that are copied


def price_mib(vjobs: Iterable[VJob]) -> int:
    """The most memory that may move so that these run: as much as to suspend them, and to resume them in place."""
    return 2 * sum(vjob.demand.memory_mib for vjob in vjobs)


def near(site: Site, vjobs: Iterable[VJob], search: Search | None = None, worth_mib: float = math.inf) -> Near | None:
    """Look for a room with all these vjobs in it, starting from where their VMs are; pinned vjobs stay there.

    Args:
        site: nodes, and pinned vjobs.
        vjobs: the vjobs that shall run.
        search: limits of the solver that is started where best fit fails; None: by the checks left in ``site.effort``.
        worth_mib: if best fit moves more than that, the solver looks for a room for which less moves.

    Returns:
        The room; None if none was found.
    """
    members, effort = list(vjobs), site.effort
    free = [vjob for vjob in members if vjob.name not in site.pinned]
    if not site.capacity.holds(sum((site.demands[vjob.name] for vjob in free), NOTHING)):
        return None
    effort.left -= sum(len(vjob.vms) for vjob in free)
    in_place = _in_place(site, free)
    if in_place is not None:
        return Near(_room(site, in_place, members), 0)
    # A vjob in parts (some of its VMs run, others wait) has no place that is worth keeping: it has to begin.
    locations, whole = site.configuration.locations, (VJobState.RUNNING, VJobState.SLEEPING)
    there = [vjob for vjob in free if site.configuration.state(vjob) in whole]
    current = {vm.name: locations[vm.name].node for vjob in there for vm in vjob.vms}
    items = items_of(free, site.configuration.apart)
    repair = Repair(items, nodes_left(site, site.pinned), {vm: node for vm, node in current.items() if node})
    found = repair.by_best_fit()
    if found is None or found.moved_mib > worth_mib:
        search = search or effort.next_check()
        better = None if search is None else repair.by_program(search, worth_mib)
        if better is not None and (found is None or better.moved_mib < found.moved_mib):
            found = better
    if found is None:
        return None
    pinned = {vjob.name: {vm.name: found.assignment[vm.name] for vm in vjob.vms} for vjob in free}
    return Near(_room(site, pinned, members), found.moved_mib)


def _room(site: Site, pinned: Mapping[str, Mapping[str, str]], members: Iterable[VJob]) -> NodeRoom:
    """The room with these members, which are all pinned, some of them by the site."""
    room = site.with_pinned({**site.pinned, **pinned}).pack(members)
    assert room is not None, "what is pinned is not packed"
    return room


def _in_place(site: Site, vjobs: Iterable[VJob]) -> dict[str, dict[str, str]] | None:
    """The places of these, by vjob and VM, if none has to move for another; None if that is not plain at once.

    Mostly it is plain, and nothing is to be repaired: all run, each is pinned where it runs if at all, all nodes are
    up and allowed, and none is overloaded.
    """
    configuration = site.configuration
    locations, running = configuration.locations, VMState.RUNNING
    for places in site.pinned.values():
        if any(locations[vm].state is not running or locations[vm].node != node for vm, node in places.items()):
            return None
    found: dict[str, dict[str, str]] = {}
    for vjob in vjobs:
        here = {}
        for vm in vjob.vms:
            at = locations[vm.name]
            if at.state is not running or at.node is None:
                return None
            here[vm.name] = at.node
        if not all(node in site.up and vjob.allows(node) for node in set(here.values())):
            return None
        found[vjob.name] = here
    return None if configuration.overloaded() else found


def room_for(site: Site, vjobs: Iterable[VJob]) -> NodeRoom | None:
    """A room with all these vjobs in it: packed from scratch in queue order, or else near where they are."""
    members = list(vjobs)
    room = site.pack(members)
    if room is not None:
        return room
    found = near(site, members)
    return None if found is None else found.room


def around_apart(room: NodeRoom, vjob: VJob) -> NodeRoom | None:
    """Room for one more, where VMs that need nodes of their own have First Fit go wrong; None if none is found.

    They stay where they are if they can, and First Fit may have others in the room that is empty. So this one is tried
    beside all where they are. Or they get the first nodes with room, which may be that of a vjob behind them. So all
    are tried near where they are, for a few such vjobs of a decision.
    """
    effort, apart = room.site.effort, room.site.configuration.apart
    if not apart or not room.free.holds(room.site.demands[vjob.name]):
        return None
    beside = beside_all(room, vjob)
    if beside is not None or not effort.around:
        return beside
    if vjob.name not in apart and not any(each.name in apart for each in _moved(room)):
        return None
    found = near(loose(room.site), [*room.members, vjob])
    effort.around -= found is None
    return None if found is None else found.room


def beside_all(room: NodeRoom, vjob: VJob) -> NodeRoom | None:
    """Room for one more beside all where they are, or near that; None if First Fit has nobody elsewhere."""
    if room.present is None:
        moves = any(vm.name in room.site.configuration.homes for each in _moved(room) for vm in each.vms)
        found = near(loose(room.site), room.members) if moves else None
        room.present = room if found is None else found.room
    beside = room.present
    if beside is room or not beside.append(vjob):
        return None
    room.present = None
    return beside


def _moved(room: NodeRoom) -> list[VJob]:
    """The vjobs that First Fit has elsewhere than where they are, or that are nowhere yet."""
    homes = room.site.configuration.homes
    return [vjob for vjob in room.packed if any(homes.get(vm.name) != room.placement[vm.name] for vm in vjob.vms)]


class RoomBesideAll:
    """Implements ``Room`` by the room of nodes; one without room by First Fit is tried by ``beside_all``."""

    def __init__(self, room: NodeRoom) -> None:
        """``room``: the vjobs that run; it is changed, and ``room`` of this object is the one that counts."""
        self.room = self._first = room
        self._before: NodeRoom | None = None  # the room before the last ``add``, if that has gone to another one
        self._present: NodeRoom | None = None  # that of the room before the last ``add``

    @property
    def placement(self) -> Mapping[str, str]:
        """The places of those that run."""
        return self.room.placement

    def lack(self, vjob: VJob, where: str) -> Reason:
        """The reason why there is no room for a vjob; ``where``: see ``no_room``."""
        return no_room(vjob, self.room, where)

    @property
    def by_halves(self) -> bool:
        """See ``Room``."""
        return self.room.by_halves

    def add(self, item: VJob) -> bool:
        """See ``Room``."""
        self._before, self._present = None, self.room.present
        if self.room.add(item):
            return True
        apart, free = self.room.site.configuration.apart, self.room.free
        fits = apart and free.holds(self.room.site.demands[item.name])
        found = beside_all(self.room, item) if fits else None
        if found is not None:
            self._before, self.room = self.room, found
        return found is not None

    def discard(self, item: VJob) -> None:
        """See ``Room``."""
        self.room.discard(item)
        if self._before is None:
            self.room.present = self._present
        else:
            self._before.present = self.room
            self.room, self._before = self._before, None

    def anew(self, items: Iterable[VJob]) -> NodeRoom | None:
        """See ``Room``; from scratch, wherever they have been found a place now."""
        return self._first.anew(items)

    def later(self, items: Iterable[VJob], newest: VJob | None = None) -> Room[VJob] | None:
        """See ``Room``; from scratch, wherever they have been found a place now."""
        return self._first.later(items, newest)


def loose(site: Site) -> Site:
    """The same site; pinned are only vjobs that may be nowhere else, or for which no packing finds a place."""
    fixed = staying(site.configuration).keys() | site.in_place
    return site.with_pinned({name: places for name, places in site.pinned.items() if name in fixed})


def staying(configuration: Configuration) -> dict[str, dict[str, str]]:
    """The places of the vjobs that run on, and may be nowhere else: all others are packed around them."""
    found = {}
    for vjob in configuration.vjobs:
        if vjob.preemptible and not vjob.in_transit:
            continue
        only = confined_to(vjob.rules)
        if only is None:
            continue
        places = {vm.name: configuration.locations[vm.name] for vm in vjob.vms}
        if all(at.state is VMState.RUNNING for at in places.values()):
            here = {name: at.node for name, at in places.items() if at.node is not None}
            # The VMs of a vjob in transit stay, each on its node, and so do those that cannot move; others may change
            # places.
            if only == set(here.values()) and (vjob.in_transit or vjob.anchored or len(only) == 1):
                found[vjob.name] = here
    return found


def nodes_left(site: Site, pinned: Mapping[str, Mapping[str, str]]) -> list[Node]:
    """The nodes that are up, with the resources that pinned VMs leave; below 0 on nodes that these overload."""
    vm_by_name = site.configuration.vm_by_name
    taken: dict[str, Resources] = {}
    for places in pinned.values():
        for vm, node in places.items():
            taken[node] = taken.get(node, NOTHING) + vm_by_name[vm].demand
    return [replace(node, capacity=node.capacity - taken.get(node.name, NOTHING)) for node in site.up.values()]
