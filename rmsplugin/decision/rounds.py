"""Rounds: a decision that stands: it is applied, and decided again, until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from rmsplugin.decision.admission import Draft
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.reasons import sentence
from rmsplugin.decision.result import Decision, Infeasible, Reason, ReasonCode
from rmsplugin.decision.room import Effort
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import TERMINATED, WAITING, Location, VMState, running_on, sleeping_on
from rmsplugin.model.vjob import VJobState

#: One round: a decision about a configuration, in which no further vjob starts if the last argument is False.
Once = Callable[[Configuration, Effort, bool], Decision | Infeasible]


def in_rounds(configuration: Configuration, parameters: Parameters, once: Once) -> Decision | Infeasible:
    """Decide; then, as if that were done, decide again until nothing changes.

    Each move starts a vjob at the expense of those behind it only, so that the set that runs grows in the order of the
    queue. If it does not settle in ``parameters.rounds`` rounds, running vjobs are kept and none starts.
    """
    original = {vjob.name: configuration.state(vjob) for vjob in configuration.vjobs}
    before: Mapping[str, VJobState] = original
    reasons: dict[str, Reason] = {}
    current = configuration
    effort = Effort.within(parameters)
    for _ in range(parameters.rounds):
        decision = once(current, effort, True)
        if isinstance(decision, Infeasible):
            return decision
        for name, state in decision.states.items():
            # A vjob that was moved in an earlier round keeps the reason of its move.
            if state is not before[name] or state is original[name]:
                reasons[name] = decision.reasons[name]
        if decision.states == before and not _wakes_the_rest(current, decision):
            words = sentence(configuration, decision.states, reasons)
            return replace(decision, reasons=reasons, sentence=words)
        before = decision.states
        current = applied(configuration, decision)
    return once(configuration, effort, False)


def _wakes_the_rest(current: Configuration, decision: Decision) -> bool:
    """Whether a vjob that counts as running is to run on, and VMs of it sleep: awake they may be too much."""
    asleep = (name for name, location in current.locations.items() if location.state is VMState.SLEEPING)
    vjobs = {vjob.name: vjob for vjob in (current.vjob_by_vm[name] for name in asleep)}
    run = VJobState.RUNNING
    return any(current.state(vjob) is run and decision.states[name] is run for name, vjob in vjobs.items())


def nobody_starts(draft: Draft, running: Collection[str], parameters: Parameters) -> None:
    """Decide for all remaining vjobs that do not run that they do not start: the decision did not settle."""
    words = f"does not start: the decision did not settle in {parameters.rounds} rounds"
    for vjob in draft.others:
        if vjob.name not in running:
            draft.stays_out(vjob, Reason(ReasonCode.UNSETTLED, words, {"rounds": parameters.rounds}))


def applied(configuration: Configuration, decision: Decision) -> Configuration:
    """The configuration as if a decision were carried out this very moment, with its sample placement.

    A vjob that changes its state has been in the new one for 0 s; a vjob with an unknown time in its state keeps it
    unknown. The remains of a lost vjob are not stopped: it begins anew in a later cycle.
    """
    locations: dict[str, Location] = {}
    vjobs = []
    for vjob in configuration.vjobs:
        state = decision.states[vjob.name]
        if state is VJobState.WAITING and all(configuration.locations[vm.name] is WAITING for vm in vjob.vms):
            vjobs.append(vjob)  # most VMs may be of waiting vjobs
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
