"""Properties of placement: the plan holds, the bound is one, and nothing known is dearer than what is returned."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.builder import build_plan
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.keep import keep
from rmsplugin.planning.levels import levels
from rmsplugin.planning.placement import Placed, place, place_sample
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.program import Level, Program
from rmsplugin.planning.replacement import replacement

SEARCH = Search(time_limit_s=5, deterministic_limit=1)

Instance = tuple[Configuration, dict[str, VJobState], dict[str, str]]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """A small cluster in any state, a decision about it, and a viable sample of that decision."""
    nodes = tuple(Node(f"n{i}", Resources(2, 4096)) for i in range(draw(st.integers(2, 3))))
    left = {node.name: node.capacity for node in nodes}
    memory = {node.name: node.capacity.memory_mib for node in nodes}
    queue, locations, states, sample = [], {}, {}, {}
    for number in range(draw(st.integers(1, 3))):
        vms = tuple(
            VM(f"v{number}-{i}", Resources(draw(st.sampled_from([0, 1])), draw(st.sampled_from([512, 1024, 2048]))))
            for i in range(draw(st.integers(1, 2)))
        )
        now = draw(st.sampled_from([VMState.WAITING, VMState.RUNNING, VMState.SLEEPING]))
        found = {vm.name: _location(draw, now, vm, memory) for vm in vms}
        if None in found.values():
            continue
        locations |= {name: location for name, location in found.items() if location is not None}
        queue.append(VJob(f"v{number}", vms))
        before = dict(left)
        hosts = {vm.name: _take(left, vm) for vm in reversed(vms)}
        if None in hosts.values() or not draw(st.booleans()):
            left = before
            states[f"v{number}"] = VJobState.WAITING if now is VMState.WAITING else VJobState.SLEEPING
        else:
            states[f"v{number}"] = VJobState.RUNNING
            sample |= {name: host for name, host in hosts.items() if host is not None}
    return Configuration(nodes, tuple(queue), locations), states, sample


def _location(draw: st.DrawFn, state: VMState, vm: VM, memory: dict[str, int]) -> Location | None:
    if state is VMState.WAITING:
        return WAITING
    if state is VMState.SLEEPING:
        return sleeping_on(draw(st.sampled_from(sorted(memory))))
    with_room = [name for name, free in memory.items() if free >= vm.demand.memory_mib]
    if not with_room:
        return None
    host = draw(st.sampled_from(with_room))
    memory[host] -= vm.demand.memory_mib
    return running_on(host)


def _take(left: dict[str, Resources], vm: VM) -> str | None:
    host = next((name for name, free in left.items() if free.holds(vm.demand)), None)
    if host is not None:
        left[host] -= vm.demand
    return host


def every_target(instance: Instance) -> list[dict[str, Location]]:
    """All viable placements of what shall run, by trying them all."""
    configuration, states, sample = instance
    fixed = {}
    for vjob in configuration.vjobs:
        if states[vjob.name] is not VJobState.RUNNING:
            for vm in vjob.vms:
                location = configuration.locations[vm.name]
                fixed[vm.name] = sleeping_on(location.node or "") if location.node else WAITING
    found = []
    for hosts in itertools.product([node.name for node in configuration.nodes], repeat=len(sample)):
        target = {**fixed, **{name: running_on(host) for name, host in zip(sample, hosts, strict=True)}}
        if not configuration.with_locations(target).overloaded():
            found.append(target)
    return found


@given(instances())
@settings(deadline=None, max_examples=150)
def test_the_bound_is_below_every_plan_and_the_answer_among_the_cheapest(instance: Instance) -> None:
    configuration, states, sample = instance
    placed = place(configuration, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    plans = [plan for target in every_target(instance) if isinstance(plan := build_plan(configuration, target), Plan)]
    cheapest = min(plan.cost for plan in plans)
    assert placed.lower_bound <= cheapest
    assert placed.lower_bound <= placed.plan.cost
    if placed.optimal:
        assert placed.plan.cost == cheapest
    nodes = min(
        len({location.node for location in target.values() if location.state is VMState.RUNNING})
        for target in every_target(instance)
    )
    assert placed.nodes_lower_bound <= nodes <= placed.nodes_used


@given(instances())
@settings(deadline=None, max_examples=150)
def test_the_program_s_own_bounds_are_below_every_plan(instance: Instance) -> None:
    configuration, states, sample = instance
    plans = [plan for target in every_target(instance) if isinstance(plan := build_plan(configuration, target), Plan)]
    cheapest = min(plan.cost for plan in plans)
    problem = replacement(configuration, states, sample)
    kept = [keep(place, problem.classes, problem.wait_mib) for place in problem.places]
    assert problem.fixed_cost + sum(each.bound_mib for each in kept) <= cheapest
    whole = Program(problem, kept, Level(problem.wait_mib)).solve(SEARCH)
    assert whole.counts is not None
    assert whole.lower_bound <= cheapest
    bounds = [Program(problem, kept, level).solve(SEARCH) for level in levels(problem)]
    assert min(solved.lower_bound for solved in bounds if not solved.infeasible) <= cheapest


@given(instances(), st.sampled_from(["cost", "nodes"]))
@settings(deadline=None, max_examples=100)
def test_the_plan_holds_and_is_never_dearer_than_the_sample_s(instance: Instance, objective: str) -> None:
    configuration, states, sample = instance
    placed = place(configuration, states, sample, objective, SEARCH)  # type: ignore[arg-type]
    baseline = place_sample(configuration, states, sample)
    assert isinstance(placed, Placed) and isinstance(baseline, Placed)
    assert check_plan(configuration, placed.target, placed.plan.pools, placed.plan.cost) == []
    assert placed.lower_bound <= placed.plan.cost
    if objective == "cost":
        assert placed.plan.cost <= baseline.plan.cost
    else:
        assert placed.nodes_used <= baseline.nodes_used


@given(instances())
@settings(deadline=None, max_examples=40)
def test_the_same_question_has_the_same_answer(instance: Instance) -> None:
    configuration, states, sample = instance
    first, second = (place(configuration, states, sample, search=SEARCH) for _ in range(2))
    assert first == second
