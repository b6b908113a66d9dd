"""Mixed queues: vjobs that may not be preempted by FCFS + EASY, the others by RJSP around them; and no thrashing.

What protects a cluster from switching to and fro is part of the decision (docs/decisions/0010):

- a vjob that was started or resumed a moment ago is exempt from suspension;
- suspending some so that another one runs must pay for itself, unless that one is of a higher tier, has waited longer
  than the patience, or is the non-preemptible head of the queue;
- a preemptible vjob fills a hole that a reservation ends only if the hole is worth more than the switch;
- with constant demands, what was decided is not decided otherwise at once: ``mixed`` applies its decision to the
  configuration and decides again until nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rmsplugin.decision.admission import Draft
from rmsplugin.decision.awaiting import keep_or_await
from rmsplugin.decision.keeping import Kept
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import sentence
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import Effort
from rmsplugin.decision.switching import KEPT, Round
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import TERMINATED, WAITING, Location, running_on, sleeping_on
from rmsplugin.model.vjob import VJobState


def mixed(configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide; then, as if that were done, decide again until nothing changes.

    Each move starts a vjob at the expense of those behind it only, so that the set that runs grows in the order of the
    queue. Should it not settle in ``parameters.rounds`` rounds, what runs is kept and nothing starts.
    """
    original = {vjob.name: configuration.state(vjob) for vjob in configuration.vjobs}
    before: Mapping[str, VJobState] = original
    reasons: dict[str, Reason] = {}
    current = configuration
    effort = Effort(parameters.packed_vms, parameters.exact_checks, parameters.search)
    for _ in range(parameters.rounds):
        decision = _once(current, parameters, effort)
        if isinstance(decision, Infeasible):
            return decision
        for name, state in decision.states.items():
            # One that was moved in an earlier round keeps the reason of its move.
            if state is not before[name] or state is original[name]:
                reasons[name] = decision.reasons[name]
        if decision.states == before:
            words = sentence(configuration, decision.states, reasons)
            return replace(decision, reasons=reasons, sentence=words)
        before = decision.states
        current = applied(configuration, decision)
    return _once(configuration, parameters, effort, start=False)


def applied(configuration: Configuration, decision: Decision) -> Configuration:
    """The configuration as if a decision were carried out this very moment, with its sample placement.

    Who changes its state has been in the new one for 0 s; of whom nobody knows how long it is in its state, nobody
    does afterwards. What a lost vjob leaves is not stopped: it begins anew in a later cycle.
    """
    locations: dict[str, Location] = {}
    vjobs = []
    for vjob in configuration.vjobs:
        state = decision.states[vjob.name]
        if state is VJobState.WAITING and all(configuration.locations[vm.name] is WAITING for vm in vjob.vms):
            vjobs.append(vjob)  # most VMs may be of those that wait
            continue
        if decision.reasons[vjob.name].code is not ReasonCode.LOST:
            for vm in vjob.vms:
                now = configuration.locations[vm.name]
                locations[vm.name] = _location(state, now, decision.placement.get(vm.name))
        moved = state is not configuration.state(vjob)
        state_s = 0.0 if moved and vjob.state_s is not None else vjob.state_s
        lost = vjob.lost and state is not VJobState.RUNNING
        vjobs.append(replace(vjob, state_s=state_s, lost=lost) if moved else vjob)
    return Configuration(configuration.nodes, tuple(vjobs), {**configuration.locations, **locations}, checked=True)


def _location(state: VJobState, now: Location, host: str | None) -> Location:
    match state:
        case VJobState.RUNNING:
            return running_on(host) if host is not None else now
        case VJobState.SLEEPING:
            return sleeping_on(now.node) if now.node is not None else now
        case VJobState.TERMINATED:
            return TERMINATED
        case _:
            return WAITING


def _once(
    configuration: Configuration, parameters: Parameters, effort: Effort, start: bool = True
) -> Decision | Infeasible:
    """One round: keep what runs, as far as there is room; then let the ready ones start, if ``start``."""
    draft, kept = keep_or_await(configuration, parameters, effort)
    if isinstance(kept, Infeasible):
        return kept
    running = kept.room.names
    for vjob in draft.others:
        if vjob.name in running:
            draft.runs(vjob, KEPT)
    if not start:
        words = f"does not start: the decision did not settle in {parameters.rounds} rounds"
        for vjob in draft.others:
            if vjob.name not in running:
                draft.stays_out(vjob, Reason(ReasonCode.UNSETTLED, words, {"rounds": parameters.rounds}))
        return draft.decision("mixed", (kept.near or kept.room).placement)
    return _started(draft, kept, parameters)


def _started(draft: Draft, kept: Kept, parameters: Parameters) -> Decision:
    """Let the ready ones start; if that asks for too many migrations, only beside those that run where these are."""
    walk = Round(draft.copy(), kept.room, parameters, kept.moved_mib)
    walk.walk()
    if kept.near is not None and walk.room.names == kept.near.names:
        placement: Mapping[str, str] | None = kept.near.placement  # nobody came, nobody went
    else:
        placement = walk.placement()
    if placement is None and kept.near is not None and not draft.effort.is_spent:
        walk = Round(draft.copy(), kept.near, parameters, kept.moved_mib, near_only=True)
        walk.walk()
        placement = walk.placement()
    return walk.draft.decision("mixed", placement or walk.room.placement)
