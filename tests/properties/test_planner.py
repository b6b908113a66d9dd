"""Properties of plans over generated clusters: the target is reached, memory is never overcommitted, rules are kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from examples import few
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rmsplugin.model.action import Action, ActionKind
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.planning.cost import plan_cost
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.order.dependencies import dependency_order
from rmsplugin.planning.order.improve import Tries, cheapest
from rmsplugin.planning.order.makespan import makespan
from rmsplugin.planning.order.moves import Moves, moves_between
from rmsplugin.planning.order.transfers import Durations
from rmsplugin.planning.plan import Plan

Instance = tuple[Configuration, dict[str, Location]]
ARRIVALS = (ActionKind.RUN, ActionKind.MIGRATE, ActionKind.RESUME)
sizes = st.sampled_from([0, 256, 512, 512, 1024, 1024, 1536, 2048])


def place(draw: st.DrawFn, left: dict[str, int], vm: VM, nodes: list[str]) -> str | None:
    """A node with room, preferably one that is full afterwards: crowded clusters have the cycles."""
    fitting = [name for name in nodes if left[name] >= vm.demand.memory_mib]
    if not fitting:
        return None
    node = draw(st.sampled_from(fitting))
    left[node] -= vm.demand.memory_mib
    return node


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """A configuration and a target that is viable in memory; a node may be overcommitted at first, or draining."""
    names = [f"n{i}" for i in range(draw(st.integers(1, 5)))]
    memory = {name: draw(st.sampled_from([1024, 2048, 3072])) for name in names}
    vjobs = []
    for number in range(draw(st.integers(1, 7))):
        demands = draw(st.lists(sizes, min_size=1, max_size=4))
        vms = tuple(VM(f"j{number}-{i}", Resources(1, each)) for i, each in enumerate(demands))
        exclude = frozenset(draw(st.sets(st.sampled_from(names), max_size=len(names) // 3)))
        vjobs.append(VJob(f"j{number}", vms, preemptible=draw(st.booleans()), rules=allowing(exclude=exclude)))
    before, after = dict(memory), dict(memory)
    source: dict[str, Location] = {}
    target: dict[str, Location] = {}
    draining = draw(st.booleans()) and len(names) > 1 and draw(st.sampled_from(names))
    for vjob in vjobs:
        wanted = draw(st.sampled_from([VMState.RUNNING, VMState.RUNNING, *VMState]))
        for vm in vjob.vms:
            state = draw(st.sampled_from([VMState.RUNNING, VMState.RUNNING, *VMState]))
            host = place(draw, before, vm, names) if state is VMState.RUNNING else None
            if state is VMState.SLEEPING:
                source[vm.name] = sleeping_on(draw(st.sampled_from([*names, SHARED])))
            elif host:
                source[vm.name] = running_on(host)
            else:
                source[vm.name] = TERMINATED if state is VMState.TERMINATED else WAITING
            allowed = [name for name in names if vjob.allows(name) and name != draining]
            target[vm.name] = location_after(draw, vm, source[vm.name], wanted, after, allowed)
    if draw(st.booleans()):  # demands that have grown: more than there is, at the start
        crowded = draw(st.sampled_from(names))
        memory[crowded] -= min(256, after[crowded])
    states = {name: NodeState.DRAINING if name == draining else NodeState.UP for name in names}
    nodes = tuple(Node(name, Resources(64, memory[name]), states[name]) for name in names)
    return Configuration(nodes, tuple(vjobs), source), target


@st.composite
def crowds(draw: st.DrawFn) -> Instance:
    """Full nodes whose running VMs change places: cycles, with little or no room for a bypass."""
    names = [f"n{i}" for i in range(draw(st.integers(2, 5)))]
    size = draw(st.sampled_from([256, 512]))
    slots = draw(st.integers(1, 4))
    places = draw(st.permutations([name for name in names for _ in range(slots)]))
    ends = draw(st.permutations(places))
    empty = draw(st.integers(0, 2))
    vms = [VM(f"j{i:02}-0", Resources(1, size)) for i in range(len(places) - empty)]
    halves = draw(st.sets(st.integers(0, len(vms) - 1)) if vms else st.just(set[int]()))
    vms = [VM(vm.name, Resources(1, size // 2)) if i in halves else vm for i, vm in enumerate(vms)]
    vjobs = tuple(VJob(vm.name[:3], (vm,), preemptible=draw(st.booleans())) for vm in vms)
    nodes = tuple(Node(name, Resources(64, size * slots)) for name in names)
    source = {vm.name: running_on(place) for vm, place in zip(vms, places, strict=False)}
    target = {vm.name: running_on(place) for vm, place in zip(vms, ends, strict=False)}
    return Configuration(nodes, vjobs, source), target


def location_after(
    draw: st.DrawFn, vm: VM, now: Location, wanted: VMState, left: dict[str, int], allowed: list[str]
) -> Location:
    """What a VM can become: as wanted if there is room and a way."""
    if now.state is VMState.TERMINATED:
        return now
    if wanted is VMState.RUNNING:
        stays = now.state is VMState.RUNNING and draw(st.integers(0, 3)) == 0
        if host := place(draw, left, vm, [now.node or ""] if stays and now.node in allowed else allowed):
            return running_on(host)
    if now.state is VMState.WAITING:
        return WAITING  # which is also where a VM stays that would be terminated: no action is needed
    if wanted in (VMState.WAITING, VMState.TERMINATED):
        return Location(wanted)
    if now.state is VMState.RUNNING:
        return sleeping_on(draw(st.sampled_from([now.node or "", SHARED])))
    return now


def plan_of(instance: Instance, most: float = math.inf) -> Plan:
    plan = build_plan(*instance, tries=Tries(most))
    assert isinstance(plan, Plan), plan
    return plan


def memory_held(source: Configuration, locations: Mapping[str, Location]) -> Counter[str]:
    held: Counter[str] = Counter()
    for vjob in source.vjobs:
        for vm in vjob.vms:
            if locations[vm.name].state is VMState.RUNNING:
                held[locations[vm.name].node or ""] += vm.demand.memory_mib
    return held


def after(action: Action, locations: Mapping[str, Location]) -> Location:
    """Where an action leaves its VM, by the definition of the actions and not by what the planner shares with them."""
    now = locations[action.vm.name]
    match action.kind:
        case ActionKind.RUN:
            assert now == WAITING
        case ActionKind.STOP:
            assert now.state in (VMState.RUNNING, VMState.SLEEPING) and now.node == action.source
            return WAITING if action.requeue else TERMINATED
        case ActionKind.SUSPEND:
            assert now == running_on(action.source or "") and action.destination in (action.source, SHARED)
            return sleeping_on(action.destination or "")
        case ActionKind.MIGRATE:
            assert now == running_on(action.source or "") and action.source != action.destination
        case ActionKind.RESUME:
            assert now == sleeping_on(action.source or "")
    return running_on(action.destination or "")


@settings(max_examples=few(600))
@given(instances() | crowds())
def test_a_plan_reaches_its_target_and_never_overcommits_memory(instance: Instance) -> None:
    source, target = instance
    plan = plan_of(instance)
    event(f"bypasses: {min(3, sum(action.bypass for action in plan.actions()))}, pools: {min(5, len(plan.pools))}")
    locations = dict(source.locations)
    capacity = {node.name: node.capacity.memory_mib for node in source.nodes}
    for pool in plan.pools:
        assert pool, "no pool is empty"
        assert len({action.vm.name for action in pool}) == len(pool), "one action on a VM at a time"
        held = memory_held(source, locations)
        for action in pool:  # a VM that arrives holds memory from the start, one that leaves until the end
            if action.kind in ARRIVALS:
                destination = action.destination or ""
                held[destination] += action.vm.demand.memory_mib
                assert held[destination] <= capacity[destination]
                assert source.node_by_name[destination].state is NodeState.UP
                assert source.vjob_by_vm[action.vm.name].allows(destination)
        locations.update({action.vm.name: after(action, locations) for action in pool})
    assert locations == {**source.locations, **target}


@settings(max_examples=few(300))
@given(instances() | crowds())
def test_departures_come_first_and_the_resumes_of_a_vjob_together(instance: Instance) -> None:
    pools = plan_of(instance).pools
    for number, pool in enumerate(pools):
        leaving = [action for action in pool if action.kind not in ARRIVALS and not action.bypass]
        assert number == 0 or not leaving, "R1"
        assert [(action.kind, action.vm.name) for action in pool] == sorted(
            ((action.kind, action.vm.name) for action in pool),
            key=lambda each: (("stop", "suspend", "migrate", "run", "resume").index(each[0]), each[1]),
        )
    resumes: dict[str, set[int]] = {}
    for number, pool in enumerate(pools):
        for action in pool:
            if action.kind is ActionKind.RESUME and not action.bypass:
                resumes.setdefault(action.vm.name.partition("-")[0], set()).add(number)
    assert all(len(numbers) == 1 for numbers in resumes.values()), "R2"


@settings(max_examples=few(300))
@given(instances() | crowds())
def test_a_plan_is_never_dearer_than_the_plain_greedy_and_always_the_same(instance: Instance) -> None:
    source, target = instance
    plan, greedy = plan_of(instance), plan_of(instance, 0)
    event(f"cheaper: {plan.cost < greedy.cost}")
    assert (plan.cost, len(list(plan.actions()))) <= (greedy.cost, len(list(greedy.actions())))
    assert asleep(source, plan) <= asleep(source, greedy), "nobody stands still for a cheaper order"
    backwards = dict(reversed(target.items()))
    assert build_plan(replace(source, checked=False), backwards) == plan


def asleep(source: Configuration, plan: Plan) -> Counter[bool]:
    """How many VMs are suspended for a bypass, by whether their vjob is preemptible."""
    kinds = [each.vm.name for each in plan.actions() if each.bypass and each.kind is ActionKind.SUSPEND]
    return Counter(source.vjob_by_vm[name].preemptible for name in kinds)


@settings(max_examples=few(300))
@given(instances() | crowds())
def test_the_cost_that_is_searched_with_is_the_cost_of_the_plan(instance: Instance) -> None:
    moves = moves_between(*instance)
    assert isinstance(moves, Moves)
    for most in (0, math.inf):
        schedule = cheapest(moves, tries=Tries(most))
        assert schedule.cost == plan_cost(schedule.actions())


@settings(max_examples=few(300))
@given(instances() | crowds())
def test_what_was_asked_for_early_changes_no_rule(instance: Instance) -> None:
    source, target = instance
    early = frozenset(list(target)[::2])
    plan = build_plan(source, target, early=early)
    assert isinstance(plan, Plan)
    configuration = source
    for pool in plan.pools:
        for action in pool:
            configuration = action.apply(configuration)
    assert configuration.locations == {**source.locations, **target}


@settings(max_examples=few(500))
@given(instances() | crowds(), st.data())
def test_memory_is_not_overcommitted_whatever_each_action_takes_by_the_dependency_order(
    instance: Instance, data: st.DataObject
) -> None:
    """An executor that begins each action as soon as its needs have ended; each action takes a drawn time."""
    source, target = instance
    plan = plan_of(instance)
    order = dependency_order(source, plan)
    assert order.actions == tuple(plan.actions())
    takes = data.draw(st.lists(st.integers(1, 9), min_size=len(order.actions), max_size=len(order.actions)))
    capacity = {node.name: node.capacity.memory_mib for node in source.nodes}
    locations = dict(source.locations)
    held = memory_held(source, locations)
    running: dict[int, int] = {}  # the end of each action that has begun
    ended: set[int] = set()
    now = 0
    while len(ended) < len(order.actions):
        begins = [
            i for i, needs in enumerate(order.needs) if i not in ended and i not in running and ended.issuperset(needs)
        ]
        assert begins or running, "nothing can begin, and nothing will end"
        for i in begins:
            action = order.actions[i]
            after(action, locations)  # it must be where the action takes it from
            running[i] = now + takes[i]
            if action.kind in ARRIVALS:
                held[action.destination or ""] += action.vm.demand.memory_mib
                assert held[action.destination or ""] <= capacity[action.destination or ""]
        now = min(running.values())
        for i in [i for i, end in running.items() if end == now]:
            del running[i]
            ended.add(i)
            action = order.actions[i]
            before, locations[action.vm.name] = locations[action.vm.name], after(action, locations)
            if before.state is VMState.RUNNING:
                held[before.node or ""] -= action.vm.demand.memory_mib
    assert locations == {**source.locations, **target}


@settings(max_examples=few(200))
@given(instances() | crowds())
def test_nothing_ends_before_what_it_waits_for_or_faster_than_alone(instance: Instance) -> None:
    source, _ = instance
    plan = plan_of(instance)
    order, durations = dependency_order(source, plan), Durations()
    estimate = makespan(plan, order, durations)
    pools = iter(order.actions)
    number = {id(action): i for i, pool in enumerate(plan.pools) for action in (next(pools) for _ in pool)}
    for i, (action, needs) in enumerate(zip(order.actions, order.needs, strict=True)):
        alone = durations.of(action).constant_s + durations.of(action).s_per_mib * action.vm.demand.memory_mib
        assert estimate.ends_s[i] >= max((estimate.ends_s[need] for need in needs), default=0.0) + alone - 1e-6
        assert all(number[id(order.actions[need])] < number[id(action)] for need in needs), "of earlier pools"
    assert estimate.by_dependencies_s == max(estimate.ends_s, default=0.0)
