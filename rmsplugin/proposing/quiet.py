"""Quiet: windows of time in which no running vjob makes way or moves, unless its node has to be left.

Moves of VMs are forced on a node that is not up, and on one that is short of memory: they happen as always. Requests
of users and operators, and the end of jobs, never come here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from rmsplugin.decision.result import Decision, Reason, ReasonCode
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import NodeState, VJob
from rmsplugin.model.rules import fenced
from rmsplugin.model.vjob import VJobState
from rmsplugin.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class Quiet:
    """A window that has begun.

    Attributes:
        sentence: its end, as users are told: "quiet hours until 06:00".
        starts: whether vjobs start, and are resumed, if there is room without any change.
    """

    sentence: str
    starts: bool = True


def kept_still(source: Configuration, real_mib: Mapping[str, int]) -> frozenset[str]:
    """The names of the running vjobs that nothing forces to leave.

    Args:
        source: nodes, vjobs, and the location of each VM.
        real_mib: by node, all the memory that its VMs may take; a missing node has its capacity.
    """
    short = {
        node.name
        for node in source.nodes
        if source.used[node.name].memory_mib > max(node.capacity.memory_mib, real_mib.get(node.name, 0))
    }
    forced = short | {node.name for node in source.nodes if node.state is not NodeState.UP}
    return frozenset(
        vjob.name
        for vjob in source.vjobs
        if source.state(vjob) is VJobState.RUNNING
        and vjob.target is None
        and not (vjob.lost or vjob.in_transit)
        and forced.isdisjoint(_hosts(source, vjob))
    )


def quietly(source: Configuration, quiet: Quiet, still: Collection[str]) -> Configuration:
    """The same configuration; vjobs that are kept still may not be suspended, and may be nowhere else.

    If no vjob may start, all others have to stay in their present states, too.
    """
    return replace(source, vjobs=tuple(_quietly(source, quiet, still, vjob) for vjob in source.vjobs), checked=True)


def _quietly(source: Configuration, quiet: Quiet, still: Collection[str], vjob: VJob) -> VJob:
    if vjob.name in still:
        return replace(vjob, preemptible=False, rules=fenced(vjob.rules, frozenset(_hosts(source, vjob))))
    state = source.state(vjob)
    if not quiet.starts and vjob.target is None and not vjob.lost and state in _STAY:
        return replace(vjob, target=state)
    return vjob


_STAY = (VJobState.WAITING, VJobState.SLEEPING, VJobState.PAUSED)


def _hosts(source: Configuration, vjob: VJob) -> set[str]:
    return {at.node for vm in vjob.vms if (at := source.locations[vm.name]).node is not None}


def disturbed(source: Configuration, plan: Plan, still: Collection[str]) -> bool:
    """Whether a plan acts on a vjob that is kept still: VMs of one on several nodes could change places."""
    return any(source.vjob_by_vm[action.vm.name].name in still for action in plan.actions())


def explained(source: Configuration, decision: Decision, quiet: Quiet, still: Collection[str]) -> Decision:
    """The decision with the quiet hours in the reasons of all vjobs that they keep where they are."""
    reasons = {name: _explained(source, decision, quiet, still, name) for name in decision.reasons}
    return replace(decision, reasons=reasons)


def _explained(source: Configuration, decision: Decision, quiet: Quiet, still: Collection[str], name: str) -> Reason:
    reason, state = decision.reasons[name], decision.states[name]
    if name in still:
        return Reason(ReasonCode.QUIET, f"{quiet.sentence}: it runs, and stays where it is")
    if state not in _STAY:
        return reason
    if not quiet.starts and reason.code is ReasonCode.TARGET:
        return Reason(ReasonCode.QUIET, f"{quiet.sentence}: no vjob starts, or is resumed")
    return replace(reason, sentence=f"{reason.sentence}; {quiet.sentence}: nobody makes way")
