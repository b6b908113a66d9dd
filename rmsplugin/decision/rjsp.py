"""RJSP: the Running Job Selection Problem, which vjobs of the queue can run together now (RR-6929 section 3.2).

The queue in order; each vjob by First Fit Decreasing on the configuration built so far from empty nodes; if all its
VMs find a host it runs, else it sleeps (if it runs or sleeps now) or waits. The whole queue is always considered.
Vjobs that must run (not preemptible and running, or by their targets) are placed first.

``rjsp-exact`` goes beyond the paper: when FFD fails a vjob, an exact check may still find room for it and all that are
admitted already. The configuration built so far is then the exact packing. So ``rjsp-exact`` admits the same vjobs as
the paper's policy up to the first difference, which is one more.
"""

from __future__ import annotations

from rmsplugin.decision.admission import admit, settle
from rmsplugin.decision.exact import repack
from rmsplugin.decision.near import around_apart, loose, near
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import fits, no_room, unless_preemptible
from rmsplugin.decision.result import Decision, Infeasible, ReasonCode
from rmsplugin.decision.room import Effort, NodeRoom
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.resources import NOTHING


def rjsp(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Select as the paper does."""
    return _select("rjsp", configuration, parameters, exact_checks=None)


def rjsp_exact(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Select as the paper does, with an exact check for vjobs that FFD fails."""
    return _select("rjsp-exact", configuration, parameters, parameters.exact_checks)


def _select(
    name: str, configuration: Configuration, parameters: Parameters, exact_checks: int | None
) -> Decision | Infeasible:
    draft = settle(configuration, unless_preemptible, Effort.unbounded(parameters))
    room = admit(draft, parameters)
    if isinstance(room, Infeasible):
        return room
    for vjob in draft.others:
        if room.append(vjob):
            draft.runs(vjob, fits(vjob))
            continue
        found, why = around_apart(room, vjob), fits(vjob)
        if found is None and exact_checks and _may_fit(room, vjob):
            exact_checks -= 1
            found = repack(room.site, [*room.members, vjob], parameters.search_of_one_check)
            why = fits(vjob, ReasonCode.FITS_EXACTLY, "which only an exact packing fits beside those ahead")
        if found is None:
            draft.stays_out(vjob, no_room(vjob, room))
        else:
            room = found
            draft.runs(vjob, why)
    near_now = None if exact_checks is None else near(loose(room.site), room.members, parameters.search.part(0.5))
    return draft.decision(name, room.placement if near_now is None else near_now.room.placement)


def _may_fit(room: NodeRoom, vjob: VJob) -> bool:
    """Whether the sums allow it: all its demand is free somewhere, and its nodes, when empty, are large enough."""
    usable = [node.capacity for node in room.site.up.values() if vjob.allows(node.name)]
    return (
        room.free.holds(vjob.demand)
        and sum(usable, NOTHING).holds(vjob.demand)
        and all(any(size.holds(vm.demand) for size in usable) for vm in vjob.vms)
    )
