"""Properties of placement: the plan holds, the bound is one, and nothing known is dearer than what is returned."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from copy import deepcopy
from random import Random

import pytest
from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.builder import build_plan
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.target import arrivals, neighbourhood, placement
from rmsplugin.planning.target.arrivals import Amounts
from rmsplugin.planning.target.columns import Columns
from rmsplugin.planning.target.counts import Counts, counts_of, with_names
from rmsplugin.planning.target.generation import Generation
from rmsplugin.planning.target.keep import Kept, bound_of, keep_all, keep_at_ease
from rmsplugin.planning.target.level import Level, levels
from rmsplugin.planning.target.node_terms import Scope
from rmsplugin.planning.target.placement import Placed, place, place_sample
from rmsplugin.planning.target.program import Part, Program
from rmsplugin.planning.target.replacement import Replacement, replacement
from rmsplugin.planning.target.waits import waits_mib

SEARCH = Search(time_limit_s=5, deterministic_limit=1)

Instance = tuple[Configuration, dict[str, VJobState], dict[str, str]]


@st.composite
def instances(
    draw: st.DrawFn, most_vjobs: int = 3, least_nodes: int = 2, sizes: Sequence[int] = (512, 1024, 2048)
) -> Instance:
    """A small cluster in any state, a decision about it, and a viable sample of that decision."""
    nodes = tuple(Node(f"n{i}", Resources(2, 4096)) for i in range(draw(st.integers(least_nodes, 3))))
    left = {node.name: node.capacity for node in nodes}
    memory = {node.name: node.capacity.memory_mib for node in nodes}
    queue, locations, states, sample = [], {}, {}, {}
    for number in range(draw(st.integers(1, most_vjobs))):
        vms = tuple(
            VM(f"v{number}-{i}", Resources(draw(st.sampled_from([0, 1])), draw(st.sampled_from(sizes))))
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
@settings(max_examples=few(150))
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
    nodes = min(len(hosting(target)) for target in every_target(instance))
    assert placed.nodes_lower_bound <= nodes <= placed.nodes_used


@given(instances())
@settings(max_examples=few(150))
def test_what_waits_for_suspends_is_below_every_plan(instance: Instance) -> None:
    configuration, states, sample = instance
    plans = [plan for target in every_target(instance) if isinstance(plan := build_plan(configuration, target), Plan)]
    problem = replacement(configuration, states, sample)
    assert bound_of(problem, keep_at_ease(problem)) + waits_mib(problem) <= min(plan.cost for plan in plans)


@given(instances(most_vjobs=6, least_nodes=3, sizes=(512, 1024)))
@settings(max_examples=few(150))
def test_to_place_only_who_acts_is_to_place_all(instance: Instance) -> None:
    configuration, states, sample = instance
    quick = place(configuration, states, sample, search=SEARCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "_place_acting", lambda *_: None)
        assert place(configuration, states, sample, search=SEARCH) == quick


def every_stop_on_the_way(instance: Instance) -> list[Configuration]:
    """What shall run, placed anywhere with enough memory (CPUs only count in the end)."""
    configuration, states, sample = instance
    nodes = tuple(Node(node.name, Resources(99, node.capacity.memory_mib)) for node in configuration.nodes)
    idle = Configuration(nodes, configuration.vjobs, configuration.locations)
    return [configuration.with_locations(target) for target in every_target((idle, states, sample))]


@given(instances(most_vjobs=2, least_nodes=3))
@settings(max_examples=few(60))
def test_the_bound_is_below_every_plan_by_way_of_somewhere_else(instance: Instance) -> None:
    configuration, states, sample = instance
    placed = place(configuration, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    ends = every_target(instance)
    for stop in every_stop_on_the_way(instance):
        there = build_plan(configuration, stop.locations)
        assert isinstance(there, Plan)
        if there.cost <= placed.lower_bound:
            onwards = [plan for end in ends if isinstance(plan := build_plan(stop, end), Plan)]
            assert placed.lower_bound <= min(Plan(there.pools + plan.pools).cost for plan in onwards)


@given(instances())
@settings(max_examples=few(150))
def test_the_program_s_own_bounds_are_below_every_plan(instance: Instance) -> None:
    configuration, states, sample = instance
    plans = [plan for target in every_target(instance) if isinstance(plan := build_plan(configuration, target), Plan)]
    cheapest = min(plan.cost for plan in plans)
    problem = replacement(configuration, states, sample)
    kept = keep_all(problem)
    assert bound_of(problem, kept) <= cheapest
    whole = Program(problem, kept, Level(problem.wait_mib)).solve(SEARCH)
    assert whole.counts is not None
    assert whole.lower_bound <= cheapest
    bounds = [Program(problem, kept, level).solve(SEARCH) for level in levels(problem)]
    assert min(solved.lower_bound for solved in bounds if not solved.infeasible) <= cheapest


#: MiB, and at most so many entries of a table of rooms: 4,096 steps of 1 MiB are rounded to 80, or not at all.
SIZES = st.sampled_from([((512, 1024, 2048), 100_000), ((301, 777, 1310, 2047), 100_000), ((301, 777, 2047), 240)])


@given(st.data(), SIZES)
@settings(max_examples=few(120))
def test_columns_bound_each_level_below_its_program_and_all_plans(
    data: st.DataObject, sizes: tuple[tuple[int, ...], int]
) -> None:
    instance = data.draw(instances(sizes=sizes[0]))
    configuration = instance[0]
    plans = [plan for target in every_target(instance) if isinstance(plan := build_plan(configuration, target), Plan)]
    problem, kept, _, _ = start(instance)
    bounds: list[int] = []
    prices: Amounts | None = None
    # Prices of another program, whose rows are others, are as good a start as any.
    for is_relaxed, level in [(False, Level(problem.wait_mib)), *((True, each) for each in levels(problem))]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arrivals, "_MOST_ENTRIES", sizes[1])
            generation = Generation(Columns(problem, level, is_relaxed, Budget(SEARCH)), Budget(SEARCH), prices)
        generation.relax()
        prices = generation.prices
        bound = problem.fixed_cost + generation.bound_mib
        if is_relaxed:
            whole = Program(problem, kept, level).solve(SEARCH)
            assert whole.infeasible or bound <= whole.lower_bound
            bounds.append(bound)
        for counts in generation.answers(Budget(SEARCH), SEARCH):
            assert not configuration.with_locations(with_names(problem, counts).target).overloaded()
    assert min(bounds) <= min(plan.cost for plan in plans)


@given(instances(), st.sampled_from(["cost", "nodes"]))
@settings(max_examples=few(100))
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
@settings(max_examples=few(40))
def test_the_same_question_has_the_same_answer(instance: Instance) -> None:
    configuration, states, sample = instance
    first, second = (place(configuration, states, sample, search=SEARCH) for _ in range(2))
    assert first == second


def start(instance: Instance) -> tuple[Replacement, list[Kept], Counts, Plan]:
    """The problem of an instance, the plan to its sample, and the counts of that."""
    configuration, states, sample = instance
    problem = replacement(configuration, states, sample)
    target = {**{name: running_on(host) for name, host in sample.items()}, **problem.fixed}
    plan = build_plan(configuration, target)
    assert isinstance(plan, Plan)
    kept = keep_all(problem)
    return problem, kept, counts_of(problem, target, plan.early_arrivals()), plan


@given(instances())
@settings(max_examples=few(100))
def test_the_counts_of_a_plan_cost_no_more_than_the_plan_and_the_program_s_cost_is_theirs(instance: Instance) -> None:
    problem, kept, counts, plan = start(instance)
    assert counts.total_mib(problem, problem.wait_mib) <= plan.cost
    solved = Program(problem, kept, Level(problem.wait_mib), scope=Scope.DIRECT).solve(SEARCH, counts)
    if solved.counts is not None:
        assert solved.lower_bound == solved.cost == solved.counts.total_mib(problem, problem.wait_mib)
    else:
        assert solved.infeasible  # two pools are not enough


@given(instances())
@settings(max_examples=few(150))
def test_what_the_direct_program_finds_is_a_plan_of_that_cost(instance: Instance) -> None:
    configuration, states, sample = instance
    problem = replacement(configuration, states, sample)
    kept = keep_all(problem)
    for level in levels(problem):
        solved = Program(problem, kept, level, scope=Scope.DIRECT).solve(SEARCH)
        if solved.counts is not None and level.wait_mib == level.dearest_mib:
            named = with_names(problem, solved.counts)
            plan = build_plan(configuration, named.target, early=named.early)
            assert isinstance(plan, Plan)
            assert plan.cost <= solved.cost


@given(instances())
@settings(max_examples=few(60))
def test_a_part_of_all_nodes_is_the_whole_program(instance: Instance) -> None:
    problem, kept, counts, _ = start(instance)
    part = Part(range(len(problem.places)), counts)
    for scope in Scope:
        for level in levels(problem):
            whole = Program(problem, kept, level, scope=scope).solve(SEARCH)
            same = Program(problem, kept, level, scope=scope, part=part).solve(SEARCH)
            assert (same.cost, same.infeasible) == (whole.cost, whole.infeasible)


@given(instances(), st.randoms(use_true_random=False))
@settings(max_examples=few(100))
def test_a_part_changes_its_nodes_only_and_all_that_holds_for_counts_holds_after_it(
    instance: Instance, chance: Random
) -> None:
    problem, kept, counts, _ = start(instance)
    level, everything = Level(problem.wait_mib), range(len(problem.places))
    for _ in range(3):
        nodes = chance.sample(everything, chance.randint(1, len(everything) - 1))
        before, cost = deepcopy(counts), counts.total_mib(problem, level.wait_mib)
        most_nodes = sum(map(counts.are_on, everything))
        program = Program(problem, kept, level, most_nodes, cost, Scope.DIRECT, Part(nodes, counts))
        solved = program.solve(SEARCH, counts)
        assert counts == before
        if solved.counts is None:
            continue  # the counts are no plan of two pools
        counts = solved.counts
        assert counts.total_mib(problem, level.wait_mib) == solved.cost <= cost
        assert sum(map(counts.are_on, everything)) <= most_nodes
        for i in set(everything) - set(nodes):
            assert (counts.kept[i], counts.early[i], counts.late[i]) == (
                before.kept[i],
                before.early[i],
                before.late[i],
            )
        assert all(counts.early_mib(problem, i) <= place.early_m for i, place in enumerate(problem.places))
    named = with_names(problem, counts)
    assert isinstance(build_plan(instance[0], named.target), Plan)
    again = counts_of(problem, named.target, named.early)
    assert again.total_mib(problem, level.wait_mib) <= counts.total_mib(problem, level.wait_mib)


@given(instances(), st.sampled_from(["cost", "nodes"]))
@settings(max_examples=few(60))
def test_a_cluster_too_large_for_one_program_is_placed_part_by_part(instance: Instance, objective: str) -> None:
    configuration, states, sample = instance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "_MOST_PAIRS", 0)
        patch.setattr(neighbourhood, "NODES", 2)
        patch.setattr(placement, "NODES", 2)
        placed = place(configuration, states, sample, objective, SEARCH)  # type: ignore[arg-type]
    baseline = place_sample(configuration, states, sample)
    assert isinstance(placed, Placed) and isinstance(baseline, Placed)
    assert check_plan(configuration, placed.target, placed.plan.pools, placed.plan.cost) == []
    few = 3 if objective == "cost" else placed.nodes_used
    targets = [target for target in every_target(instance) if len(hosting(target)) <= few]
    plans = [plan for target in targets if isinstance(plan := build_plan(configuration, target), Plan)]
    assert placed.lower_bound <= min(plan.cost for plan in plans)
    if objective == "cost":
        assert placed.plan.cost <= baseline.plan.cost


def hosting(target: dict[str, Location]) -> set[str | None]:
    return {location.node for location in target.values() if location.state is VMState.RUNNING}
