"""Load sharing and virtual reconfiguration as policies: which vjobs run beside which, by observed demand (seed 004).

- A running vjob goes on running where it is, or where migrations make room for it, however much memory they move. A VM
  that migrates goes to the least loaded node with room. Only if no migrations make room, the last of the queue are
  suspended until the others have room; the seed resorts to paging, not we.
- A vjob that waits or sleeps starts beside the running ones where these run: none is migrated or suspended for it. The
  order is that of the queue, all VMs of a vjob or none, each on the least loaded node with room; smaller ones may pass.

Of placements that are as cheap to reach, the planner takes this one: it spreads arrivals, as load sharing does.

The seed bounds the number of VMs that share the CPUs of a node (its CPU threshold); here their CPU demand is bounded.
Both policies decide alike. Virtual reconfiguration differs by the stage before it: a reserved node takes only the VM
for which it is reserved, see ``rmsplugin.decision.traits.RESERVES``. Nodes are reserved as in the seed,
without a look at cheaper ways.
"""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.decision.admission import Draft
from rmsplugin.decision.awaiting import keep_or_await
from rmsplugin.decision.least_loaded import LeastLoaded
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import fits, no_room
from rmsplugin.decision.result import Decision, Infeasible
from rmsplugin.decision.room import Effort, NodeRoom
from rmsplugin.decision.switching import KEPT
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, VJob, VMState
from rmsplugin.packing.ffd import decreasing


def load_sharing(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide by load sharing."""
    return _shared("load-sharing", configuration, parameters)


def v_reconfiguration(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide by load sharing, beside nodes that may be reserved."""
    return _shared("v-reconfiguration", configuration, parameters)


def _shared(name: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    effort = Effort.within(parameters)
    draft, kept = keep_or_await(configuration, parameters, effort, at_any_price=True)
    if isinstance(kept, Infeasible):
        return kept
    room = _to_the_lightest(configuration, kept.near or kept.room)
    _arrive(draft, room)
    return replace(draft.decision(name, room.placement), sample_first=True)


def _to_the_lightest(configuration: Configuration, room: NodeRoom) -> NodeRoom:
    """The room with those VMs that have to migrate on the least loaded nodes, the largest first."""
    moved: list[tuple[VM, VJob, str]] = []
    for vjob in room.members:
        for vm in vjob.vms:
            at = configuration.locations[vm.name]
            if at.state is VMState.RUNNING and at.node is not None and at.node != room.placement[vm.name]:
                moved.append((vm, vjob, at.node))
    if not moved:
        return room
    nodes, placement = LeastLoaded(room), dict(room.placement)
    for vm, vjob, origin in sorted(moved, key=lambda each: decreasing(each[0])):
        placement[vm.name] = nodes.replace(vjob, vm, placement[vm.name], origin)
    spread = NodeRoom(room.site)
    for vjob in room.members:
        spread.reserve(vjob, {vm.name: placement[vm.name] for vm in vjob.vms})
    return spread


def _arrive(draft: Draft, room: NodeRoom) -> None:
    """Decide all that were left to the policy; the starting vjobs are in ``room`` afterwards.

    An arrival makes another node the least loaded one, so that a vjob ahead of it may find room that found none before.
    It would start in the next cycle: so it is asked again at once.
    """
    kept = room.names
    # A vjob that was to be suspended, and has room all the same, comes before all that wait.
    left = sorted(draft.others, key=lambda each: not draft.is_running(each))
    for vjob in left:
        if vjob.name in kept:
            draft.runs(vjob, KEPT)
    left = [vjob for vjob in left if vjob.name not in kept]
    while True:
        nodes, out = LeastLoaded(room), list[VJob]()
        for vjob in left:
            placed = nodes.place(vjob)
            if placed is None:
                out.append(vjob)
                if vjob.name not in draft.reasons:
                    draft.stays_out(vjob, no_room(vjob, room, "free beside what runs, without a migration"))
                continue
            room.reserve(vjob, placed)
            how = "which fit beside what runs, without a migration, on the least loaded nodes"
            draft.runs(vjob, KEPT if draft.is_running(vjob) else fits(vjob, how=how))
        if not out or len(out) == len(left):
            return
        left = out
