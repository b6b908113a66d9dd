"""A platform that pauses and saves nothing: every policy's vjobs make way in place, and their memory is theirs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from examples import few
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from properties.generators import configurations
from properties.joint_rules import with_rules

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision
from rmsplugin.model.abiding import abiding
from rmsplugin.model.action import ActionKind
from rmsplugin.model.capabilities import NATIVE
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, NodeState, VJob, VMState, paused_on, running_on
from rmsplugin.model.joint import Spread
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.02)

#: Actions that such a platform has.
HAS = {ActionKind.RUN, ActionKind.STOP, ActionKind.PAUSE, ActionKind.UNPAUSE}


@st.composite
def natives(draw: st.DrawFn, base: st.SearchStrategy[Configuration]) -> Configuration:
    """A site whose vjobs run, are paused, wait or have ended; vjobs that ran or slept may be paused."""
    source = draw(base)
    locations = dict(source.locations)
    for vjob in source.vjobs:
        at = [locations[vm.name] for vm in vjob.vms]
        if any(each.state is VMState.SLEEPING for each in at):
            locations |= {vm.name: WAITING for vm in vjob.vms}
        elif all(each.state is VMState.RUNNING for each in at) and draw(st.booleans()):
            locations |= {vm.name: paused_on(locations[vm.name].node or "") for vm in vjob.vms}
    vjobs = [replace(vjob, can=NATIVE) for vjob in source.vjobs]
    return Configuration(source.nodes, abiding(source.nodes, vjobs, locations), locations)


def proposal_of(policy: str, source: Configuration, *, limit_s: float = 0.0, search: bool = True) -> Proposal:
    decision = Parameters(pause_limit_s=limit_s, search=SEARCH)
    parameters = ProposalParameters(policy, decision, search=SEARCH, cpu_in_plan=True)
    found = propose(source, parameters if search else parameters.without_solver())
    assert isinstance(found, Proposal), found.explanation
    return found


@pytest.mark.parametrize("policy", POLICIES)
@given(source=natives(configurations()), limit_s=st.sampled_from((0.0, 60.0, math.inf)), search=st.booleans())
@settings(max_examples=few(60), deadline=None)
def test_vjobs_make_way_where_they_are_and_keep_their_memory(
    policy: str, source: Configuration, limit_s: float, search: bool
) -> None:
    """Whatever the limit of pauses: there is always a plan, it costs nothing, and each arrival has CPUs and memory."""
    found = proposal_of(policy, source, limit_s=limit_s, search=search)
    assert check(source, found, cpu_in_plan=True) == []
    assert {action.kind for action in found.plan.actions()} <= HAS
    assert found.plan.cost == 0
    for name, at in source.locations.items():
        if at.state.holds_memory:
            then = found.target.get(name, at)
            assert then.node == at.node or then.state is VMState.TERMINATED
    event("somebody is paused" if any(a.kind is ActionKind.PAUSE for a in found.plan.actions()) else "nobody is")


@pytest.mark.parametrize("policy", ["rjsp", "mixed", "slowdown", "easy"])
@given(source=natives(configurations(restricted=False)).flatmap(with_rules), search=st.booleans())
@settings(max_examples=few(60), deadline=None)
def test_with_rules_about_vms_beside_each_other_those_in_memory_stay_where_they_are_all_the_same(
    policy: str, source: Configuration, search: bool
) -> None:
    found = proposal_of(policy, source, search=search)
    assert check(source, found, cpu_in_plan=True) == []
    assert {action.kind for action in found.plan.actions()} <= HAS


@pytest.mark.parametrize("policy", ["rjsp", "rjsp-exact", "mixed", "slowdown"])
@given(source=natives(configurations()))
@settings(max_examples=few(40), deadline=None)
def test_with_a_decision_applied_the_next_one_changes_nothing(policy: str, source: Configuration) -> None:
    found = proposal_of(policy, source)
    again = proposal_of(policy, source.with_locations({**source.locations, **found.target}))
    assert again.decision.states == found.decision.states


@pytest.mark.parametrize("policy", ["easy", "easy-preempt", "conservative"])
@given(source=natives(configurations()))
@settings(max_examples=few(40), deadline=None)
def test_with_a_decision_of_first_fit_applied_the_next_one_only_lets_more_run(
    policy: str, source: Configuration
) -> None:
    """Where the decision packs is not where its plan places: what is left may suit one that found no node before."""
    found = proposal_of(policy, source, search=False)
    again = proposal_of(policy, source.with_locations({**source.locations, **found.target}), search=False)
    changed = {name for name, state in again.decision.states.items() if state is not found.decision.states[name]}
    assert {again.decision.states[name] for name in changed} <= {VJobState.RUNNING}


@given(source=natives(configurations(max_nodes=3, max_vjobs=4, max_vms=2, all_up=True, restricted=False)))
@settings(max_examples=few(200), deadline=None)
def test_all_run_for_whom_any_placement_has_room_beside_those_ahead(source: Configuration) -> None:
    """Against all placements, one by one: RJSP with exact checks, where memory of jobs is theirs until they end."""
    source = replace(source, vjobs=tuple(replace(vjob, preemptible=True) for vjob in source.vjobs))
    assume(not source.overloaded())
    decision = decide_with_pauses("rjsp-exact", source, Parameters(search=SEARCH, exact_checks=100))
    assert isinstance(decision, Decision)
    admitted: list[VJob] = []
    for vjob in source.vjobs:
        state = source.state(vjob)
        if state is VJobState.TERMINATED:
            continue
        if has_room(source, [*admitted, vjob]):
            admitted.append(vjob)
    runs = [vjob.name for vjob in source.vjobs if decision.states[vjob.name] is VJobState.RUNNING]
    event(f"{len(runs)} run")
    assert runs == [vjob.name for vjob in admitted]
    paused = {vjob.name for vjob in source.vjobs if decision.states[vjob.name] is VJobState.PAUSED}
    in_memory = (VJobState.RUNNING, VJobState.PAUSED)
    assert paused == {v.name for v in source.vjobs if source.state(v) in in_memory and v.name not in runs}


def has_room(source: Configuration, vjobs: Sequence[VJob]) -> bool:
    """Whether these can run together: those in memory where they are, the others anywhere, beside all memory held."""
    memory = {node.name: node.capacity.memory_mib for node in source.nodes}
    cpus = {node.name: node.capacity.centi_cpus for node in source.nodes}
    for name, at in source.locations.items():
        if at.state.holds_memory:
            memory[at.node or ""] -= source.vm_by_name[name].demand.memory_mib
    loose = []
    for vjob in vjobs:
        for vm in vjob.vms:
            at = source.locations[vm.name]
            if at.state.holds_memory:
                cpus[at.node or ""] -= vm.demand.centi_cpus
            else:
                loose.append(vm.demand)
    return any(fits(places, loose, cpus, memory) for places in itertools.product(cpus, repeat=len(loose)))


def fits(
    places: Sequence[str], demands: Sequence[Resources], cpus: Mapping[str, int], memory: Mapping[str, int]
) -> bool:
    left_cpus, left_mib = dict(cpus), dict(memory)
    for place, demand in zip(places, demands, strict=True):
        left_cpus[place] -= demand.centi_cpus
        left_mib[place] -= demand.memory_mib
    return min(left_cpus.values()) >= 0 and min(left_mib.values()) >= 0


def test_a_vjob_that_cannot_leave_its_node_runs_on_there_and_one_that_is_paused_stays_so() -> None:
    """Where no job may come none is woken, and none that runs is paused for others."""
    nodes = (Node("n1", Resources(1, 1000), NodeState.DRAINING), Node("n2", Resources(1, 1000)))
    vjobs = [VJob(name, (VM(f"{name}-0", Resources(1, 400)),), can=NATIVE) for name in ("runs", "paused", "waits")]
    locations = {"runs-0": running_on("n1"), "paused-0": paused_on("n1"), "waits-0": WAITING}
    source = Configuration(nodes, abiding(nodes, vjobs, locations), locations)
    states = proposal_of("rjsp", source).decision.states
    assert states == {"runs": VJobState.RUNNING, "paused": VJobState.PAUSED, "waits": VJobState.RUNNING}


def test_one_that_is_paused_on_a_node_that_drains_stays_there_whatever_rules_others_break() -> None:
    nodes = (
        Node("n1", Resources(1, 512)),
        Node("n2", Resources(1, 512), NodeState.DRAINING),
        Node("n3", Resources(1, 512)),
    )
    apart = (Spread(frozenset({"a-0", "b-0"})),)
    vjobs = [VJob(name, (VM(f"{name}-0", Resources(0, 256)),), can=NATIVE, rules=apart) for name in ("a", "b")]
    vjobs.append(VJob("c", (VM("c-0", Resources(0, 256)), VM("c-1", Resources(0, 256))), can=NATIVE))
    locations = {"a-0": running_on("n1"), "b-0": running_on("n1"), "c-0": paused_on("n2"), "c-1": paused_on("n3")}
    found = proposal_of("slowdown", Configuration(nodes, abiding(nodes, vjobs, locations), locations), search=False)
    assert found.decision.states["c"] is VJobState.PAUSED
    assert not found.plan.pools
