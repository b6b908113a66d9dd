"""Small plans that were not the cheapest once: found by adversaries, checked by brute force."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bench.families import tight

from rmsplugin.decision.parameters import Parameters
from rmsplugin.decision.policies import decide
from rmsplugin.decision.result import Decision
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import VM, WAITING, Node, VJob, running_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Rules, allowing
from rmsplugin.model.vjob import VJobState
from rmsplugin.packing.search import Search
from rmsplugin.planning.checker import check_plan
from rmsplugin.planning.order.remaining import Remaining
from rmsplugin.planning.order.switch import UNIT, Kind, Switch
from rmsplugin.planning.target.placement import Placed, place
from rmsplugin.planning.target.settle import suspended

RUNS, SLEEPS, ENDS = VJobState.RUNNING, VJobState.SLEEPING, VJobState.TERMINATED
SEARCH = Search(deterministic_limit=5)


def cluster(nodes: Sequence[tuple[float, int]], vjobs: Sequence[VJob], hosts: Sequence[int]) -> Configuration:
    """Nodes with CPUs and memory, and running VMs with the number of the host of each."""
    vms = [vm.name for vjob in vjobs for vm in vjob.vms]
    named = tuple(Node(f"n{i}", Resources(*capacity)) for i, capacity in enumerate(nodes))
    return Configuration(named, tuple(vjobs), {vm: running_on(f"n{host}") for vm, host in zip(vms, hosts, strict=True)})


def vjob(name: str, *demands: tuple[float, int], rules: Rules = (), preemptible: bool = True) -> VJob:
    vms = tuple(VM(f"{name}-{i}", Resources(*demand)) for i, demand in enumerate(demands))
    return VJob(name, vms, rules=rules, preemptible=preemptible)


def test_a_bypass_ends_on_its_pivot_where_that_is_viable() -> None:
    pinned = vjob("a", (0, 512), (0.05, 342), rules=allowing(frozenset({"n1"})), preemptible=False)
    others = vjob("b", (0.5, 512), (0.05, 512), (1, 3584), (0.05, 512))
    source = cluster([(3, 4096), (1, 4096), (1, 2048)], [pinned, others], [0, 0, 1, 0, 1, 2])
    sample = {"a-0": "n1", "a-1": "n1", "b-0": "n1", "b-1": "n0", "b-2": "n0", "b-3": "n2"}
    placed = place(source, {"a": RUNS, "b": RUNS}, sample, search=SEARCH)
    assert isinstance(placed, Placed)
    assert check_plan(source, placed.target, placed.plan.pools, placed.plan.cost) == []
    assert (placed.plan.cost, placed.optimal) == (11_266, True)


def test_another_target_is_taken_where_the_plan_costs_more_than_the_program_said() -> None:
    vjobs = [
        vjob("a", (0.05, 3)),
        vjob("b", (1, 1)),
        vjob("c", (1, 2), rules=allowing(frozenset({"n1"}))),
        vjob("d", (0, 2), rules=allowing(frozenset({"n1", "n2"}))),
        vjob("e", (1, 2)),
    ]
    source = cluster([(4, 4)] * 3, vjobs, [1, 1, 0, 2, 0])
    states = {"a": RUNS, "b": RUNS, "c": RUNS, "d": ENDS, "e": SLEEPS}
    placed = place(source, states, {"a-0": "n0", "b-0": "n1", "c-0": "n1"}, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.optimal) == (14, True)


def test_who_stays_may_be_somebody_else_than_the_fewest_early_departures_suggest() -> None:
    source = cluster(
        [(1, 768), (0.5, 768), (0.5, 1280)],
        [vjob("a", (1, 512), (0, 512), (0.05, 512)), vjob("b", (1, 512))],
        [1, 2, 0, 2],
    )
    placed = place(source, {"a": RUNS, "b": SLEEPS}, {"a-0": "n0", "a-1": "n1", "a-2": "n2"}, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.optimal) == (3072, True)


@pytest.mark.parametrize("reverse", [False, True])
def test_the_cheapest_order_of_ten_migrations_is_found_whatever_they_are_called(reverse: bool) -> None:
    hops = [(3000, 0, 2), (3000, 0, 1), (2000, 0, 1), (3000, 1, 0), (3000, 2, 0)]
    hops += [(3000, 2, 1), (2000, 2, 0), (2000, 2, 3), (2000, 3, 1), (2000, 3, 2)]
    if reverse:
        hops.reverse()
    source = cluster(
        [(8, 12_000)] * 4,
        [
            vjob(f"j{i}", (1, memory), rules=allowing(frozenset({f"n{there}"})))
            for i, (memory, _, there) in enumerate(hops)
        ],
        [here for _, here, _ in hops],
    )
    sample = {f"j{i}-0": f"n{there}" for i, (_, _, there) in enumerate(hops)}
    placed = place(source, dict.fromkeys((vjob.name for vjob in source.vjobs), RUNS), sample, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.optimal) == (37_000, True)


def test_of_few_viable_ends_the_cheapest_is_proven_at_once() -> None:
    """Guest by guest and node by node the bound stayed at 4,160 MiB: each VM alone fits somewhere."""
    not_preemptible = [vjob("b", (0.05, 1600), (1, 768), preemptible=False), vjob("c", (1, 1600), preemptible=False)]
    vjobs = [vjob("a", (1, 1792)), *not_preemptible, vjob("e", (0.5, 2048), preemptible=False)]
    running = cluster(
        [(2, 2048), (1, 4096), (1, 3072), (1, 3072), (2, 4096)],
        vjobs,
        [3, 0, 3, 2, 4],
    )
    new = vjob("d", (1, 2048), (1, 512), (0, 1280))
    source = Configuration(
        running.nodes, (*running.vjobs, new), {**running.locations, **{vm.name: WAITING for vm in new.vms}}
    )
    sample = {"a-0": "n3", "b-0": "n1", "b-1": "n0", "c-0": "n2", "e-0": "n4", "d-0": "n4", "d-1": "n0", "d-2": "n2"}
    states = dict.fromkeys((each.name for each in source.vjobs), RUNS)
    placed = place(source, states, sample, search=Search(deterministic_limit=1))
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.optimal) == (5568, True)


def test_the_exact_search_of_a_crowded_cluster_leaves_others_their_part_of_the_limit() -> None:
    # Fourteen VMs that hardly fit have few ends, and millions of ways that lead to none.
    source = tight(4, 14, 20_000)
    decided = decide("rjsp", source, Parameters(search=Search(deterministic_limit=1.0)))
    assert isinstance(decided, Decision)
    found = place(source, decided.states, decided.placement, search=Search(deterministic_limit=1.0))
    assert isinstance(found, Placed)
    assert found.plan.cost <= 4_352, "28,928 when nothing was left for anybody else"


def test_a_plan_that_suspends_no_more_is_found_though_a_cheaper_one_suspends_more() -> None:
    """The greedy order costs 13,824 MiB and suspends one VM; the cheapest of all 10,752, but two that must not be."""
    vjobs = [
        vjob("a", (0.5, 512), (0, 2048), (1, 512), preemptible=False),
        vjob("b", (1, 1024)),
        vjob("c", (1, 1024), (0, 2048)),
    ]
    source = cluster([(2, 4096), (2, 4096)], vjobs, [1, 0, 1, 1, 1, 0])
    sample = {"a-0": "n0", "a-1": "n0", "a-2": "n0", "b-0": "n1", "c-0": "n1", "c-1": "n1"}
    placed = place(source, dict.fromkeys("abc", RUNS), sample, search=SEARCH)
    assert isinstance(placed, Placed)
    assert (placed.plan.cost, placed.lower_bound) == (12_800, 10_752)
    assert suspended(source, placed.plan) == (1, 0)


def test_of_a_dozen_that_stay_on_a_node_it_is_known_how_many_must_leave() -> None:
    """Twelve VMs of 100 MiB and 0.1 CPUs stay on a node that has 1.0 CPUs for them: two migrate, at 100 MiB each."""
    kind = Kind(memory_mib=100, centi_cpus=10, ends=frozenset({0, 1}), nodes=(0, 1), gang=0, preemptible=True)
    guests = [(0, 0, VM(f"v{i}", Resources(0.1, 100))) for i in range(12)]
    switch = Switch(["n0", "n1"], [2048, 2048], [0, 0], [], [kind], guests, [(100, 2048), (100, 2048)])
    assert Remaining(switch).start() == 2 * (100 * UNIT + 1)
