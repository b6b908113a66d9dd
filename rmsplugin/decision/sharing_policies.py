"""Load sharing and virtual reconfiguration as policies: who runs beside whom, by what is seen of VMs (seed 004).

- Who runs goes on running where it is, or where migrations make room for it, however much memory they move. Only where
  none do, the last of the queue are suspended until the others have room: paging, which the seed resorts to, is none.
- Who waits or sleeps starts beside what runs where that runs: nobody is migrated, and nobody suspended, for it. In the
  order of the queue, all VMs of a vjob or none, each on the least loaded node with room; smaller ones may pass.

Of placements that are as cheap to reach, the planner takes this one: it spreads arrivals, as load sharing does.

The seed bounds how many VMs share the CPUs of a node (its CPU threshold): here that is what they demand of them. Both
policies decide alike. Virtual reconfiguration differs by what was done before it was asked: a node that is reserved
takes nobody but for whom it is reserved, see ``rmsplugin.decision.policies.RESERVES``. That is done as in the seed,
without a look at what else would be cheaper.
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
from rmsplugin.model.elements import VJob


def load_sharing(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide by load sharing."""
    return _shared("load-sharing", configuration, parameters)


def v_reconfiguration(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide by load sharing, beside nodes that may be reserved."""
    return _shared("v-reconfiguration", configuration, parameters)


def _shared(name: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    effort = Effort(parameters.packed_vms, parameters.exact_checks, parameters.search)
    draft, kept = keep_or_await(configuration, parameters, effort, at_any_price=True)
    if isinstance(kept, Infeasible):
        return kept
    room = kept.near or kept.room
    _arrive(draft, room)
    return replace(draft.decision(name, room.placement), sample_first=True)


def _arrive(draft: Draft, room: NodeRoom) -> None:
    """Decide all that were left to the policy; who starts is in ``room`` afterwards.

    Who arrived makes another node the least loaded one, so that one ahead of it may find room that found none before.
    It would start in the next cycle: it is asked again at once.
    """
    kept = room.names
    # Who was to be suspended, and has room all the same, comes before all that wait.
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
