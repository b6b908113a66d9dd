"""VMs that need nodes of their own, or are spread across vjobs, against a search through all placements."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from examples import few
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Decision
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.decision.traits import NEVER_SUSPENDS
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, running_on, sleeping_on
from rmsplugin.model.joint import Spread
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search

SEARCH = Search(time_limit_s=3600, deterministic_limit=1.0)


@st.composite
def spread_out(draw: st.DrawFn) -> Configuration:
    """Nodes that are nearly full. Many vjobs have their VMs on nodes of their own, and obey that where they are."""
    sizes = draw(st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([512, 1024])), min_size=2, max_size=3))
    nodes = tuple(Node(f"n{i}", Resources(*size)) for i, size in enumerate(sizes, start=1))
    vjobs: list[VJob] = []
    locations: dict[str, Location] = {}
    places: dict[str, str] = {}
    for number in range(draw(st.integers(2, 4))):
        vjob = _vjob(draw, f"v{number}")
        here = {vm.name: draw(st.sampled_from(nodes)).name for vm in vjob.vms}
        runs = [*(each for each in vjobs if each.vms[0].name in places), vjob]
        if draw(st.booleans()) and holds(nodes, runs, places | here):
            places |= here
            locations |= {name: running_on(node) for name, node in here.items()}
        else:
            sleeps = draw(st.booleans())
            locations |= {name: sleeping_on(node) if sleeps else WAITING for name, node in here.items()}
        vjobs.append(vjob)
    return Configuration(nodes, tuple(draw(st.permutations(vjobs))), locations)


def _vjob(draw: st.DrawFn, name: str) -> VJob:
    demands = draw(st.lists(st.sampled_from([(0.5, 256), (1, 128), (1, 256), (2, 512)]), min_size=1, max_size=2))
    if draw(st.booleans()):
        demands = demands[:1] * len(demands)
    vms = tuple(VM(f"{name}-{k}", Resources(*demand)) for k, demand in enumerate(demands))
    apart = (Spread(frozenset(vm.name for vm in vms)),) if len(vms) > 1 and draw(st.booleans()) else ()
    return VJob(name, vms, rules=apart, time_limit_s=draw(st.sampled_from([60.0, 600.0])))


@st.composite
def spread_across(draw: st.DrawFn) -> Configuration:
    """The same with one more rule or two, about VMs of several vjobs. They are new: VMs may break them where they are.

    Some vjobs may not be preempted, some have begun to run just now, and some are preferred by an administrator.
    """
    source = draw(spread_out())
    names = sorted(source.vm_by_name)
    some = st.sets(st.sampled_from(names), min_size=2, max_size=4)
    rules = [Spread(frozenset(draw(some))) for _ in range(draw(st.integers(1, 2)))]
    vjobs = []
    for vjob in source.vjobs:
        own = tuple(rule for rule in rules if any(vm.name in rule.vms for vm in vjob.vms))
        firm, state_s = draw(st.sampled_from([(True, None), (True, None), (True, 10.0), (False, None)]))
        preference = draw(st.sampled_from([None, None, None, VJobState.RUNNING]))
        vjobs.append(replace(vjob, rules=(*vjob.rules, *own), preemptible=firm, state_s=state_s, preference=preference))
    return replace(source, vjobs=tuple(vjobs))


@st.composite
def grown_across(draw: st.DrawFn) -> Configuration:
    """Two or three nodes and vjobs that run there, of which some have grown, and a spread across some of them.

    So nodes may be short of CPUs. Some vjobs were started just now, or are preferred by an administrator.
    """
    memory = st.sampled_from([512, 1024])
    nodes = tuple(Node(f"n{i}", Resources(2, 2048)) for i in range(1, draw(st.integers(2, 3)) + 1))
    names = [f"v{number}" for number in range(draw(st.integers(3, 5)))]
    rule = Spread(frozenset(f"{name}-0" for name in draw(st.sets(st.sampled_from(names), min_size=2))))
    vjobs, locations = [], {}
    for name in names:
        vm = VM(f"{name}-0", Resources(draw(st.sampled_from([1, 2])), draw(memory)))
        state_s, preference = draw(st.sampled_from([(1e6, None), (10.0, None), (1e6, VJobState.RUNNING)]))
        rules = (rule,) if vm.name in rule.vms else ()
        vjobs.append(VJob(name, (vm,), rules=rules, time_limit_s=600.0, state_s=state_s, preference=preference))
        locations[vm.name] = running_on(draw(st.sampled_from(nodes)).name)
    held = {node.name: 0 for node in nodes}
    for vjob in vjobs:
        held[locations[vjob.vms[0].name].node or ""] += vjob.demand.memory_mib
    assume(max(held.values()) <= 2048)
    return Configuration(nodes, tuple(vjobs), locations)


def obeys(vjobs: Sequence[VJob], places: Mapping[str, str]) -> bool:
    """Whether no two VMs of a spread are on one node."""
    names = {vm.name for vjob in vjobs for vm in vjob.vms}
    spreads = [rule.vms & names for vjob in vjobs for rule in vjob.rules if isinstance(rule, Spread)]
    return all(len({places[vm] for vm in vms}) == len(vms) for vms in spreads)


def holds(nodes: Sequence[Node], vjobs: Sequence[VJob], places: Mapping[str, str]) -> bool:
    """Whether these can run where they are placed."""
    if not obeys(vjobs, places):
        return False
    left = {node.name: [node.capacity.centi_cpus, node.capacity.memory_mib] for node in nodes}
    for vjob in vjobs:
        for vm in vjob.vms:
            left[places[vm.name]][0] -= vm.demand.centi_cpus
            left[places[vm.name]][1] -= vm.demand.memory_mib
    return all(min(each) >= 0 for each in left.values())


def has_room(nodes: Sequence[Node], vjobs: Sequence[VJob]) -> bool:
    """Whether any placement has room for all of these, wherever they are now."""
    names = [vm.name for vjob in vjobs for vm in vjob.vms]
    placements = itertools.product([node.name for node in nodes], repeat=len(names))
    return any(holds(nodes, vjobs, dict(zip(names, at, strict=True))) for at in placements)


def decided(policy: str, source: Configuration) -> Decision:
    found = decide_by_rules(policy, source, Parameters(search=SEARCH, exact_checks=100))
    assert isinstance(found, Decision)
    return found


def running(source: Configuration, decision: Decision) -> list[VJob]:
    return [vjob for vjob in source.vjobs if decision.states[vjob.name] is VJobState.RUNNING]


@given(source=spread_out())
@settings(max_examples=few(200), deadline=None)
def test_all_run_for_whom_any_placement_has_room_beside_those_ahead(source: Configuration) -> None:
    """RJSP with exact checks, where anybody may be suspended."""
    decision = decided("rjsp-exact", source)
    admitted: list[VJob] = []
    for vjob in source.vjobs:
        if has_room(source.nodes, [*admitted, vjob]):
            admitted.append(vjob)
    event(f"{len(admitted)} run")
    assert running(source, decision) == admitted


def before_two_that_run() -> Configuration:
    """The first one would have room beside all that run, if the VMs of one of these could be together."""
    nodes = (Node("n1", Resources(1, 512)), Node("n2", Resources(2, 1024)))
    two, one = tuple(VM(f"v1-{k}", Resources(0.5, 256)) for k in range(2)), Resources(1, 128)
    vjobs = (
        VJob("v0", (VM("v0-0", one),)),
        VJob("v1", two, rules=(Spread(frozenset(vm.name for vm in two)),)),
        VJob("v3", (VM("v3-0", one),)),
    )
    at = {"v0-0": WAITING, "v1-0": running_on("n1"), "v1-1": running_on("n2"), "v3-0": running_on("n2")}
    return Configuration(nodes, vjobs, at)


SPARING = ("fcfs", "easy", "conservative", "load-sharing", "v-reconfiguration")


@pytest.mark.parametrize("policy", SPARING)
@given(source=spread_out())
@example(source=before_two_that_run())
@settings(max_examples=few(200), deadline=None)
def test_nobody_makes_way_under_a_policy_that_suspends_nobody(policy: str, source: Configuration) -> None:
    before, runs = run_now(source), running(source, decided(policy, source))
    event(f"{len(runs) - len(before)} start")
    assert before <= {vjob.name for vjob in runs}
    assert has_room(source.nodes, runs)


def run_now(source: Configuration) -> set[str]:
    return {vjob.name for vjob in source.vjobs if source.state(vjob) is VJobState.RUNNING}


def on_one_node(first: Location) -> Configuration:
    """The second one runs, and there is room for both; but a rule has them on nodes of their own, and there is one."""
    vms = [VM(name, Resources(1, 128)) for name in ("v0-0", "v1-0")]
    rule = Spread(frozenset(vm.name for vm in vms))
    vjobs = tuple(VJob(f"v{number}", (vm,), rules=(rule,)) for number, vm in enumerate(vms))
    return Configuration((Node("n1", Resources(2, 512)),), vjobs, {"v0-0": first, "v1-0": running_on("n1")})


def before_one_that_is_preferred() -> Configuration:
    """An administrator has the last one run: the one that runs alone makes way for it, with the rule or without."""
    some = Resources(0.5, 256)

    def vjob(name: str, vms: int, **more: Any) -> VJob:
        return VJob(name, tuple(VM(f"{name}-{number}", some) for number in range(vms)), time_limit_s=60.0, **more)

    first = vjob("v0", 2, rules=(Spread(frozenset({"v0-0", "v0-1"})),))
    nodes = tuple(Node(name, Resources(1, 512)) for name in ("n1", "n2"))
    at = {"v0-0": running_on("n1"), "v0-1": running_on("n1"), "v3-0": running_on("n2")}
    waiting = {"v1-0": WAITING, "v1-1": WAITING}
    last = vjob("v1", 2, preference=VJobState.RUNNING)
    return Configuration(nodes, (first, vjob("v3", 1), last), at | waiting)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(source=spread_across())
@example(source=on_one_node(WAITING))
@example(source=before_one_that_is_preferred())
@example(source=on_one_node(running_on("n1")))
@settings(max_examples=few(200), deadline=None)
def test_no_rule_across_vjobs_suspends_one_that_the_policy_spares(policy: str, source: Configuration) -> None:
    """Whoever runs has a place that obeys all rules, unless one who is spared breaks a rule where it is."""
    decision = decided(policy, source)
    runs = running(source, decision)
    spared = {vjob.name for vjob in source.vjobs if vjob.name in run_now(source) and is_spared(policy, vjob, source)}
    event(f"{len(spared)} spared")
    assert spared <= {vjob.name for vjob in runs}
    stay = [vjob for vjob in source.vjobs if vjob.name in spared]
    assert has_room(source.nodes, runs) or not obeys(stay, source.homes)


def is_spared(policy: str, vjob: VJob, source: Configuration) -> bool:
    """Whether a vjob that runs is never suspended by a policy while no node is short: not even for a preference."""
    exempt = vjob.state_s is not None and policy in ("easy-preempt", "mixed", "slowdown")
    claimed = any(each.preference is VJobState.RUNNING and each.name not in run_now(source) for each in source.vjobs)
    spares = policy in NEVER_SUSPENDS or (policy in SPARING and not claimed)
    return spares or not vjob.preemptible or exempt or vjob.preference is VJobState.RUNNING


@given(source=spread_out())
@settings(max_examples=few(200), deadline=None)
def test_a_vjob_of_a_higher_tier_runs_if_any_placement_has_room_beside_those_of_its_tier(source: Configuration) -> None:
    """Whoever is of a lower tier makes way, if that is what two nodes take."""
    first, *others = source.vjobs
    source = replace(source, vjobs=(replace(first, priority=2), *others))
    for policy in ("easy-preempt", "mixed", "slowdown"):
        assert (first.name in {vjob.name for vjob in running(source, decided(policy, source))}) is has_room(
            source.nodes, [first]
        )


@pytest.mark.parametrize("policy", ["easy-preempt", "mixed", "slowdown"])
@given(source=grown_across())
@settings(max_examples=few(200), deadline=None)
def test_no_rule_suspends_one_that_is_exempt_or_preferred_also_where_cpus_are_short(
    policy: str, source: Configuration
) -> None:
    decision = decided(policy, source)
    for vjob in source.vjobs:
        if source.state(vjob) is VJobState.RUNNING and (vjob.state_s == 10 or vjob.preference is VJobState.RUNNING):
            assert decision.states[vjob.name] is VJobState.RUNNING


def with_an_empty_node() -> Configuration:
    """First Fit has the second one on the empty node, which the last one needs: VMs that are apart stay."""
    nodes = tuple(Node(f"n{i}", Resources(2, 1024)) for i in range(1, 4))
    two, one = tuple(VM(f"v0-{k}", Resources(1, 256)) for k in range(2)), VM("v1-0", Resources(1, 256))
    vjobs = (
        VJob("v0", two, rules=(Spread(frozenset(vm.name for vm in two)),), time_limit_s=600.0),
        VJob("v1", (one,), time_limit_s=600.0),
        VJob("v2", (VM("v2-0", Resources(2, 512)),)),
    )
    at = {"v0-0": running_on("n2"), "v0-1": running_on("n3"), "v1-0": running_on("n2"), "v2-0": WAITING}
    return Configuration(nodes, vjobs, at)


@pytest.mark.parametrize("policy", sorted(NEVER_SUSPENDS))
@given(source=spread_out())
@example(source=with_an_empty_node())
@settings(max_examples=few(200), deadline=None)
def test_the_first_that_waits_starts_where_there_is_room_beside_all_where_they_are(
    policy: str, source: Configuration
) -> None:
    """Wherever First Fit has those that run; for equal VMs, which First Fit places where any placement does.

    Only where there are rules about VMs beside each other: without any, First Fit alone decides (0353).
    """
    if not any(vjob.rules for vjob in source.vjobs):
        return
    ready = [vjob for vjob in source.vjobs if source.state(vjob) is not VJobState.RUNNING]
    if not ready or len({vm.demand for vm in ready[0].vms}) > 1:
        return
    run = [vjob for vjob in source.vjobs if source.state(vjob) is VJobState.RUNNING]
    here, names = dict(source.homes), [vm.name for vm in ready[0].vms]
    placements = itertools.product([node.name for node in source.nodes], repeat=len(names))
    beside = any(holds(source.nodes, [*run, ready[0]], here | dict(zip(names, at, strict=True))) for at in placements)
    event(f"room beside them: {beside}")
    if beside:
        assert decided(policy, source).states[ready[0].name] is VJobState.RUNNING
