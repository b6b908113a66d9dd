"""Packing: first fit over a queue, the fewest nodes (VMPP), and whether all fit."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from ortools.sat.python import cp_model

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import allowing
from rmsplugin.packing.bounds import fewest
from rmsplugin.packing.budget import CP_SAT_UNIT, STEPS_A_SECOND, Budget
from rmsplugin.packing.classes import classify
from rmsplugin.packing.diving import dive
from rmsplugin.packing.feasible import Fits, FitsNot, Unknown, fits
from rmsplugin.packing.first_fit import FirstFit
from rmsplugin.packing.integer import Wanted, spread
from rmsplugin.packing.item import Item
from rmsplugin.packing.patterns import Pricer, maximal
from rmsplugin.packing.relaxation import Relaxation, relax
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, Packing, pack


def node(name: str, cpus: float = 2, memory: int = 3072, state: NodeState = NodeState.UP) -> Node:
    return Node(name, Resources(cpus, memory), state)


def vm(name: str, cpus: float = 1, memory: int = 1024) -> VM:
    return VM(name, Resources(cpus, memory))


# -- first fit ----------------------------------------------------------------------------------------------------


def test_first_fit_places_the_largest_first_and_on_the_first_node_with_room() -> None:
    room = FirstFit.on([node("n1"), node("n2")])
    assert room.place([vm("a", 0, 512), vm("b", 1, 2048), vm("c", 2, 2048)]) == {"c": "n1", "b": "n2", "a": "n1"}
    assert room.free("n1") == Resources(0, 512)
    assert room.free("n2") == Resources(1, 1024)


def test_first_fit_places_all_of_a_vjob_or_nothing() -> None:
    room = FirstFit.on([node("n1")])
    assert room.place([vm("a"), vm("b"), vm("c")]) is None
    assert room.free("n1") == Resources(2, 3072)
    assert room.place([vm("a"), vm("b")]) == {"a": "n1", "b": "n1"}


def test_what_a_vjob_learnt_that_was_not_placed_is_forgotten() -> None:
    room = FirstFit.on([node("n1"), node("n2", 1)])
    assert room.place([vm("a", 2, 2048), vm("b", 1, 512), vm("c", 1, 512)]) is None
    assert room.place([vm("d", 1, 512), vm("e", 1, 512)]) == {"d": "n1", "e": "n1"}


def test_first_fit_uses_nodes_that_are_up_only() -> None:
    room = FirstFit.on([node("n1", state=NodeState.DRAINING), node("n2", state=NodeState.DOWN), node("n3")])
    assert room.place([vm("a")]) == {"a": "n3"}
    assert room.free("n1") == NOTHING


def test_first_fit_asks_what_a_vjob_allows_for_that_vjob_only() -> None:
    room = FirstFit.on([node("n1"), node("n2")])
    assert room.place([vm("a")], lambda name: name == "n2") == {"a": "n2"}
    assert room.place([vm("b")], lambda name: False) is None
    assert room.place([vm("c")]) == {"c": "n1"}


def test_vms_that_need_nodes_of_their_own_leave_room_behind_them_that_others_take() -> None:
    room = FirstFit.on([node("n1"), node("n2"), node("n3", 1)])
    assert room.place([vm("a"), vm("b")], apart_from=()) == {"a": "n1", "b": "n2"}
    assert room.place([vm("c", memory=512), vm("d")], apart_from=["n1"]) == {"d": "n2", "c": "n3"}
    assert room.place([vm("e"), vm("f")], apart_from=()) is None
    assert room.place([vm("g")]) == {"g": "n1"}


def test_vms_that_need_nodes_of_their_own_go_around_those_that_can_only_be_where_they_are() -> None:
    room = FirstFit.on([node("n1", 4), node("n2")])
    vms = [VM("a", Resources(1, 512), only="n1"), vm("b", memory=512)]
    assert room.copy().place_around(vms) == {"a": "n1", "b": "n1"}
    assert room.copy().place_around(vms, apart=True) == {"a": "n1", "b": "n2"}
    assert room.place_around([*vms, vm("c")], apart=True) is None
    assert room.free("n1") == Resources(4, 3072)


def test_a_vm_that_stays_may_overload_its_node() -> None:
    room = FirstFit.on([node("n1"), node("n2")])
    room.take(vm("big", 3, 512), "n1")
    assert room.free("n1") == Resources(-1, 2560)
    assert room.total_free == Resources(2, 5632)
    assert room.largest_free == Resources(2, 3072)
    assert room.place([vm("idle", 0, 512)]) == {"idle": "n2"}


def test_a_vm_that_stays_on_a_node_which_is_not_up_takes_nothing_from_the_others() -> None:
    room = FirstFit.on([node("n1", state=NodeState.DRAINING), node("n2")])
    room.take(vm("a"), "n1")
    assert room.total_free == Resources(2, 3072)
    with pytest.raises(KeyError):
        room.take(vm("a"), "n3")


def test_without_a_node_that_is_up_there_is_room_for_nothing() -> None:
    room = FirstFit.on([node("n1", state=NodeState.DOWN)])
    assert room.place([vm("a")]) is None
    assert room.place([]) == {}
    assert room.total_free == room.largest_free == NOTHING


# -- the fewest nodes ---------------------------------------------------------------------------------------------

#: Enough for everything here, and the same on every machine.
SEARCH = Search(deterministic_limit=20.0)


def items(demands: Sequence[tuple[float, int]]) -> list[Item]:
    return [Item(vm(f"v{i}", cpus, memory)) for i, (cpus, memory) in enumerate(demands)]


def packed(found: Packing | NoPacking) -> Packing:
    assert isinstance(found, Packing), found
    return found


def test_no_vms_need_no_node() -> None:
    assert packed(pack([], [], SEARCH)) == Packing({}, 0, 0, 0)


def test_figure_3_of_the_paper_two_nodes_suffice_for_what_three_host() -> None:
    """VEE'09, figures 2b and 3: processing units decide, not memory alone."""
    nodes = [node(f"n{i}", 1, 3072) for i in range(3)]
    found = packed(pack(items([(1, 1024), (0, 1024), (1, 1024)]), nodes, SEARCH))
    assert (found.nodes_used, found.lower_bound, found.optimal) == (2, 2, True)


def test_first_fit_decreasing_wastes_a_node_where_two_dimensions_must_be_matched() -> None:
    found = packed(pack(items([(0, 1536)] * 2 + [(2, 1024)] * 2), [node(f"n{i}") for i in range(4)], SEARCH))
    assert (found.nodes_used, found.optimal, found.ffd_nodes_used) == (2, True, 3)


def test_only_nodes_that_are_up_are_used() -> None:
    nodes = [node("n1", 8, 8192, NodeState.DRAINING), node("n2", 8, 8192, NodeState.DOWN), node("n3"), node("n4")]
    found = packed(pack(items([(1, 1024)] * 3), nodes, SEARCH))
    assert set(found.assignment.values()) == {"n3", "n4"}


def test_of_unequal_nodes_the_ones_that_save_others_are_used() -> None:
    nodes = [node("small1"), node("small2"), node("large", 4, 6144), node("small3")]
    found = packed(pack(items([(1, 1024)] * 4), nodes, SEARCH))
    assert (set(found.assignment.values()), found.ffd_nodes_used, found.optimal) == ({"large"}, 2, True)


def test_a_node_from_which_more_is_taken_than_it_has_hosts_nothing() -> None:
    found = packed(pack(items([(0, 512)] * 2), [node("n1", -1, 3072), node("n2")], SEARCH))
    assert found.assignment == {"v0": "n2", "v1": "n2"}


def test_vms_go_only_where_they_are_allowed() -> None:
    nodes = [node(f"n{i}", 2, 2048) for i in range(4)]
    everywhere = [Item(vm(f"a{i}")) for i in range(2)]
    confined = [Item(vm(f"b{i}"), rules=allowing(frozenset({"n2", "n3"}), frozenset({"n2"}))) for i in range(2)]
    found = packed(pack(everywhere + confined, nodes, SEARCH))
    assert found.assignment["b0"] == found.assignment["b1"] == "n3"
    assert (found.nodes_used, found.optimal) == (2, True)


def test_vms_that_demand_nothing_share_one_node() -> None:
    found = packed(pack(items([(0, 0)] * 50), [node("n1"), node("n2")], SEARCH))
    assert (found.nodes_used, found.optimal) == (1, True)


def test_vms_stay_where_they_are_if_the_loads_can_be_given_to_the_nodes_so() -> None:
    nodes = [node(f"n{i}") for i in range(6)]
    current = {"v0": "n5", "v1": "n5", "v2": "n3", "v3": "n3", "v4": "n1"}
    found = packed(pack(items([(1, 1024)] * 4 + [(1, 1536)] * 2), nodes, SEARCH, current))
    assert found.nodes_used == 3
    assert sum(found.assignment[name] == host for name, host in current.items()) >= 4


@pytest.mark.parametrize(
    ("demands", "message"),
    [
        ([(4, 512)], "VM v0 needs 4 CPUs and 512 MiB; no node that it may be on has that much"),
        ([(1, 1024)] * 5, "5 VMs need 5 CPUs and 5120 MiB, and the 2 nodes that they may be on have 4 CPUs"),
        ([(0, 2048)] * 3, "no way to place the VMs on the 2 nodes that are up"),
    ],
)
def test_why_there_is_no_packing(demands: Sequence[tuple[float, int]], message: str) -> None:
    nodes = [node("n1"), node("n2")]
    found = pack(items(demands), nodes, SEARCH)
    assert isinstance(found, NoPacking)
    assert found.proven
    assert message in found.explanation
    answer = fits(items(demands), nodes, SEARCH)
    assert answer == FitsNot(found.explanation)


def test_a_vm_without_any_node_allowed_is_named() -> None:
    found = pack(
        [Item(vm("a"), rules=allowing(frozenset({"n2"})))], [node("n1"), node("n2", state=NodeState.DOWN)], SEARCH
    )
    assert isinstance(found, NoPacking)
    assert "VM a needs 1 CPU and 1024 MiB, and there is no node that is up and allowed for it" in found.explanation


def test_vms_that_are_confined_to_a_few_nodes_are_told_apart_from_the_others() -> None:
    confined = [Item(vm(f"c{i}"), rules=allowing(frozenset({"n1"}))) for i in range(3)]
    found = pack([*confined, Item(vm("free"))], [node(f"n{i}") for i in range(4)], SEARCH)
    assert isinstance(found, NoPacking)
    assert "3 VMs need 3 CPUs and 3072 MiB, and the 1 nodes that they may be on" in found.explanation


def test_two_vms_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two VMs are named 'a'"):
        pack([Item(vm("a")), Item(vm("a"))], [node("n1")], SEARCH)


def triples(classes: int, vms: int, seed: int) -> list[Item]:
    """VMs of which two or three fill a node: hard for heuristics."""
    chance = random.Random(seed)
    kinds = [(chance.randint(30, 70) / 100, chance.randint(800, 1500)) for _ in range(classes)]
    return items([chance.choice(kinds) for _ in range(vms)])


def test_the_relaxation_leads_to_an_optimum_that_no_heuristic_finds() -> None:
    nodes = [node(f"n{i}", 1.5, 3072) for i in range(120)]
    found = packed(pack(triples(40, 200, 1), nodes, SEARCH))
    assert found.optimal
    assert found.ffd_nodes_used is not None
    assert found.nodes_used <= found.ffd_nodes_used - 5


def test_the_relaxation_proves_more_nodes_than_sums_do() -> None:
    """How near to that bound the packing comes, depends on rounding, which processors do in their ways."""
    nodes = [node(f"n{i}", 1.5, 3072) for i in range(150)]
    items = triples(100, 250, 1)
    found = packed(pack(items, nodes, Search(deterministic_limit=3.0)))
    assert fewest(classify(items, nodes)) < found.lower_bound == 99
    assert found.nodes_used <= 100


def test_where_fractions_of_nodes_suffice_whole_numbers_prove_the_optimum() -> None:
    """One and a half nodes of each pair would do: three together, but each pair needs both of its nodes."""
    pairs = [frozenset({"n0", "n1"}), frozenset({"n2", "n3"})]
    confined = [Item(vm(f"v{i}{j}"), rules=allowing(pair)) for i, pair in enumerate(pairs) for j in range(3)]
    nodes = [node(f"n{i}") for i in range(4)]
    classes = classify(confined, nodes)
    assert relax(classes, Pricer(classes, Budget(SEARCH)), [], classes.available, Budget(SEARCH)).bound == 3
    found = packed(pack(confined, nodes, SEARCH))
    assert (found.nodes_used, found.lower_bound) == (4, 4)


def test_a_node_that_hosts_only_vms_that_demand_nothing_is_used_as_well() -> None:
    confined = [Item(vm(f"v{i}", 0, 0), rules=allowing(frozenset({f"n{i}"}))) for i in range(2)]
    classes = classify(confined, [node("n0"), node("n1")])
    answer = spread(classes, Wanted(1, 2), Budget(SEARCH))
    assert answer.loads is not None
    assert (answer.bound, sum(answer.loads.values())) == (2, 2)


def test_a_dive_places_each_vm_once_where_patterns_have_room_for_more() -> None:
    classes = classify(items([(1, 1024)] * 3), [node("n0"), node("n1")])
    relaxation = Relaxation(2, columns=[(0, ((0, 2),))], values=[2.0])
    loads = dive(classes, Pricer(classes, Budget(SEARCH)), relaxation, classes.available, Budget(SEARCH))
    assert loads == {(0, ((0, 2),)): 1, (0, ((0, 1),)): 1}


def test_a_dive_uses_no_more_nodes_than_it_may() -> None:
    classes = classify(items([(2, 1024), (2, 512)]), [node("n0"), node("n1")])
    relaxation = Relaxation(2, columns=[(0, ((0, 1),)), (0, ((1, 1),))], values=[1.0, 1.0])
    pricer = Pricer(classes, Budget(SEARCH))
    assert dive(classes, pricer, relaxation, classes.usable(1), Budget(SEARCH)) is None
    assert dive(classes, pricer, relaxation, classes.usable(2), Budget(SEARCH)) is not None


def test_the_relaxation_leaves_something_for_what_comes_after_it() -> None:
    classes = classify(triples(200, 300, 6), [node(f"n{i}", 1.5, 3072) for i in range(200)])
    budget = Budget(Search(deterministic_limit=2.0))
    pricer = Pricer(classes, budget)
    before = budget.left
    relax(classes, pricer, [], classes.available, budget)
    assert before > budget.left > before / 4


def test_a_part_of_a_budget_ends_with_its_share_whoever_uses_it_and_the_whole_pays() -> None:
    whole = Budget(Search(deterministic_limit=8.0))
    half = whole.part(0.5)
    quarter = half.part(0.5)
    assert (half.left, quarter.left) == (4.0, 2.0)
    quarter.charge_run(units=1.5, seconds=100.0)
    assert (quarter.left, half.left, whole.left) == (0.5, 2.5, 6.5)
    whole.charge(1.0 * STEPS_A_SECOND)  # as plans of answers do that a part has found
    assert quarter.exhausted
    assert not half.exhausted
    assert (half.left, whole.left) == (1.5, 5.5)


def test_a_part_of_a_deadline_is_an_earlier_deadline() -> None:
    now_s = 0.0
    whole = Budget(Search(time_limit_s=8.0), lambda: now_s)
    half = whole.part(0.5)
    now_s = 3.0
    half.charge_run(units=1.0, seconds=1.0)  # the clock has seen these
    assert (half.left, whole.left) == (1.0, 5.0)


@pytest.mark.parametrize(("workers", "interleaved"), [(1, False), (2, True)])
def test_with_a_deterministic_limit_no_clock_ends_a_solver_and_its_threads_do_not_race(
    workers: int, interleaved: bool
) -> None:
    budget = Budget(Search(time_limit_s=0.5, workers=workers, seed=7, deterministic_limit=4.0))
    solver, _ = budget.solve(cp_model.CpModel(), 0.25)
    parameters = solver.parameters
    assert (parameters.max_deterministic_time, parameters.max_time_in_seconds) == (1.0 / CP_SAT_UNIT, math.inf)
    assert (parameters.random_seed, parameters.num_workers) == (7, workers)
    assert parameters.interleave_search is interleaved


def test_patterns_are_not_listed_if_there_are_too_many_and_the_bound_is_the_same() -> None:
    classes = classify(triples(12, 60, 2), [node(f"n{i}", 1.5, 3072) for i in range(60)])
    assert maximal(classes, 0, 100, Budget(Search())) is None
    listed, unlisted = (Pricer(classes, Budget(SEARCH), elements) for elements in (10**6, 100))
    assert listed.complete == len(listed.listed[0])
    assert unlisted.complete is None
    bounds = {relax(classes, pricer, [], classes.available, Budget(SEARCH)).bound for pricer in (listed, unlisted)}
    assert len(bounds) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_seed_workers_and_limit_give_the_same_answer(workers: int) -> None:
    nodes = [node(f"n{i}", 1.5, 3072) for i in range(60)]
    search = Search(workers=workers, seed=3, deterministic_limit=0.4, time_limit_s=0.001)
    first, second = (packed(pack(triples(70, 90, 3), nodes, search)) for _ in range(2))
    assert first == second


def test_many_vms_that_all_differ_are_packed_at_least_as_well_as_by_first_fit_decreasing() -> None:
    chance = random.Random(4)
    demands = [(chance.randint(5, 400) / 100, chance.randint(300, 9000)) for _ in range(2000)]
    found = packed(pack(items(demands), [node(f"n{i}", 16, 32768) for i in range(400)], Search(time_limit_s=2.0)))
    assert found.ffd_nodes_used is not None
    assert found.lower_bound <= found.nodes_used <= found.ffd_nodes_used
    assert found.lower_bound >= max(sum(c for c, _ in demands) / 16, sum(m for _, m in demands) / 32768)


# -- whether all fit ----------------------------------------------------------------------------------------------


def test_all_fit_although_first_fit_decreasing_fails() -> None:
    """The largest pair leaves no room for the last; paired otherwise, all have room."""
    demands = [(1, 6), (1, 5), (1, 5), (1, 4), (1, 4), (1, 3), (1, 3), (1, 2)]
    nodes = [node("n1", 4, 16), node("n2", 4, 16)]
    room = FirstFit.on(nodes)
    assert room.place([item.vm for item in items(demands)]) is None
    found = fits(items(demands), nodes, SEARCH)
    assert isinstance(found, Fits)
    assert len(found.assignment) == len(demands)


def test_what_the_limits_leave_open_is_unknown_and_not_a_no() -> None:
    """No bound of sums, no relaxation helps: whole numbers of VMs have to be tried."""
    chance = random.Random(0)
    hard = items([(chance.randint(10, 100) / 100, chance.randint(500, 1700)) for _ in range(40)])
    memory = sum(item.vm.demand.memory_mib for item in hard)
    nodes = [node(f"n{i}", 3, -(-memory // 10)) for i in range(10)]
    assert fits(hard, nodes, Search(deterministic_limit=0.01)) == Unknown()
    found = pack(hard, nodes, Search(deterministic_limit=0.01))
    assert isinstance(found, NoPacking)
    assert not found.proven


def test_no_vms_always_fit() -> None:
    assert fits([], [], SEARCH) == Fits({})
