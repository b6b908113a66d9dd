"""Load sharing by name, over generated clusters: nothing moves back and forth, and who runs is kept if it can be."""

from __future__ import annotations

from dataclasses import replace

from examples import few
from hypothesis import given, settings
from properties.test_decision import SEARCH, queues
from properties.test_nobody_needlessly_suspended import contended, grown, moved_mib

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision, ReasonCode
from rmsplugin.decision.rounds import applied
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

POLICY = "load-sharing"
QUICK = Search(time_limit_s=3600, deterministic_limit=0.05)
DECIDING = Parameters(search=SEARCH, exempt_s=0.0)


def decided(configuration: Configuration) -> Decision | None:
    found = decide(POLICY, configuration, DECIDING)
    return found if isinstance(found, Decision) else None


def begins_anew(decision: Decision) -> bool:
    """What is lost does so in the next cycle: that is new."""
    return any(reason.code is ReasonCode.LOST for reason in decision.reasons.values())


@settings(max_examples=few(400))
@given(queues())
def test_nothing_new_is_decided_when_the_decision_was_applied(configuration: Configuration) -> None:
    decision = decided(configuration)
    if decision is None or begins_anew(decision):
        return
    again = decided(applied(configuration, decision))
    assert again is not None
    assert again.states == decision.states
    assert again.sentence.endswith(": nothing changes")


@settings(max_examples=few(200), deadline=None)
@given(queues())
def test_after_the_first_cycle_nobody_is_suspended_and_nothing_moves_unless_somebody_starts(
    configuration: Configuration,
) -> None:
    """Through the planner, whose cheapest places may leave room for one more than those of the decision."""
    parameters = ProposalParameters(POLICY, decision=DECIDING, search=QUICK)
    found = propose(configuration, parameters)
    if not isinstance(found, Proposal) or begins_anew(found.decision):
        return
    for _ in range(len(configuration.vjobs) + 1):
        configuration = replace(
            applied(configuration, found.decision), locations={**configuration.locations, **found.target}
        )
        found = propose(configuration, parameters)
        assert isinstance(found, Proposal)
        before = {vjob.name for vjob in configuration.vjobs if configuration.state(vjob) is VJobState.RUNNING}
        after = {name for name, state in found.decision.states.items() if state is VJobState.RUNNING}
        assert before <= after
        assert bool(found.plan.pools) == (before < after)
    assert not found.plan.pools


def test_nobody_is_suspended_while_migrations_make_room() -> None:
    suspended = migrated = 0
    for seed in range(300):
        configuration = grown(seed)
        decision = decide(POLICY, configuration, Parameters(search=Search(deterministic_limit=1.0)))
        assert isinstance(decision, Decision)
        gone = [vjob for vjob in configuration.vjobs if decision.states[vjob.name] is not VJobState.RUNNING]
        assert not gone or next(moved_mib(configuration), None) is None, seed
        suspended += bool(gone)
        migrated += not gone and bool(configuration.overloaded())
    assert suspended and migrated


def test_nobody_is_suspended_for_one_that_waits() -> None:
    waiting = 0
    for seed in range(150):
        configuration = contended(seed)
        decision = decide(POLICY, configuration, Parameters(exact_checks=0))
        assert isinstance(decision, Decision)
        before = {vjob.name for vjob in configuration.vjobs if configuration.state(vjob) is VJobState.RUNNING}
        assert all(decision.states[name] is VJobState.RUNNING for name in before), seed
        waiting += any(state is VJobState.WAITING for state in decision.states.values())
    assert waiting
