"""Platforms: no policy and no plan asks one for what it cannot do, and nothing is lost but what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from examples import few
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from properties.brute_force import TooLargeError, cheapest_cost
from properties.generators import configurations

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES, decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.abiding import abiding
from rmsplugin.model.action import ActionKind
from rmsplugin.model.capabilities import EVERYTHING, Capabilities
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import SHARED, WAITING, Location, NodeState, VJob, VMState, paused_on
from rmsplugin.model.resources import NOTHING
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, Proposal
from rmsplugin.proposing.propose import propose, propose_for

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.02)
ABILITIES = ("migrate", "suspend", "elsewhere", "pause")


@st.composite
def sites(draw: st.DrawFn, base: st.SearchStrategy[Configuration], lacking: tuple[str, ...]) -> Configuration:
    """A cluster with nodes of one or two platforms that lack some of these abilities, and vjobs of both."""
    source = draw(base)
    can = {
        name: replace(EVERYTHING, **dict.fromkeys(draw(st.sets(st.sampled_from(lacking))), False)) for name in ("", "b")
    }
    nodes = tuple(replace(node, platform=draw(st.sampled_from(("", "", "b")))) for node in source.nodes)
    of = {node.name: node.platform for node in nodes}
    vjobs, locations = [], dict(source.locations)
    for vjob in source.vjobs:
        at = [locations[vm.name] for vm in vjob.vms]
        own = {of[each.node] for each in at if each.node is not None and each.node != SHARED}
        platform = draw(st.sampled_from(sorted(own or {each.platform for each in nodes})))
        pauses = can[platform].pause and draw(st.booleans())
        if len(own) > 1 or not all(_can_be(each, can[platform]) for each in at):
            locations |= {vm.name: WAITING for vm in vjob.vms}
        elif pauses and all(each.state is VMState.RUNNING for each in at):
            locations |= {vm.name: paused_on(locations[vm.name].node or "") for vm in vjob.vms}
        there = frozenset(node.name for node in nodes if node.platform == platform)
        named = replace(vjob, platform=platform, can=can[platform])
        vjobs.append(named if any(named.allows(node) for node in there) else replace(named, rules=()))
    return Configuration(nodes, abiding(nodes, vjobs, locations), locations)


def _can_be(at: Location, can: Capabilities) -> bool:
    if at.state is VMState.SLEEPING:
        return can.suspend and (can.elsewhere or at.node != SHARED)
    return True


def within(source: Configuration, proposal: Proposal) -> None:
    """Each action is one that the platform of its VM has, on a node of that platform."""
    for action in proposal.plan.actions():
        vjob = source.vjob_by_vm[action.vm.name]
        match action.kind:
            case ActionKind.MIGRATE:
                assert vjob.can.migrate
            case ActionKind.SUSPEND:
                assert vjob.can.suspend
            case ActionKind.PAUSE | ActionKind.UNPAUSE:
                assert vjob.can.pause
            case ActionKind.RESUME:
                assert vjob.can.elsewhere or action.source == action.destination
        for node in {action.source, action.destination} - {None, SHARED}:
            assert source.node_by_name[node or ""].platform == vjob.platform


@pytest.mark.parametrize("policy", POLICIES)
@given(source=sites(configurations(), ABILITIES), search=st.booleans(), pause_s=st.sampled_from((0.0, 600.0)))
@settings(max_examples=few(40), deadline=None)
def test_no_plan_asks_a_platform_for_what_it_cannot_do(
    policy: str, source: Configuration, search: bool, pause_s: float
) -> None:
    parameters = ProposalParameters(policy, Parameters(pause_limit_s=pause_s), search=SEARCH)
    found = propose(source, parameters if search else parameters.without_solver())
    event(f"{policy}: {'a plan' if isinstance(found, Proposal) else found.missing}")
    if isinstance(found, Proposal):
        assert check(source, found) == []
        within(source, found)
    else:
        # Only VMs that migrate and cannot be saved may wait for each other for good.
        deadlocked = found.missing is Missing.PLAN and "their platform cannot save them" in found.explanation
        assert found.missing is Missing.DECISION or deadlocked, found.explanation


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "mixed", "slowdown"])
@given(
    source=sites(
        configurations(max_nodes=3, max_vjobs=4, max_vms=2, all_up=True, restricted=False), ("migrate", "elsewhere")
    )
)
@settings(max_examples=few(40), deadline=None)
def test_no_plan_is_cheaper_than_its_bound_or_found_where_there_is_none(policy: str, source: Configuration) -> None:
    """Against all plans that the platforms can carry out, one by one."""
    assume(all(at.state is not VMState.PAUSED for at in source.locations.values()))
    decision = decide(policy, source, Parameters(search=SEARCH))
    assume(isinstance(decision, Decision))
    found = propose_for(source, decision, ProposalParameters(policy, search=SEARCH))
    try:
        least = brute_force(source, decision)
    except TooLargeError:
        return
    if isinstance(found, Proposal):
        assert found.lower_bound <= least <= found.plan.cost
        event("the cheapest" if least == found.plan.cost else "not the cheapest")
    else:
        assert least == float("inf"), found.explanation


def brute_force(source: Configuration, decision: Decision) -> float:
    """The cost of the cheapest plan to a viable end with the decided states."""
    states = decision.states
    runs = frozenset(vm.name for vjob in source.vjobs if states[vjob.name] is VJobState.RUNNING for vm in vjob.vms)
    departs = {}
    for vjob in source.vjobs:
        for vm in vjob.vms:
            at = source.locations[vm.name]
            if at.state is VMState.RUNNING and vm.name not in runs:
                departs[vm.name] = Location(VMState.SLEEPING, at.node)

    taken = {node.name: node.capacity for node in source.nodes}
    for vm, node in decision.placement.items():
        taken[node] -= source.vm_by_name[vm].demand
    kept = {name for name, left in taken.items() if not left.holds(NOTHING)}  # the decision leaves them overloaded

    def is_end(locations: Mapping[str, Location]) -> bool:
        left = {node.name: node.capacity for node in source.nodes}
        for vjob in source.vjobs:
            for vm in vjob.vms:
                at = locations[vm.name]
                if vm.name in departs and at != departs[vm.name]:
                    return False
                if vm.name in runs:
                    if at.state is not VMState.RUNNING:
                        return False
                    left[at.node or ""] -= vm.demand
        return all(each.holds(NOTHING) or node in kept for node, each in left.items())

    return cheapest_cost(source, is_end, departs, runs, most=20_000)


@given(source=sites(configurations(restricted=False), ("migrate", "elsewhere", "pause")))
@settings(max_examples=few(150), deadline=None)
def test_rjsp_is_first_fit_decreasing_with_vms_that_cannot_move_where_they_are(source: Configuration) -> None:
    vjobs = tuple(replace(vjob, preemptible=True) for vjob in source.vjobs)
    source = replace(source, vjobs=vjobs)
    assume(all(at.state is not VMState.PAUSED for at in source.locations.values()))
    found = decide("rjsp", source, Parameters())
    assert isinstance(found, Decision)
    free = {node.name: node.capacity for node in source.nodes if node.state is NodeState.UP}
    for vjob in source.vjobs:
        if source.state(vjob) is VJobState.TERMINATED:
            continue
        placed = _ffd(source, vjob, dict(free))
        assert (found.states[vjob.name] is VJobState.RUNNING) == (placed is not None), vjob.name
        free = free if placed is None else placed


def _ffd(source: Configuration, vjob: VJob, free: dict) -> dict | None:  # type: ignore[type-arg]
    """The room that a vjob leaves; None if it finds none."""
    bound, loose = {}, []
    for vm in sorted(vjob.vms, key=lambda vm: (-vm.demand.memory_mib, -vm.demand.cpus, vm.name)):
        at = source.locations[vm.name]
        stays = (at.state is VMState.RUNNING and not vjob.can.migrate) or (
            at.state is VMState.SLEEPING and not vjob.can.elsewhere
        )
        if stays:
            bound[vm] = at.node
        else:
            loose.append(vm)
    platform = {node.name: node.platform for node in source.nodes}
    for vm in [*bound, *loose]:
        nodes = [bound[vm]] if vm in bound else [name for name in free if platform[name] == vjob.platform]
        node = next((name for name in nodes if name in free and free[name].holds(vm.demand)), None)
        if node is None:
            return None
        free[node] -= vm.demand
    return free
