"""Reservations know the rules: a start is promised only at a time at which a place by all rules can be found."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import pytest
from examples import few
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from properties.generators import configurations
from properties.joint_rules import holds, with_rules

from rmsplugin.decision import ruled_room
from rmsplugin.decision.fcfs import remaining_s
from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.result import Decision, Infeasible, ReasonCode
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, NodeState, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search

PARAMETERS = Parameters(search=Search(time_limit_s=3600, deterministic_limit=1))
#: As if there were too many vjobs for a solver.
AT_ONCE = (("easy", 0), ("conservative", 0))
LIMITS = (100.0, 100.0, 300.0, 500.0, None)


@st.composite
def timed(draw: st.DrawFn, source: Configuration) -> Configuration:
    """The configuration with time limits; none of its vjobs may be preempted."""
    vjobs = tuple(replace(vjob, preemptible=False, time_limit_s=draw(st.sampled_from(LIMITS))) for vjob in source.vjobs)
    return Configuration(source.nodes, vjobs, source.locations)


def small() -> st.SearchStrategy[Configuration]:
    return configurations(max_nodes=3, max_vjobs=5, max_vms=2, all_up=True).flatmap(with_rules).flatmap(timed)


@st.composite
def equal_vms(draw: st.DrawFn) -> Configuration:
    """VMs of one CPU on nodes of two, some of which run: First Fit finds room wherever there is enough."""
    cluster = tuple(Node(f"n{i}", Resources(2, 4096)) for i in range(1, draw(st.integers(2, 3)) + 1))
    free, vjobs, locations = {node.name: 2 for node in cluster}, [], {}
    for number in range(draw(st.integers(2, 5))):
        vms = tuple(VM(f"v{number}-{i}", Resources(1, 0)) for i in range(draw(st.integers(1, 2))))
        vjobs.append(VJob(f"v{number}", vms))
        runs = draw(st.booleans()) and sum(free.values()) >= len(vms)
        for vm in vms:
            locations[vm.name] = WAITING
            if runs:
                node = draw(st.sampled_from([name for name, left in free.items() if left]))
                free[node] -= 1
                locations[vm.name] = running_on(node)
    return Configuration(cluster, tuple(vjobs), locations)


def placements(source: Configuration, vjobs: Collection[VJob], at: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """All places of these vjobs' VMs which capacity and all rules allow; ``at``: the nodes of some of the VMs."""
    vms = [(vjob, vm) for vjob in vjobs for vm in vjob.vms]
    up = {node.name: node.capacity for node in source.nodes if node.state is NodeState.UP}
    for nodes in itertools.product(*([at[vm.name]] if vm.name in at else up for _, vm in vms)):
        hosts = {vm.name: node for (_, vm), node in zip(vms, nodes, strict=True)}
        left = dict(up)
        for _, vm in vms:
            left[hosts[vm.name]] -= vm.demand
        fits = all(each.centi_cpus >= 0 and each.memory_mib >= 0 for each in left.values())
        allowed = all(vjob.allows(hosts[vm.name]) for vjob, vm in vms)
        if fits and allowed and all(holds(rule, set(hosts.items()), source.homes) for rule in source.joint):
            yield hosts


def decided(policy: str, source: Configuration) -> Decision:
    held = set(source.homes.items())
    assume(all(holds(rule, held, source.homes) for rule in source.joint))
    found = decide_by_rules(policy, source, PARAMETERS)
    assume(not isinstance(found, Infeasible))
    assert isinstance(found, Decision)
    assume(all(reason.code is not ReasonCode.RESERVED_IN_PLACE for reason in found.reasons.values()))
    return found


def promises(source: Configuration, decision: Decision) -> dict[str, float]:
    """By vjob, the time at which a start is reserved for it."""
    reasons = {vjob.name: decision.reasons[vjob.name] for vjob in source.vjobs}
    return {
        name: float(reason.numbers["shadow_s"])
        for name, reason in reasons.items()
        if "shadow_s" in reason.numbers and "head" not in reason.numbers
    }


def at_work(source: Configuration, decision: Decision, starts: Mapping[str, float], at_s: float) -> list[VJob]:
    """The vjobs that run at a time, if all run for as long as they may, and start when it was promised."""
    run = VJobState.RUNNING
    going = [vjob for vjob in source.vjobs if decision.states[vjob.name] is run and remaining_s(vjob) > at_s]
    return going + [
        vjob
        for vjob in source.vjobs
        if vjob.name in starts and starts[vjob.name] <= at_s < starts[vjob.name] + remaining_s(vjob)
    ]


@pytest.mark.parametrize(
    ("policy", "most_pairs"),
    [*((policy, 20_000) for policy in ("easy", "easy-preempt", "mixed", "conservative")), *AT_ONCE],
)
@given(source=small())
@settings(max_examples=few(200), deadline=None)
def test_what_is_promised_has_a_place_by_all_rules(policy: str, most_pairs: int, source: Configuration) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ruled_room, "MOST_PAIRS", most_pairs)
        decision = decided(policy, source)
    starts = promises(source, decision)
    for at_s in starts.values():
        # A VM on a node with too few CPUs may have to stay there by a rule: then nothing has a place beside it.
        assume(next(placements(source, at_work(source, decision, {}, at_s), {}), None) is not None)
        assert next(placements(source, at_work(source, decision, starts, at_s), {}), None) is not None


@pytest.mark.parametrize("policy", ["easy", "mixed", "conservative"])
@given(source=equal_vms().flatmap(with_rules).flatmap(timed))
@settings(max_examples=few(200), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_start_is_promised_for_the_first_time_with_a_place_beside_those_that_stay_where_they_are(
    policy: str, source: Configuration
) -> None:
    decision = decided(policy, source)
    run, before = VJobState.RUNNING, {vjob.name: source.state(vjob) for vjob in source.vjobs}
    assume(all(before[name] is run or state is not run for name, state in decision.states.items()))
    running = [vjob for vjob in source.vjobs if before[vjob.name] is run]
    assume(all(decision.states[vjob.name] is run for vjob in running))
    head = next((vjob for vjob in source.vjobs if before[vjob.name] is VJobState.WAITING), None)
    assume(head is not None)
    assert head is not None
    promised_s = promises(source, decision).get(head.name)
    for end_s in sorted({remaining_s(vjob) for vjob in running if vjob.time_limit_s is not None}):
        left = [vjob for vjob in running if remaining_s(vjob) > end_s]
        if next(placements(source, [*left, head], source.homes), None) is not None:
            assert promised_s is not None and promised_s <= end_s, str(decision.reasons[head.name])
            return
