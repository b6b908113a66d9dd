"""Placement: worked examples of what waits, of few nodes, of solvers' bounds, and of large clusters."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from bench import families
from bench.families import rr6929
from bench.switching import decided

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.action import ActionKind, migrate, resume, run, stop, suspend
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, NodeState, VJob, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.search import Search
from rmsplugin.packing.solver_time import SPENT
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.plan import Plan
from rmsplugin.planning.target import arrivals, generation, neighbourhood, placement, program
from rmsplugin.planning.target import levels as target_levels
from rmsplugin.planning.target.arrivals import Arrivals, Grid
from rmsplugin.planning.target.choices import UnsuitableError
from rmsplugin.planning.target.columns import Columns
from rmsplugin.planning.target.counts import Counts, Named, counts_of, with_names
from rmsplugin.planning.target.generation import Generation
from rmsplugin.planning.target.incumbent import Incumbent
from rmsplugin.planning.target.keep import Kept, bound_of, keep_all
from rmsplugin.planning.target.level import Level, levels
from rmsplugin.planning.target.levels import search_levels
from rmsplugin.planning.target.neighbourhood import Neighbourhoods
from rmsplugin.planning.target.node_terms import Scope
from rmsplugin.planning.target.placement import Placed, place, place_sample
from rmsplugin.planning.target.program import Part, Program
from rmsplugin.planning.target.replacement import Replacement, replacement
from rmsplugin.planning.target.solver import is_too_large, round_up

SEARCH = Search(time_limit_s=60, workers=1, deterministic_limit=2)

RUNS, SLEEPS = VJobState.RUNNING, VJobState.SLEEPING


def vjob(name: str, *memory_mib: int, cpus: float = 0) -> VJob:
    return VJob(name, tuple(VM(f"{name}-{i}", Resources(cpus, memory)) for i, memory in enumerate(memory_mib)))


def cluster(memory_mib: int, *vjobs: VJob, **locations: Location) -> Configuration:
    """n1 and n2 of this size; VMs without a given location wait."""
    nodes = tuple(Node(name, Resources(4, memory_mib)) for name in ("n1", "n2"))
    everywhere = {vm.name: locations.get(vm.name.replace("-", "_"), WAITING) for each in vjobs for vm in each.vms}
    return Configuration(nodes, vjobs, everywhere)


def test_a_run_in_the_room_of_a_suspended_vm_waits_for_it() -> None:
    source = cluster(
        2048,
        vjob("a", 1024),
        vjob("b", 2048),
        vjob("c", 2048),
        a_0=running_on("n1"),
        c_0=running_on("n2"),
    )
    states = {"a": SLEEPS, "b": RUNS, "c": RUNS}
    placed = place(source, states, {"b-0": "n1", "c-0": "n2"}, search=SEARCH)
    assert isinstance(placed, Placed)
    # The suspend costs 1024, and the run in the pool after it 1024 for waiting.
    assert (placed.plan.cost, placed.lower_bound) == (2048, 2048)
    problem = replacement(source, states, {"b-0": "n1", "c-0": "n2"})
    kept = keep_all(problem)
    assert problem.fixed_cost + sum(each.bound_mib for each in kept) == 1024, "only the program knows that it waits"
    assert [level.wait_mib for level in levels(problem)] == [1024, 2048]
    # If the first pool costs 2048 (c migrates), the run waits for that.
    bounds = [Program(problem, kept, level).solve(SEARCH).lower_bound for level in (Level(1024), Level(2048))]
    assert bounds == [2048, 3072]


def test_of_what_has_no_room_early_the_fewest_wait() -> None:
    """n1 has 3072 MiB free at the start, and 1024 more once a sleeps: either b or the three of c wait."""
    source = cluster(
        4096,
        vjob("a", 1024),
        vjob("b", 1024),
        vjob("c", 1024),
        vjob("d", 2048),
        vjob("e", 4096),
        a_0=running_on("n1"),
        e_0=running_on("n2"),
    )
    states = {"a": SLEEPS, **dict.fromkeys("bcde", RUNS)}
    sample = {"b-0": "n1", "c-0": "n1", "d-0": "n1", "e-0": "n2"}
    placed = place(source, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    assert [len(pool) for pool in placed.plan.pools] == [3, 1]
    assert (placed.plan.cost, placed.lower_bound) == (2048, 2048)


@pytest.mark.parametrize("pairs", [placement._MOST_PAIRS, 0], ids=["one program", "blocks"])
def test_saved_states_are_kept_where_they_lie_though_the_sample_moves_them(
    monkeypatch: pytest.MonkeyPatch, pairs: int
) -> None:
    """First Fit Decreasing puts b and c on each other's node; both can resume where they are, beside a."""
    monkeypatch.setattr(placement, "_MOST_PAIRS", pairs)
    source = cluster(
        4096,
        vjob("a", 1024),
        vjob("b", 3072),
        vjob("c", 3072),
        a_0=running_on("n1"),
        b_0=sleeping_on("n1"),
        c_0=sleeping_on("n2"),
    )
    states = dict.fromkeys("abc", RUNS)
    sample = {"a-0": "n1", "b-0": "n2", "c-0": "n1"}
    placed, baseline = place(source, states, sample, search=SEARCH), place_sample(source, states, sample)
    assert isinstance(placed, Placed) and isinstance(baseline, Placed)
    assert (placed.plan.cost, placed.lower_bound, baseline.plan.cost) == (6144, 6144, 12288)
    assert placed.optimal and not baseline.optimal
    assert check_plan(source, placed.target, placed.plan.pools, placed.plan.cost) == []


def test_the_fewest_nodes_come_first_and_then_the_cheapest_plan_on_so_many() -> None:
    source = cluster(4096, vjob("a", 2048), vjob("b", 1024), vjob("c", 512), a_0=running_on("n1"), b_0=running_on("n2"))
    states = dict.fromkeys("abc", RUNS)
    sample = {"a-0": "n1", "b-0": "n2", "c-0": "n2"}
    spread = place(source, states, sample, "cost", SEARCH)
    dense = place(source, states, sample, "nodes", SEARCH)
    assert isinstance(spread, Placed) and isinstance(dense, Placed)
    assert (spread.plan.cost, spread.nodes_used, spread.nodes_lower_bound) == (0, 2, 1)
    # b goes to a, and not a to b.
    assert (dense.plan.cost, dense.lower_bound, dense.nodes_used, dense.nodes_lower_bound) == (1024, 1024, 1, 1)
    assert {location.node for location in dense.target.values()} == {"n1"}


def test_a_saved_state_whose_room_is_not_free_yet_waits_or_is_copied() -> None:
    """n1 has 1024 MiB free until a sleeps. Where n2 is full, b waits for that; else it is copied there."""
    source = cluster(
        4096,
        vjob("a", 3072),
        vjob("b", 2048),
        vjob("c", 4096),
        a_0=running_on("n1"),
        b_0=sleeping_on("n1"),
        c_0=running_on("n2"),
    )
    states, sample = {"a": SLEEPS, "b": RUNS, "c": RUNS}, {"b-0": "n1", "c-0": "n2"}
    placed = place(source, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.lower_bound) == (3072 + 2048 + 3072, 8192)
    problem = replacement(source, states, sample)
    kept = keep_all(problem)
    # By itself n1 would rather copy it than let it wait.
    assert [each.bound_mib for each in kept] == [2048, 0]
    solved = Program(problem, kept, Level(problem.wait_mib)).solve(SEARCH)
    assert (solved.cost, solved.lower_bound) == (8192, 8192)
    roomy = Configuration(source.nodes, source.vjobs[:2], {n: source.locations[n] for n in ("a-0", "b-0")})
    copied = place(roomy, {"a": SLEEPS, "b": RUNS}, {"b-0": "n1"}, search=SEARCH)
    assert isinstance(copied, Placed)
    assert (copied.plan.cost, copied.lower_bound) == (3072 + 2 * 2048, 7168)


def test_where_a_copy_costs_more_than_to_wait_a_node_lets_wait() -> None:
    source = cluster(4096, vjob("a", 1024), vjob("b", 3584), a_0=running_on("n1"), b_0=sleeping_on("n1"))
    states, sample = {"a": SLEEPS, "b": RUNS}, {"b-0": "n1"}
    problem = replacement(source, states, sample)
    kept = keep_all(problem)
    assert [each.bound_mib for each in kept] == [1024, 0]
    solved = Program(problem, kept, Level(problem.wait_mib)).solve(SEARCH)
    assert solved.cost == solved.lower_bound == 1024 + 3584 + 1024
    placed = place(source, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.lower_bound) == (5632, 5632)


def test_a_vjob_is_early_by_a_detour_where_that_is_cheaper_than_the_best_plan_without() -> None:
    """Found by an adversary: y can resume early as well if x makes a detour over its own node.

    k needs the CPU of n2, so that x cannot stay there. Without a detour x is late, and y with it, or k migrates. But x
    may resume at home at once, and migrate to n1 when o sleeps.
    """
    nodes = tuple(Node(name, Resources(1, 100)) for name in ("n1", "n2", "n3"))
    vjobs = (vjob("k", 80, cpus=1), vjob("j", 20, 20, cpus=1), vjob("o", 100, cpus=1))
    _, x, y, o = (vm for each in vjobs for vm in each.vms)
    locations = {
        "k-0": running_on("n2"),
        "j-0": sleeping_on("n2"),
        "j-1": sleeping_on("n3"),
        "o-0": running_on("n1"),
    }
    source = Configuration(nodes, vjobs, locations)
    states, sample = {"k": RUNS, "j": RUNS, "o": SLEEPS}, {"k-0": "n2", "j-0": "n1", "j-1": "n3"}
    placed = place(source, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    wakes = resume(x, "n2", "n2", bypass=True)
    assert placed.plan.pools == ((suspend(o, "n1"), wakes, resume(y, "n3", "n3")), (migrate(x, "n2", "n1"),))
    assert check_plan(source, placed.target, placed.plan.pools) == []
    assert placed.optimal and placed.plan.cost == 260


def only_on(vjob: VJob, *nodes: str) -> VJob:
    return dataclasses.replace(vjob, rules=allowing(frozenset(nodes)))


def test_a_dearer_placement_of_two_pools_beats_one_whose_arrivals_wait_for_late_departures() -> None:
    # On n1, x would wait for y, which waits for z to leave n2. On n5 it waits for nobody, but s resumes elsewhere then.
    nodes = tuple(Node(f"n{i}", Resources(9, memory)) for i, memory in ((1, 1200), (2, 200), (5, 1200), (6, 700)))
    z, y, x = vjob("z", 200), only_on(vjob("y", 200), "n1", "n2"), only_on(vjob("x", 1200), "n1", "n5")
    s = only_on(vjob("s", *[100] * 7), "n5", "n6")
    locations = {"z-0": running_on("n2"), "y-0": running_on("n1"), "x-0": WAITING}
    source = Configuration(nodes, (z, y, x, s), {**locations, **{f"s-{i}": sleeping_on("n5") for i in range(7)}})
    states = {"z": SLEEPS, "y": RUNS, "x": RUNS, "s": RUNS}
    sample = {"y-0": "n2", "x-0": "n1", **{f"s-{i}": "n5" for i in range(7)}}
    placed = place(source, states, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    chain = place_sample(source, states, sample)
    assert isinstance(chain, Placed)
    assert (chain.plan.cost, len(chain.plan.pools)) == (1700, 3)
    assert placed.plan.cost == 200 + 7 * 200
    assert placed.target["x-0"] == running_on("n5")


def test_parts_grow_until_a_vjob_can_resume_early_whose_saved_states_lie_on_more_nodes_than_the_first_part_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbourhood, "NODES", 2)
    nodes = tuple(Node(f"n{i}", Resources(9, 1000)) for i in range(6))
    r, s, o = vjob("r", 700), vjob("s", 400, 400, 400, 400), vjob("o", 800)
    locations = {"r-0": running_on("n0"), "o-0": running_on("n4"), **{f"s-{i}": sleeping_on(f"n{i}") for i in range(4)}}
    source = Configuration(nodes, (r, s, o), locations)
    states = {"r": RUNS, "s": RUNS, "o": SLEEPS}
    sample = {"r-0": "n5", **{f"s-{i}": f"n{i}" for i in range(4)}}  # n0 has no room for s-0 before r-0 has left
    problem = replacement(source, states, sample)
    kept = keep_all(problem)
    chain = place_sample(source, states, sample)
    assert isinstance(chain, Placed)
    incumbent = Incumbent(source)
    incumbent.offer(Named(dict(chain.target), frozenset()))
    assert incumbent.cost == 800 + 700 + 4 * (400 + 800)
    Neighbourhoods(problem, kept, incumbent, Budget(SEARCH)).improve(bound_of(problem, kept))
    assert incumbent.cost == 800 + 3 * 400 + 2 * 400


def test_what_is_cheaper_by_less_than_the_common_divisor_of_all_costs_is_found() -> None:
    source = cluster(4096, vjob("a", 512), vjob("b", 2048), a_0=running_on("n1"), b_0=sleeping_on("n1"))
    problem = replacement(source, {"a": SLEEPS, "b": RUNS}, {"b-0": "n1"})
    kept = keep_all(problem)
    level = Level(2048, 2048)  # all costs are multiples of 2048 beside the 512 of the suspend
    assert Program(problem, kept, level, most_mib=2560).solve(SEARCH).cost == 2560
    assert Program(problem, kept, level, most_mib=2559).solve(SEARCH).infeasible


def test_a_vm_that_demands_nothing_keeps_a_node_in_use() -> None:
    nodes = (Node("n1", Resources(0, 7)), Node("n2", Resources(0, 12)))
    source = Configuration(nodes, (vjob("a", 0, 5),), {"a-0": running_on("n1"), "a-1": running_on("n2")})
    placed = place(source, {"a": RUNS}, {"a-0": "n1", "a-1": "n2"}, "nodes", SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.nodes_used, placed.lower_bound) == (0, 1, 0)
    assert placed.target["a-0"] == running_on("n2")


@pytest.mark.parametrize("now", [WAITING, sleeping_on("n1"), running_on("n3")], ids=["waits", "sleeps", "drains"])
def test_nothing_comes_to_a_node_that_is_overloaded_by_what_must_stay(now: Location) -> None:
    """A may not be suspended, and fits on no node; b demands no CPU, but may not join it."""
    nodes = (*(Node(n, Resources(1, 9)) for n in ("n1", "n2")), Node("n3", Resources(1, 9), NodeState.DRAINING))
    a = VJob("a", (VM("a-0", Resources(2, 1)),), preemptible=False)
    source = Configuration(nodes, (a, vjob("b", 1)), {"a-0": running_on("n1"), "b-0": now})
    decision = decide("rjsp", source, Parameters())
    assert isinstance(decision, Decision)
    placed = place(source, decision.states, decision.placement, search=SEARCH)
    assert isinstance(placed, Placed)
    assert placed.target == {"a-0": running_on("n1"), "b-0": running_on("n2")}
    assert check_plan(source, placed.target, placed.plan.pools, placed.plan.cost) == []


def test_where_no_node_takes_vms_everything_stays() -> None:
    nodes = (Node("n1", Resources(4, 800), NodeState.DRAINING),)
    source = Configuration(
        nodes, (VJob("a", (VM("a-0", Resources(0, 600)),), preemptible=False),), {"a-0": running_on("n1")}
    )
    placed = place(source, {"a": RUNS}, {"a-0": "n1"}, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.pools, placed.plan.cost, placed.lower_bound) == ((), 0, 0)


def test_the_vms_of_a_vjob_that_are_bypassed_asleep_resume_together() -> None:
    """Four VMs of j swap full nodes; by First Fit Decreasing the last of them would resume a pool later."""
    j = vjob("j", 6, 6, 6, 6, cpus=1)
    source = Configuration(
        tuple(Node(f"n{i}", Resources(1, 8)) for i in range(6)),
        (vjob("i", 4, 4), j, vjob("k", 6)),
        {
            **{"i-0": running_on("n5"), "i-1": running_on("n4"), "k-0": WAITING},
            **{f"j-{i}": running_on(f"n{host}") for i, host in enumerate((2, 3, 1, 0))},
        },
    )
    decision = decide("rjsp", source, Parameters())
    assert isinstance(decision, Decision)
    placed = place_sample(source, decision.states, decision.placement)
    assert isinstance(placed, Placed)
    resumed = [[a.vm.name for a in pool if a.kind is ActionKind.RESUME] for pool in placed.plan.pools]
    assert len([pool for pool in resumed if pool]) == 1
    assert max(map(len, resumed)) > 1
    assert check_plan(source, placed.target, placed.plan.pools, placed.plan.cost) == []


def test_the_last_answer_is_a_start_as_long_as_it_is_viable() -> None:
    """n1 hosted both while a demanded less."""
    source = cluster(4096, vjob("a", 1024, cpus=3), vjob("b", 512, cpus=2), a_0=running_on("n1"), b_0=running_on("n1"))
    states, sample = dict.fromkeys("ab", RUNS), {"a-0": "n1", "b-0": "n2"}
    for previous in ({"a-0": "n1", "b-0": "n1"}, {"a-0": "n1", "b-0": "gone"}, {"a-0": "n1"}):
        placed = place(source, states, sample, search=SEARCH, previous=previous)
        assert isinstance(placed, Placed)
        assert (placed.plan.cost, placed.optimal) == (512, True)


def test_the_last_answer_is_better_than_what_is_found_in_no_time() -> None:
    configuration = rr6929(20, 162, 0)
    decision = decided(configuration)
    good = place(configuration, decision.states, decision.placement, search=SEARCH)
    assert isinstance(good, Placed)
    hosts = {name: location.node or "" for name, location in good.target.items() if location.state is VMState.RUNNING}
    no_time = Search(time_limit_s=60, workers=1, deterministic_limit=1e-9)
    without, again = (
        place(configuration, decision.states, decision.placement, search=no_time, previous=previous)
        for previous in (None, hosts)
    )
    assert isinstance(without, Placed) and isinstance(again, Placed)
    assert again.plan.cost < without.plan.cost


@pytest.mark.parametrize("limit", [0.5, 0.05])
def test_no_program_is_begun_that_would_take_more_than_is_left(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS would not stop before its root is solved, however long that takes."""
    problem, kept, counts = crowded(0)
    incumbent = Incumbent(rr6929(9, 81, 0))
    incumbent.offer(with_names(problem, counts))
    sizes: list[int] = []

    class Noted(Program):
        def __init__(self, *arguments: Any) -> None:
            sizes.append(program.variables(problem))
            super().__init__(*arguments)

    monkeypatch.setattr(target_levels, "Program", Noted)
    bounds = dict.fromkeys(levels(problem), bound_of(problem, kept))
    search_levels(problem, kept, incumbent, Budget(Search(deterministic_limit=limit)), bounds)
    assert bool(sizes) == (limit > 0.4)
    assert all(not is_too_large(size, Budget(Search(deterministic_limit=limit))) for size in sizes)


# -- part by part -------------------------------------------------------------------------------------------------


def crowded(seed: int) -> tuple[Replacement, list[Kept], Counts]:
    """A crowded cluster of vjobs of 9 and 18 VMs, and the counts of the plan to the decision's sample."""
    configuration = rr6929(9, 81, seed)
    decision = decided(configuration)
    problem = replacement(configuration, decision.states, decision.placement)
    baseline = place_sample(configuration, decision.states, decision.placement)
    assert isinstance(baseline, Placed)
    kept = keep_all(problem)
    return problem, kept, counts_of(problem, baseline.target, baseline.plan.early_arrivals())


def assert_sound(problem: Replacement, counts: Counts) -> None:
    """All that must hold for counts, computed anew: room at the start and in the end, balances, vjobs as a whole."""
    classes = problem.classes
    needs = {True: [0] * len(classes), False: [0] * len(classes)}  # arrivals of vjobs that are early, and of the others
    arrivals = {True: [0] * len(classes), False: [0] * len(classes)}
    leave = [0] * len(classes)
    for mover in problem.movers:
        if mover.group is None:
            leave[mover.vm_class] += 1
        else:
            needs[mover.group in counts.early_groups][mover.vm_class] += 1
    for place_, kept, early, late in zip(problem.places, counts.kept, counts.early, counts.late, strict=True):
        on_it = [0] * len(classes)
        at_start = sum(classes[k].memory_mib * count for k, count in early.items())
        for k, names in place_.residents.items():
            on_it[k] += kept.residents.get(k, 0)
            leave[k] += len(names) - kept.residents.get(k, 0)
        for (k, group), names in place_.images.items():
            local = kept.images.get((k, group), 0)
            on_it[k] += local
            needs[group in counts.early_groups][k] += len(names) - local
            at_start += classes[k].memory_mib * local if group in counts.early_groups else 0
        for is_early, by_class in ((True, early), (False, late)):
            for k, count in by_class.items():
                on_it[k] += count
                arrivals[is_early][k] += count
        assert at_start <= place_.early_m
        assert sum(classes[k].memory_mib * count for k, count in enumerate(on_it)) <= place_.capacity_m
        assert sum(classes[k].centi_cpus * count for k, count in enumerate(on_it)) <= place_.capacity_c
    for k in range(len(classes)):
        assert arrivals[True][k] >= needs[True][k]
        assert arrivals[False][k] >= needs[False][k]
        assert arrivals[True][k] + arrivals[False][k] == leave[k] + needs[True][k] + needs[False][k]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("seed", range(3))
def test_parts_of_a_crowded_cluster_save_and_leave_the_counts_sound(
    seed: int, scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, kept, counts = crowded(seed)
    assert_sound(problem, counts)
    solve, found = program.solve, []

    def noted(*arguments: Any) -> Any:
        found.append(solve(*arguments))
        return found[-1]

    monkeypatch.setattr(program, "solve", noted)
    level, chance = Level(problem.wait_mib), Random(seed)
    before = cost = counts.total_mib(problem, level.wait_mib)
    for size in (2, 3, 5, 4, 8, 3):
        part = Part(chance.sample(range(9), size), counts)
        model = Program(problem, kept, level, None, cost, scope, part)
        solved = model.solve(SEARCH, counts)
        # Counts know nothing of detours.
        if solved.counts is not None and not any(round(found[-1].values[each]) for each in model._detours):
            assert_sound(problem, solved.counts)
            assert solved.cost == solved.counts.total_mib(problem, level.wait_mib) <= cost
            counts, cost = solved.counts, solved.cost
    assert bound_of(problem, kept) <= cost < before


# -- all nodes at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "sizes"), [(0, None), (1, None), (2, None), (0, 10)])
def test_columns_of_a_crowded_cluster_leave_the_counts_sound_at_the_cost_that_was_proven(
    monkeypatch: pytest.MonkeyPatch, seed: int, sizes: int | None
) -> None:
    """``sizes``: VMs of so many random sizes of memory."""
    configuration = families.crowded(60, 4.2, seed, sizes)
    decision = decided(configuration)
    problem = replacement(configuration, decision.states, decision.placement)
    level = Level(problem.wait_mib)
    bounds = []
    for groups in (10, 30):
        monkeypatch.setattr(generation, "_GROUPS", groups)
        found = Generation(Columns(problem, level, is_relaxed=False, budget=Budget(SEARCH)), Budget(SEARCH))
        monkeypatch.setattr(SPENT, "clock", itertools.count().__next__)
        before = SPENT.seconds
        found.relax()
        assert SPENT.seconds > before, "the time of the solver is counted"
        bounds.append(found.bound_mib)
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-3)
    for counts in found.answers(Budget(SEARCH), SEARCH):
        assert_sound(problem, counts)
    cost = counts.total_mib(problem, level.wait_mib) - problem.fixed_cost
    assert max(bounds) <= cost <= 1.1 * max(bounds)


def test_a_bound_from_rounded_tables_is_below_that_from_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = families.crowded(60, 4.5, 0, 10)
    decision = decided(configuration)
    problem = replacement(configuration, decision.states, decision.placement)
    bounds = []
    for most in (100_000, 300):
        monkeypatch.setattr(arrivals, "_MOST_ENTRIES", most)
        found = Generation(
            Columns(problem, levels(problem)[-1], is_relaxed=True, budget=Budget(SEARCH)), Budget(SEARCH)
        )
        found.relax()
        bounds.append(found.bound_mib)
    assert 0 < bounds[1] < bounds[0]


@pytest.mark.parametrize("most", [100_000, 500], ids=["exact", "rounded"])
def test_arrivals_are_the_most_valuable_ones_that_a_room_holds(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Compared with all multisets; rounded up, something less is found, but nothing that does not fit."""
    monkeypatch.setattr(arrivals, "_MOST_ENTRIES", most)
    chance = Random(0)
    for _ in range(20):
        demands = [(100 * chance.randint(0, 1), chance.randint(200, 900)) for _ in range(3)]
        rooms = np.array([(100 * chance.randint(0, 2), m, chance.randint(0, m)) for m in chance.sample(range(2000), 5)])
        early, late = (np.array([float(chance.randint(0, 9)) for _ in demands]) for _ in range(2))
        grid = Grid.of(demands, (200, 2000), is_relaxed=False)
        steps = np.array([grid.step_c, grid.step_m, grid.step_m])
        search = Arrivals(grid, rooms // steps)
        values = search.search(early, late)
        come = search.chosen(np.arange(5))
        for at, (cpus, memory, at_start) in enumerate(rooms):
            best = best_arrivals(demands, early.tolist(), late.tolist(), cpus, memory, at_start)
            assert values[at] == come[0][at] @ early + come[1][at] @ late
            assert values[at] == best if most == 100_000 else values[at] <= best
            assert come[0][at] @ [m for _, m in demands] <= at_start
            assert (come[0][at] + come[1][at]) @ [m for _, m in demands] <= memory
            assert (come[0][at] + come[1][at]) @ [c for c, _ in demands] <= cpus


def best_arrivals(
    demands: Sequence[tuple[int, int]], early: list[float], late: list[float], cpus: int, memory: int, at_start: int
) -> float:
    best = 0.0
    for k, (c, m) in enumerate(demands):
        if c <= cpus and m <= memory:
            # Of equal ones that have come no order is tried but that of the classes.
            onwards = (demands[k:], early[k:], late[k:], cpus - c, memory - m)
            best = max(best, late[k] + best_arrivals(*onwards, min(at_start, memory - m)))
            if m <= at_start:
                best = max(best, early[k] + best_arrivals(*onwards, min(at_start - m, memory - m)))
    return best


def test_columns_do_not_serve_vms_that_demand_nothing() -> None:
    """No room would ever end their arrivals: their price would be a bound on nothing."""
    problem = replacement(cluster(2048, vjob("a", 0)), {"a": RUNS}, {"a-0": "n1"})
    with pytest.raises(UnsuitableError, match="demands nothing"):
        Columns(problem, Level(1), is_relaxed=True, budget=Budget(SEARCH))


def test_a_placement_ends_at_its_deadline_by_the_clock_that_it_is_given() -> None:
    """A clock on which every look takes a quarter of a second: nothing but looks at it can end the search in time."""
    configuration = rr6929(60, 270, 0)
    decision = decided(configuration)
    looks = itertools.count()
    limits = Search(time_limit_s=6)
    placed = place(configuration, decision.states, decision.placement, search=limits, clock=lambda: next(looks) / 4)
    assert isinstance(placed, Placed)
    assert next(looks) / 4 <= 6 * 1.5 + 2


def test_an_arrival_is_early_until_something_has_cost_and_a_bypass_is_no_arrival() -> None:
    a, b, c, d = (VM(name, Resources(0, 1024)) for name in "abcd")
    plan = Plan(
        (
            (stop(a, "n1"), run(b, "n1")),
            (migrate(c, "n1", "n2"), migrate(d, "n2", "n3", bypass=True)),
            (migrate(d, "n3", "n1"),),
        )
    )
    assert plan.early_arrivals() == {"b", "c"}
    assert plan.first_cost == 1024


@pytest.mark.parametrize(
    ("bound", "whole"),
    [
        (3.0, 3),
        (2.9999995, 3),
        (3.0000001, 3),
        (3.1, 4),
        (1e9 + 0.5, 10**9 - 999),  # the tolerance is relative
        (-1.0, 0),
        (math.inf, 0),
        (-math.inf, 0),
        (math.nan, 0),
    ],
)
def test_a_bound_in_floating_point_is_loosened_and_rounded_up(bound: float, whole: int) -> None:
    assert round_up(bound) == whole
