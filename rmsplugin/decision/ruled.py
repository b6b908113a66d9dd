"""Ruled: decisions that obey the rules about VMs beside each other, whatever policy makes them.

A policy places vjob by vjob, and knows no such rule. So its decision is tried: those that shall run are placed by the
rules, too (``rmsplugin.decision.ruled_trial``). A vjob without a place is fixed to stay out, with the rule as the
reason. Then the policy decides once more, for the resources that are left may suit another.

Policies that suspend nobody mostly ask the rules as they choose (``rmsplugin.decision.ruled_room``): their first
decision obeys all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rmsplugin.decision.admission import out_of
from rmsplugin.decision.later import NOT_NOW, is_barred_now
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses, may_pause
from rmsplugin.decision.reasons import refused_by_rules, sentence, starts_within
from rmsplugin.decision.result import Decision, Infeasible, Reason
from rmsplugin.decision.ruled_trial import Trial
from rmsplugin.decision.traits import Suspends
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VJob
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.ruled_fit import Obstacle
from rmsplugin.packing.search import Search

#: The most decisions, one after the other. Those that find no place after the last one stay out, and none fills in.
_ROUNDS = 6

#: The part of the limits of one decision that the next one has: all searches together take twice those of the first.
_LATER = 0.5

#: The policies that may reserve a start for a vjob that a rule keeps out.
_RESERVING = frozenset({"easy", "easy-preempt", "conservative", "mixed"})

#: The policies by which all run that find room.
_BY_ROOM = frozenset({"rjsp", "rjsp-exact"})

_READY = (VJobState.WAITING, VJobState.SLEEPING)


def decide_by_rules(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide the state of each vjob by a policy, so that all rules can be obeyed; see ``decide_with_pauses``.

    Raises:
        ValueError: there is no such policy.
    """
    if not configuration.joint:
        return decide_with_pauses(policy, configuration, parameters)
    try:
        return _decide_in_rounds(policy, configuration, parameters)
    finally:
        configuration.kept.clear()


def _decide_in_rounds(policy: str, configuration: Configuration, parameters: Parameters) -> Decision | Infeasible:
    """Decide again until all have a place by the rules, or stay out; what one round packs is kept for the next."""
    configuration.kept.clear()
    stated, reasons, trial = configuration, dict[str, Reason](), None
    pauses, suspends = may_pause(configuration, parameters), Suspends.of(policy)
    limited = parameters
    for left in reversed(range(_ROUNDS)):
        found = decide_with_pauses(policy, stated, limited)
        if isinstance(found, Infeasible):
            return found
        trial = Trial(stated, found, _search(limited), trial, suspends=suspends)
        out = trial.out()
        for vjob, obstacle in out.items():
            reason = refused_by_rules(vjob, obstacle)
            if vjob.target is VJobState.RUNNING:
                return Infeasible(f"vjob {vjob.name!r} cannot run, as its target demands: it {reason}")
            reasons[vjob.name] = reason
        if not out or not left or _fills_nobody_in(policy, stated, found, out, pauses=pauses):
            return _told(configuration, found, trial.placement, out, reasons)
        stated = _kept_out(stated, {vjob.name for vjob in out}, policy)
        limited = replace(limited, search=limited.search.part(_LATER))
    raise AssertionError("the last round is decided")


def _search(parameters: Parameters) -> Search | None:
    """The limits of the program that a trial may ask; None: it asks none."""
    return parameters.search_of_one_check if parameters.exact_checks else None


def _fills_nobody_in(
    policy: str, configuration: Configuration, decision: Decision, out: Iterable[VJob], *, pauses: bool
) -> bool:
    """Whether another decision would be the same: all others run, and none without a place may be paused instead."""
    if policy not in _BY_ROOM or any(configuration.state(vjob) not in _READY for vjob in out if pauses):
        return False
    names = {vjob.name for vjob in out}
    runs = (VJobState.RUNNING, VJobState.TERMINATED)
    return all(state in runs for name, state in decision.states.items() if name not in names)


def _kept_out(configuration: Configuration, names: set[str], policy: str) -> Configuration:
    """The configuration in which these vjobs do not run: fixed to stay out, or without a node now."""

    def out(vjob: VJob) -> VJob:
        state = configuration.state(vjob)
        left_to_policy = vjob.target is None and vjob.preference is None
        if policy in _RESERVING and left_to_policy and state in _READY and not is_barred_now(vjob):
            return replace(vjob, rules=(*vjob.rules, NOT_NOW))
        return replace(vjob, target=out_of(state))

    return configuration.with_vjobs([out(vjob) if vjob.name in names else vjob for vjob in configuration.vjobs])


def _told(
    configuration: Configuration,
    decision: Decision,
    placement: Mapping[str, str],
    out: Mapping[VJob, Obstacle],
    reasons: Mapping[str, Reason],
) -> Decision:
    """The decision with the places and the reasons of the rules; ``out``: those that find no place, and run not."""
    states = dict(decision.states)
    for vjob in out:
        states[vjob.name] = out_of(configuration.state(vjob))
    told = {name: _with_its_time(reasons.get(name), reason) for name, reason in decision.reasons.items()}
    words = sentence(configuration, states, told)
    return replace(decision, states=states, reasons=told, placement=dict(placement), sentence=words)


def _with_its_time(ruled: Reason | None, decided: Reason) -> Reason:
    """The reason of a rule, if there is one, with the time for which the policy has reserved a start."""
    if ruled is None:
        return decided
    shadow_s = decided.numbers.get("shadow_s")
    if not isinstance(shadow_s, (int, float)) or "head" in decided.numbers:
        return ruled
    words = f"{ruled.sentence}; {starts_within(shadow_s)}"
    return Reason(ruled.code, words, {**ruled.numbers, "shadow_s": shadow_s})
