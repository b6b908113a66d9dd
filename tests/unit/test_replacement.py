"""Placement: worked examples of what waits, of few nodes, of solvers' bounds, and of large clusters."""

from __future__ import annotations

import math

import pytest

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Location, Node, VJob, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning import placement
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.keep import keep
from rmsplugin.planning.levels import levels
from rmsplugin.planning.node_terms import Level
from rmsplugin.planning.placement import Placed, place, place_sample
from rmsplugin.planning.program import Program
from rmsplugin.planning.replacement import replacement
from rmsplugin.planning.solver import round_up

SEARCH = Search(time_limit_s=60, workers=1, deterministic_limit=2)

RUNS, SLEEPS = VJobState.RUNNING, VJobState.SLEEPING


def vjob(name: str, *memory_mib: int, cpus: float = 0) -> VJob:
    return VJob(name, tuple(VM(f"{name}-{i}", Resources(cpus, memory)) for i, memory in enumerate(memory_mib)))


def cluster(memory_mib: int, *vjobs: VJob, **locations: Location) -> Configuration:
    """n1 and n2 of this size; who is not told of waits."""
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
    kept = [keep(each, problem.classes, problem.wait_mib) for each in problem.places]
    assert problem.fixed_cost + sum(each.bound_mib for each in kept) == 1024, "only the program knows that it waits"
    assert [level.wait_mib for level in levels(problem)] == [1024, 2048]
    # If the first pool costs 2048 (c migrates), the run waits for so long.
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
