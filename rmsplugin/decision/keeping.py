"""Keeping: chooses the running vjobs that go on running, and finds room for them.

First all of them are tried where they are; then all of them, with migrations. Only then some have to go.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmsplugin.decision.admission import Draft, admit
from rmsplugin.decision.near import Near, loose, near, nodes_left, price_mib, room_for, staying
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import no_room
from rmsplugin.decision.result import Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import NodeRoom, Site
from rmsplugin.model.elements import VJob, VMState
from rmsplugin.model.resources import NOTHING


@dataclass(frozen=True, slots=True)
class Kept:
    """Room for the vjobs that go on running.

    ``room`` has them packed from scratch if they pack that way, so that it depends only on the vjobs in it; else it has
    them near where they are.
    """

    room: NodeRoom
    near: NodeRoom | None = None  # the same vjobs near where they are, if that is known
    moved_mib: int = 0  # memory that leaves its node in ``near``


def keep_running(draft: Draft, parameters: Parameters, at_any_price: bool = False) -> Kept | Infeasible:
    """Keep all running vjobs if there is room, at no more cost than to suspend some; else as many as fit.

    Each suspended vjob gets its reason in ``draft``. With ``at_any_price``, none that migrations keep is suspended.
    """
    running = [*draft.musts, *(vjob for vjob in draft.others if draft.is_running(vjob))]
    site = Site(draft.configuration, staying(draft.configuration), effort=draft.effort)
    found = near(site, running)
    if found is not None:
        return _kept(site, found if at_any_price else _unless_dearer(draft, site, running, found))
    room = site.pack(running)
    return Kept(room) if room is not None else _as_many_as_fit(draft, parameters)


def _kept(site: Site, found: Near) -> Kept:
    packed = site.pack(found.room.members)
    return Kept(packed or found.room, found.room, found.moved_mib)


def _unless_dearer(draft: Draft, site: Site, running: list[VJob], found: Near) -> Near:
    """Keep all running vjobs; but let some go if that costs less than the migrations that keep them."""
    gone = _in_the_way(site, running, {vjob.name for vjob in draft.musts}) if found.moved_mib else None
    if not gone or found.moved_mib <= price_mib(gone):
        return found
    found = near(site, running, worth_mib=price_mib(gone)) or found
    if found.moved_mib <= price_mib(gone):
        return found
    rest = near(site, [vjob for vjob in running if vjob not in gone])
    if rest is None:
        return found
    for vjob in gone:
        words = (
            f"to keep it, {found.moved_mib} MiB would have to migrate: that costs more than to suspend and resume it"
        )
        draft.stays_out(vjob, Reason(ReasonCode.DOES_NOT_PAY, words, {"moved_mib": found.moved_mib}))
    return rest


def _in_the_way(site: Site, running: list[VJob], spared: set[str]) -> list[VJob] | None:
    """The vjobs that would be suspended, from the end of the queue, if none migrated; None if that is not enough."""
    locations = site.configuration.locations
    free = {node.name: node.capacity for node in nodes_left(site, site.pinned)}
    loose_ones = [vjob for vjob in site.in_order(running) if vjob.name not in site.pinned]
    for vjob in loose_ones:
        for vm in vjob.vms:
            node = locations[vm.name].node
            if node in free:
                free[node] -= vm.demand
    gone = []
    for vjob in reversed(loose_ones):
        places = [(vm, locations[vm.name]) for vm in vjob.vms]
        if all(
            at.state is VMState.RUNNING and at.node in free and vjob.allows(at.node) and free[at.node].holds(NOTHING)
            for _, at in places
        ):
            continue
        if vjob.name in spared:
            return None
        gone.append(vjob)
        for vm, at in places:
            if at.node in free:
                free[at.node] += vm.demand
    return gone


def _as_many_as_fit(draft: Draft, parameters: Parameters) -> Kept | Infeasible:
    """Keep those that must stay where not all can, and the others from the head of the queue while there is room."""
    admitted = admit(draft, parameters)
    if isinstance(admitted, Infeasible):
        return admitted
    site, room = loose(admitted.site), admitted
    others = [vjob for vjob in draft.others if draft.is_running(vjob)]
    stay, go = 0, len(others) + 1
    while go - stay > 1:  # a search by halves: where fewer have no room, more hardly ever have
        middle = (stay + go) // 2
        trial = room_for(site, [*draft.musts, *others[:middle]])
        if trial is None:
            go = middle
        else:
            stay, room = middle, trial
    for vjob in others[stay:]:
        more = None if draft.effort.is_spent else room_for(site, [*room.members, vjob])
        if more is None:
            draft.stays_out(vjob, no_room(vjob, room))
        else:
            room = more
    found = near(site, room.members)
    return Kept(room) if found is None else _kept(site, found)
