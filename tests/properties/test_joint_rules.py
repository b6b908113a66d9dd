"""Rules about VMs beside each other: what is decided, placed and ordered obeys them, by their plainest meaning."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from examples import few
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from properties.brute_force import TooLargeError, cheapest_cost
from properties.generators import configurations, rotations
from properties.joint_rules import holds, joint_rule, steps, with_rules

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.pausing import decide_with_pauses
from rmsplugin.decision.policies import POLICIES
from rmsplugin.decision.result import Infeasible, ReasonCode
from rmsplugin.decision.ruled import decide_by_rules
from rmsplugin.decision.ruled_trial import Trial
from rmsplugin.decision.traits import BY_QUEUE, Suspends
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, Location, Node, NodeState, VJob, VMState
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Online, Part, Root, Split, Spread, Within
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Ban, Fence
from rmsplugin.model.standing import Standing
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled_program import Answer, Wish, solve
from rmsplugin.packing.ruled_vmpp import pack_by_rules
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.ruled import build_by_rules
from rmsplugin.planning.order_checker import check_order
from rmsplugin.planning.plan import Plan
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Missing, Proposal
from rmsplugin.proposing.propose import propose

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.05)
PARAMETERS = Parameters(search=Search(time_limit_s=3600, deterministic_limit=2))


def small() -> st.SearchStrategy[Configuration]:
    return configurations(max_nodes=4, max_vjobs=4, max_vms=3).flatmap(with_rules)


def obeys(source: Configuration, held: set[tuple[str, str]], *, discrete: bool | None = None) -> bool:
    rules = [rule for rule in source.joint if discrete is None or rule.discrete is discrete]
    return all(holds(rule, held, source.homes) for rule in rules)


def without_joint_rules(source: Configuration) -> Configuration:
    def bare(vjob: VJob) -> VJob:
        return replace(vjob, rules=tuple(rule for rule in vjob.rules if not isinstance(rule, Joint)))

    return Configuration(source.nodes, tuple(bare(vjob) for vjob in source.vjobs), source.locations)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(source=small(), heuristic=st.sampled_from([None, None, "ffd", "repair"]), nodes=st.booleans())
@settings(max_examples=few(100), deadline=None)
def test_a_plan_obeys_all_rules_at_every_step_or_in_the_end(
    policy: str, source: Configuration, heuristic: str | None, nodes: bool
) -> None:
    objective = "nodes" if nodes and heuristic is None else "cost"
    parameters = ProposalParameters(policy, PARAMETERS, objective, heuristic, SEARCH)  # type: ignore[arg-type]
    found = propose(source, parameters)
    if not isinstance(found, Proposal):
        assert found.missing in (Missing.DECISION, Missing.PLAN)
        return
    assert check(source, found) == []
    assert found.lower_bound <= found.plan.cost and found.nodes_lower_bound <= found.nodes_used
    if not obeys(source, set(source.homes.items())):
        return  # who was there before breaks rules: the check has told newcomers apart
    for held in steps(source, found.plan.pools):
        assert obeys(source, held, discrete=False)
    end = {name: at.node for name, at in found.target.items() if at.state.holds_memory and at.node}
    assert obeys(source, set(end.items()))


def placements(source: Configuration, states: Mapping[str, VJobState]) -> Iterator[dict[str, str]]:
    """All places of the VMs that shall run which capacity and all rules allow."""
    run = [(vjob, vm) for vjob in source.vjobs if states[vjob.name] is VJobState.RUNNING for vm in vjob.vms]
    up = [node for node in source.nodes if node.state is NodeState.UP]
    for nodes in itertools.product(up, repeat=len(run)):
        hosts = {vm.name: node.name for (_, vm), node in zip(run, nodes, strict=True)}
        if not all(vjob.allows(hosts[vm.name]) for vjob, vm in run):
            continue
        used = {node.name: [0, 0] for node in up}
        for _, vm in run:
            used[hosts[vm.name]][0] += vm.demand.centi_cpus
            used[hosts[vm.name]][1] += vm.demand.memory_mib
        fits = all(
            used[node.name][0] <= node.capacity.centi_cpus and used[node.name][1] <= node.capacity.memory_mib
            for node in up
        )
        if fits and obeys(source, set(hosts.items())):
            yield hosts


@given(source=small())
@settings(max_examples=few(300), deadline=None)
def test_a_vjob_stays_out_for_a_rule_only_if_those_decided_have_no_place_together(source: Configuration) -> None:
    assume(sum(len(vjob.vms) for vjob in source.vjobs) <= 6)
    assume(not source.apart)  # policies know these: see test_spread_by_trying_all
    relaxed = decide_with_pauses("rjsp", without_joint_rules(source), PARAMETERS)
    ruled = decide_by_rules("rjsp", source, PARAMETERS)
    if isinstance(relaxed, Infeasible) or isinstance(ruled, Infeasible):
        return
    assume(all(reason.code is not ReasonCode.RESERVED_IN_PLACE for reason in relaxed.reasons.values()))
    has_place = next(placements(source, relaxed.states), None) is not None
    barred = [name for name, reason in ruled.reasons.items() if reason.code is ReasonCode.RULE]
    if has_place:
        assert ruled.states == relaxed.states and not barred
    elif all(vjob.preemptible for vjob in source.vjobs):
        assert barred
    for name in barred:
        assert ruled.states[name] is not VJobState.RUNNING


def obeyed(source: Configuration) -> Configuration:
    """The configuration with those of its rules that hold now, and with all nodes up."""
    held = set(source.homes.items())

    def kept(vjob: VJob) -> VJob:
        rules = (rule for rule in vjob.rules if not isinstance(rule, Joint) or holds(rule, held, source.homes))
        return replace(vjob, rules=tuple(rules))

    nodes = tuple(replace(node, state=NodeState.UP) for node in source.nodes)
    return Configuration(nodes, tuple(map(kept, source.vjobs)), source.locations)


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - BY_QUEUE))
@given(source=configurations(max_nodes=3, max_vjobs=5, max_vms=2).flatmap(lambda each: with_rules(each, 9)).map(obeyed))
@settings(max_examples=few(400), deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_nobody_who_runs_makes_way_so_that_a_rule_lets_another_in(policy: str, source: Configuration) -> None:
    """Whatever a policy decides: those of the decision that run now have places, and others come beside them."""
    assume(source.joint and not source.overloaded())
    decision = decide_with_pauses(policy, source, PARAMETERS)
    if isinstance(decision, Infeasible):
        return
    out = Trial(source, decision, None, None, suspends=Suspends.of(policy)).out()
    for vjob in out:
        where = [source.locations[vm.name] for vm in vjob.vms]
        assert not all(at.state is VMState.RUNNING and vjob.allows(at.node or "") for at in where), vjob.name


@pytest.mark.parametrize("objective", ["cost", "nodes"])
@given(source=configurations(max_nodes=3, max_vjobs=3, max_vms=2).flatmap(with_rules))
@settings(max_examples=few(200), deadline=None)
def test_no_plan_to_an_end_that_obeys_is_cheaper_than_the_bound(objective: str, source: Configuration) -> None:
    found = propose(source, ProposalParameters("rjsp", PARAMETERS, objective, search=SEARCH))  # type: ignore[arg-type]
    assume(isinstance(found, Proposal))
    assert isinstance(found, Proposal)
    decision = found.decision
    assume(all(reason.code is not ReasonCode.RESERVED_IN_PLACE for reason in decision.reasons.values()))
    possible = list(placements(source, decision.states))
    if objective == "nodes":
        assert all(found.nodes_lower_bound <= len(set(hosts.values())) for hosts in possible)
        possible = [hosts for hosts in possible if len(set(hosts.values())) <= found.nodes_used]
    ends = {frozenset(hosts.items()) for hosts in possible}
    runs = frozenset(decision.placement)

    def is_end(locations: Mapping[str, Location]) -> bool:
        if any(locations[name] != found.target[name] for name in found.target if name not in runs):
            return False
        if any(locations[name].state is not VMState.RUNNING for name in runs):
            return False
        return frozenset((name, locations[name].node) for name in runs) in ends

    departs = {name: at for name, at in found.target.items() if name not in runs and at != source.locations[name]}
    try:
        cheapest = cheapest_cost(source, is_end, departs, runs, most=20_000)
    except TooLargeError:
        return
    assert found.lower_bound <= cheapest


A, AB, ABC = frozenset("a"), frozenset("ab"), frozenset("abc")
ONE, BOTH = frozenset({"1"}), frozenset({"1", "2"})
EVERY_RULE = (
    *(kind(vms) for kind in (Spread, Gather, Lonely, Root) for vms in (A, AB, ABC)),
    *(Lonely(A, friends=frozenset(friends)) for friends in ("b", "bc")),
    Split((A, frozenset("b"))),
    Split((A, frozenset("b"), frozenset("c"))),
    Split((AB, frozenset("c"))),
    *(Capacity(nodes, vms, most) for nodes in (ONE, BOTH) for vms in (AB, ABC) for most in (0, 1, 2)),
    *(Online(nodes, most) for nodes in (ONE, BOTH) for most in (0, 1, 2)),
    *(Part(AB, kind(ONE)) for kind in (Fence, Ban)),
    *(Within((ONE, frozenset({"2"}), frozenset({"3"})), vms, most) for vms in (AB, ABC) for most in (0, 1, 2)),
    *(Within(sets, vms, 1) for sets in ((BOTH,), (BOTH, frozenset({"3"}))) for vms in (A, AB, ABC)),
)


@pytest.mark.parametrize("rule", EVERY_RULE, ids=str)
def test_where_a_rule_lets_vms_come_the_check_and_its_plain_meaning_agree(rule: Joint) -> None:
    """Three VMs on three nodes, on none or on two: everything that there is."""
    nodes = ("1", "2", "3")
    ways = [(), *((node,) for node in nodes), ("1", "2"), ("2", "3")]
    for places in itertools.product(ways, repeat=3):
        held = [(vm, node) for vm, its in zip("abc", places, strict=True) for node in its]
        homes = dict(held)
        sound = holds(rule, held, homes)
        assert rule.is_kept(Standing(homes, held)) is sound, held
        for vm, node in itertools.product("abc", nodes):
            if (vm, node) in held:
                continue
            after = [*held, (vm, node)]
            admits = rule.lets(vm, node, Standing(homes, held))
            broken = rule.broken(after, [(vm, node)])
            assert (broken is None) is admits, (held, vm, node, broken)
            if sound:
                assert holds(rule, after, homes) is admits, (held, vm, node)
            if broken is not None:
                assert broken.startswith(f"{vm} may not ")
                assert rule.title in broken or isinstance(rule, Part)
            if not rule.concerns(vm):
                assert broken is None
            confines = rule.confines(vm, Standing(homes, held))
            assert not admits or confines is None or confines.admits(node), (held, vm, node)


@pytest.mark.parametrize(
    "fixed",
    [{}, {"c": "2"}, {"a": "1", "b": "1"}, {"a": "1", "b": "2"}],
    ids=["all choose", "one stays", "two stay together", "two stay apart"],
)
@pytest.mark.parametrize("rule", EVERY_RULE, ids=str)
def test_a_program_finds_the_fewest_nodes_that_a_rule_allows(rule: Joint, fixed: dict[str, str]) -> None:
    """Three VMs on three nodes with room for two each. One runs on the first node; some stay, come what may."""
    left = Counter(dict.fromkeys("123", 2))
    left.subtract(fixed.values())
    nodes = tuple(Node(name, Resources(left[name], left[name])) for name in "123")
    items = [Item(VM(name, Resources(1, 1))) for name in "abc" if name not in fixed]
    homes = {"a": "1", **fixed}
    allowed = []
    for places in itertools.product("123", repeat=len(items)):
        hosts = {**fixed, **{item.vm.name: node for item, node in zip(items, places, strict=True)}}
        if all(number <= left[node] for node, number in Counter(places).items()) and _obeyed(rule, hosts, fixed, homes):
            allowed.append(len(set(hosts.values())))
    found = solve(items, nodes, [rule], homes, fixed, Wish(a_node=1), Budget(PARAMETERS.search))
    assert found is not None
    if not allowed:
        assert found == Answer(None, None)
        return
    assert found.hosts is not None
    end = {**fixed, **found.hosts}
    assert _obeyed(rule, end, fixed, homes) and len(set(end.values())) == found.bound == min(allowed)


def _obeyed(rule: Joint, hosts: Mapping[str, str], fixed: Mapping[str, str], homes: dict[str, str]) -> bool:
    """Whether a rule holds, or only those break it who stay, and would break it by themselves."""
    if holds(rule, hosts.items(), homes):
        return True
    come = hosts.items() - fixed.items()
    return not isinstance(rule, Root) and rule.broken(hosts.items(), come) is None


def test_a_program_leaves_out_nodes_that_are_overloaded_or_take_none() -> None:
    sizes = {"1": Resources(-1, 2), "2": Resources(2, 2), "3": Resources(2, -1)}
    nodes = [*(Node(name, size) for name, size in sizes.items()), Node("4", Resources(2, 2), NodeState.DRAINING)]
    items = [Item(VM(name, Resources(0, 0))) for name in "ab"]
    together = solve(items, nodes, [Spread(AB)], {}, {}, Wish(), Budget(PARAMETERS.search))
    assert together == Answer(None, None)
    found = solve(items, nodes, [Gather(AB)], {}, {}, Wish(), Budget(PARAMETERS.search))
    assert found == Answer({"a": "2", "b": "2"}, 0)


@given(source=configurations(max_nodes=3, max_vjobs=3).flatmap(with_rules))
@settings(max_examples=few(200), deadline=None)
def test_a_packing_obeys_all_rules_on_as_few_nodes_as_it_says(source: Configuration) -> None:
    items = [
        Item(vm, vjob.rules_of(vm))
        for vjob in source.vjobs
        for vm in vjob.vms
        if source.locations[vm.name].state is VMState.RUNNING
    ]
    assume(0 < len(items) <= 6)
    found = pack_by_rules(items, source.nodes, source.joint, source.homes, PARAMETERS.search, {})
    states = {
        vjob.name: VJobState.RUNNING
        if source.locations[vjob.vms[0].name].state is VMState.RUNNING
        else VJobState.SLEEPING
        for vjob in source.vjobs
    }
    sizes = [len(set(hosts.values())) for hosts in placements(source, states)]
    if isinstance(found, NoPacking):
        assert not sizes and found.proven
        return
    assert obeys(source, set(found.assignment.items()))
    assert found.nodes_used == len(set(found.assignment.values())) == min(sizes) == found.lower_bound


@st.composite
def moves_by_rules(draw: st.DrawFn) -> tuple[Configuration, Mapping[str, Location]]:
    """Cycles of migrations between places that both obey some rules."""
    source, target = draw(rotations())
    names, nodes = sorted(source.vm_by_name), [node.name for node in source.nodes]
    ends = {(name, at.node or "") for name, at in target.items()}
    rules = []
    for _ in range(draw(st.integers(1, 3))):
        rule = draw(joint_rule(names, nodes))
        if not rule.discrete and all(holds(rule, held, source.homes) for held in (source.homes.items(), ends)):
            rules.append(rule)
    assume(rules)
    vjobs = tuple(replace(vjob, rules=tuple(rules)) for vjob in source.vjobs)
    return Configuration(source.nodes, vjobs, source.locations), target


@given(problem=moves_by_rules())
@settings(max_examples=few(400), deadline=None)
def test_cycles_are_broken_so_that_no_step_breaks_a_rule(problem: tuple[Configuration, Mapping[str, Location]]) -> None:
    source, target = problem
    plan = build_by_rules(source, target)
    assert isinstance(plan, Plan)  # VMs that can be saved are in nobody's way
    assert check_plan(source, target, plan.pools, plan.cost) == []
    for held in steps(source, plan.pools):
        assert obeys(source, held)


@given(problem=moves_by_rules(), data=st.data())
@settings(max_examples=few(300), deadline=None)
def test_whatever_takes_long_no_arrival_breaks_a_rule(
    problem: tuple[Configuration, Mapping[str, Location]], data: st.DataObject
) -> None:
    """Actions begin in any order that their waits allow, each when it is drawn, and end when that is drawn."""
    source, target = problem
    plan = build_by_rules(source, target)
    assert isinstance(plan, Plan)
    order = dependency_order(source, plan)
    assert check_order(source, order.actions, order.needs) == []
    begun, ended = set[int](), set[int]()
    held = set(source.homes.items())
    while len(ended) < len(order.actions):
        ready = [i for i, needs in enumerate(order.needs) if i not in begun and ended.issuperset(needs)]
        choices = [*ready, *(-1 - i for i in begun - ended)]
        chosen = data.draw(st.sampled_from(sorted(choices)))
        action = order.actions[chosen if chosen >= 0 else -1 - chosen]
        if chosen >= 0:
            begun.add(chosen)
            held |= {(action.vm.name, action.demands)} if action.demands else set()
            assert obeys(source, held)
        else:
            ended.add(-1 - chosen)
            held -= {(action.vm.name, action.source)} if action.source != action.demands else set()
