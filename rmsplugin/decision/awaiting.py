"""Awaiting: no vjob is suspended for CPUs that become free anyway when the operations under way have ended.

- A vjob that is being migrated is not suspended before it has arrived.
- A vjob that is being suspended, or migrated away, has its CPUs until it has gone.

The decision which vjob makes way is made as if all had arrived, or gone. Vjobs that would stay then do stay, and share
the CPUs of their nodes until it is so. They share no memory: running vjobs have their memory where they are.
"""

from __future__ import annotations

from dataclasses import replace

from rmsplugin.decision.admission import Draft, settle, where_it_is
from rmsplugin.decision.keeping import Kept, keep_running
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.preferring import CROWDED_OUT
from rmsplugin.decision.reasons import seconds, unless_preemptible
from rmsplugin.decision.result import Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import Effort, NodeRoom, Site
from rmsplugin.decision.switching import exempt_for_s
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob


def keep_or_await(
    configuration: Configuration, parameters: Parameters, effort: Effort, at_any_price: bool = False
) -> tuple[Draft, Kept | Infeasible]:
    """Keep running vjobs as far as there is room; await a vjob in transit that will make room when it has arrived.

    Args:
        configuration: nodes, queue and locations.
        parameters: the rules of exemption from suspension.
        effort: the bound on the number of trials.
        at_any_price: no vjob that migrations keep is suspended, however much they move.

    Returns:
        The vjobs left to the policy, and those of them that go on running.
    """
    draft = _settled(configuration, parameters, effort)
    kept = keep_running(draft, parameters, at_any_price)
    if isinstance(kept, Infeasible):
        return draft, kept
    arriving = [vjob for vjob in draft.musts if vjob.yields_later and unless_exempt(vjob, parameters) is None]
    leaving = [vjob for vjob in draft.musts if vjob.leaves]
    going = _going(draft, kept)
    if not going or not (arriving or leaving):
        return draft, kept
    then = _settled(_ended(configuration, arriving, leaving), parameters, effort)
    kept_then = keep_running(then, parameters, at_any_price)
    if isinstance(kept_then, Infeasible):
        return draft, kept
    going_then = _going(then, kept_then)
    if going <= going_then:
        return draft, kept
    draft = _settled(configuration, parameters, effort)
    for vjob in draft.preferred():
        draft.leave_to_policy(vjob, CROWDED_OUT)
    reason = _awaits([*(vjob for vjob in arriving if vjob.name in going_then), *leaving])
    stay = [vjob for vjob in draft.others if draft.is_running(vjob) and vjob.name not in going_then]
    for vjob in stay:
        draft.runs(vjob, reason)
    draft.others = [vjob for vjob in draft.others if vjob not in stay]
    draft.musts += stay
    return draft, Kept(_where_all_are(draft))


def _awaits(awaited: list[VJob]) -> Reason:
    # A vjob in transit has a name for each of its nodes.
    listed = " and ".join(dict.fromkeys(vjob.name.partition("@")[0] for vjob in awaited))
    words = f"runs on, and shares its CPUs until {listed}, on which something is under way, has made way or can"
    return Reason(ReasonCode.AWAITS, words, {"awaited": listed})


def _settled(configuration: Configuration, parameters: Parameters, effort: Effort) -> Draft:
    return settle(configuration, lambda vjob: unless_exempt(vjob, parameters), effort)


def _where_all_are(draft: Draft) -> NodeRoom:
    """The room of the vjobs that must run, each where it is, even if that overloads its node."""
    bare = Site(draft.configuration, {}, effort=draft.effort)
    here = {vjob.name: where_it_is(bare, vjob) for vjob in draft.musts}
    room = replace(bare, pinned=here, in_place=frozenset(here)).pack(draft.musts)
    assert room is not None, "what is pinned is not packed"
    return room


def _going(draft: Draft, kept: Kept) -> set[str]:
    """The names of the running vjobs that are not kept."""
    staying = kept.room.names
    return {vjob.name for vjob in draft.others if draft.is_running(vjob)} - staying


def _ended(configuration: Configuration, arriving: list[VJob], leaving: list[VJob]) -> Configuration:
    """The configuration as if the first had arrived, each where it is or will be, and the second had gone."""
    arrived, gone = {vjob.name for vjob in arriving}, {vjob.name for vjob in leaving}
    vjobs = tuple(
        replace(vjob, in_transit=False, preemptible=True) if vjob.name in arrived else vjob
        for vjob in configuration.vjobs
        if vjob.name not in gone
    )
    return Configuration(configuration.nodes, vjobs, configuration.locations, checked=True)


def unless_exempt(vjob: VJob, parameters: Parameters) -> Reason | None:
    """The reason why a running vjob goes on running: it may not be preempted, or has begun to run only just now."""
    if not vjob.yields_later and (firm := unless_preemptible(vjob)) is not None:
        return firm
    left_s = exempt_for_s(vjob, parameters)
    if left_s == 0 or vjob.state_s is None:
        return None
    words = f"was started or resumed {seconds(vjob.state_s)} ago, exempt from suspension for {seconds(left_s)} more"
    return Reason(ReasonCode.EXEMPT, words, {"exempt_s": left_s})
