"""Repair: all VMs find a place near where they are, with as little memory moved as a small neighbourhood allows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Spread
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.packing import repair as module
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.item import Item
from rmsplugin.packing.repair import Repair, Repaired
from rmsplugin.packing.search import Search

SEARCH = Search(deterministic_limit=1.0)


def node(name: str, cpus: float = 4, memory_mib: int = 4, state: NodeState = NodeState.UP) -> Node:
    return Node(name, Resources(cpus, memory_mib), state)


def item(name: str, memory_mib: int, cpus: float = 0, nodes: str | None = None, exclude: str = "") -> Item:
    only = None if nodes is None else frozenset(nodes.split())
    return Item(VM(name, Resources(cpus, memory_mib)), allowing(only, frozenset(exclude.split())))


def both(repair: Repair) -> list[Repaired]:
    found = [repair.by_best_fit(), repair.by_program(SEARCH)]
    assert all(found)
    return [each for each in found if each is not None]


def test_nobody_moves_where_all_fit_as_they_are() -> None:
    items = [item("a", 4), item("b", 1)]
    for found in both(Repair(items, [node("n1"), node("n2")], {"a": "n1", "b": "n2"})):
        assert found == Repaired({"a": "n1", "b": "n2"}, 0)


def test_the_least_memory_that_is_enough_leaves_an_overloaded_node() -> None:
    items = [item("a", 3), item("b", 2), item("c", 1)]
    for found in both(Repair(items, [node("n1", memory_mib=5), node("n2")], dict.fromkeys("abc", "n1"))):
        assert found == Repaired({"a": "n1", "b": "n1", "c": "n2"}, 1)


@pytest.mark.parametrize("overloaded", ["CPUs", "memory"])
def test_both_dimensions_count(overloaded: str) -> None:
    a = item("a", 1, cpus=1.01) if overloaded == "CPUs" else item("a", 2, cpus=0)
    b = item("b", 3, cpus=3)
    for found in both(Repair([a, b], [node("n1"), node("n2")], {"a": "n1", "b": "n1"})):
        assert found.assignment == {"a": "n2", "b": "n1"}


def test_a_vm_leaves_a_node_that_drains_or_that_it_may_not_use() -> None:
    items = [item("a", 1), item("b", 1, exclude="n2")]
    nodes = [node("n1", state=NodeState.DRAINING), node("n2"), node("n3")]
    for found in both(Repair(items, nodes, {"a": "n1", "b": "n2"})):
        assert found.assignment["a"] in ("n2", "n3") and found.assignment["b"] == "n3"
        assert found.moved_mib == 2


def test_what_comes_takes_the_node_that_it_fills_best_and_moves_nothing() -> None:
    items = [item("a", 2), item("new", 2)]
    found = Repair(items, [node("n1", memory_mib=9), node("n2")], {"a": "n2"}).by_best_fit()
    assert found == Repaired({"a": "n2", "new": "n2"}, 0)


APART = Spread(frozenset("abc"))


def test_of_vms_that_need_nodes_of_their_own_each_has_one() -> None:
    items = [replace(each, apart=APART) for each in (item("a", 1), item("b", 1), item("c", 2))]
    nodes = [node("n1"), node("n2", 4, 9), node("n3")]
    for found in both(Repair([*items, item("d", 1)], nodes, {"a": "n1", "b": "n1", "d": "n1"})):
        assert found.moved_mib == 1
        assert found.assignment["d"] == "n1" and "n1" in (found.assignment["a"], found.assignment["b"])
        assert {found.assignment[name] for name in "abc"} == {"n1", "n2", "n3"}


def test_a_vm_leaves_for_a_node_where_none_is_that_it_must_not_be_beside() -> None:
    items = [replace(each, apart=APART) for each in (item("a", 2), item("b", 1))]
    nodes = [node("n1"), node("n2", memory_mib=3), node("n3", memory_mib=9)]
    for found in both(Repair([*items, item("d", 3)], nodes, {"a": "n1", "b": "n2", "d": "n1"})):
        assert found.assignment == {"a": "n3", "b": "n2", "d": "n1"}


def test_no_place_is_found_where_two_that_need_nodes_of_their_own_would_be_on_one() -> None:
    items = [replace(each, apart=APART) for each in (item("a", 1), item("b", 2))]
    for nodes in ([node("n1", memory_mib=9)], [node("n1", memory_mib=9), node("n2", memory_mib=0)]):
        repair = Repair(items, nodes, {})
        assert repair.by_best_fit() is None and repair.by_program(SEARCH) is None


def test_vms_on_nodes_of_their_own_find_places_where_a_program_that_tells_them_apart_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = [item("a", 3), item("b", 3), item("new", 4)]
    items += [replace(item(f"{vjob}{i}", 1), apart=Spread(frozenset(vjob))) for vjob in "wxyz" for i in (1, 2)]
    nodes = [*(node(f"n{i}") for i in (1, 2, 3, 4)), node("n5", memory_mib=2)]
    repair = Repair(items, nodes, {"a": "n1", "b": "n2", "x1": "n3", "x2": "n4"})
    assert repair.by_best_fit() is None
    monkeypatch.setattr(module, "MOST_PAIRS", 3 * len(nodes))  # there are six classes if each group is one
    found = repair.by_program(SEARCH)
    assert found is not None and found.moved_mib == 1
    for vjob in "wxyz":
        assert found.assignment[f"{vjob}1"] != found.assignment[f"{vjob}2"]


@pytest.mark.parametrize(("apart", "most", "parts"), [(True, 99, [0.75, 0.25]), (True, 2, [1.0]), (False, 99, [1.0])])
def test_the_program_with_all_classes_has_a_part_of_the_limits_if_it_may_be_asked(
    monkeypatch: pytest.MonkeyPatch, apart: bool, most: int, parts: list[float]
) -> None:
    """Though the one that takes VMs for equal uses up all that it may."""
    used: list[float] = []

    def uses_it_up(self: module._Program, budget: Budget, share: float) -> module._Found:
        used.append(budget.left * share)
        budget.charge_run(used[-1], 0.0)
        return module._Found(None, is_best=False)

    monkeypatch.setattr(module._Program, "solve", uses_it_up)
    monkeypatch.setattr(module, "MOST_PAIRS", most)
    items = [
        replace(item(vjob + vm, 1), apart=Spread(frozenset(vjob)) if apart else None) for vjob in "ab" for vm in "12"
    ]
    assert Repair(items, [node("n1"), node("n2")], {}).by_program(SEARCH) is None
    assert used == parts


def test_the_program_makes_room_where_best_fit_finds_none() -> None:
    items = [item("a", 2), item("b", 2), item("new", 4)]
    repair = Repair(items, [node("n1"), node("n2")], {"a": "n1", "b": "n2"})
    assert repair.by_best_fit() is None
    found = repair.by_program(SEARCH)
    assert found is not None and found.moved_mib == 2 and found.assignment["a"] == found.assignment["b"]


def test_the_neighbourhood_grows_until_it_has_room() -> None:
    """The nodes with most room are of no use: what must move fits on none of them, but on one that is nearly full."""
    nodes = [node(f"n{i:02}", cpus=0, memory_mib=9) for i in range(40)] + [node("over", 4, 4), node("full", 2, 4)]
    items = [item("a", 2, cpus=3), item("b", 1, cpus=2), item("c", 1), item("d", 3, cpus=0)]
    current = {"a": "over", "b": "over", "c": "full", "d": "full"}
    found = Repair(items, nodes, current).by_program(SEARCH)
    assert found is not None and found.assignment["b"] == "full" and found.moved_mib == 2
    assert found.assignment["a"] == "over" and found.assignment["d"] == "full"


def test_a_node_that_others_overload_takes_nobody() -> None:
    nodes = [node("n1", memory_mib=-1), node("n2")]
    for found in both(Repair([item("a", 0), item("b", 1)], nodes, {"a": "n1"})):
        assert set(found.assignment.values()) == {"n2"}


def test_no_place_is_none() -> None:
    repair = Repair([item("a", 3), item("b", 3)], [node("n1")], {"a": "n1", "b": "n1"})
    assert repair.by_best_fit() is None and repair.by_program(SEARCH) is None
    nowhere = Repair([item("a", 3)], [], {})
    assert nowhere.by_best_fit() is None and nowhere.by_program(SEARCH) is None


@given(
    demands=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5),
    sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5)), min_size=1, max_size=3),
    apart=st.dictionaries(st.integers(0, 4), st.sampled_from("ab")),
)
@example(demands=[(0, 0, 0), (0, 1, 3), (0, 1, 1)], sizes=[(0, 1), (0, 1)], apart={0: "a", 1: "a"})
def test_the_program_moves_exactly_what_brute_force_moves_at_least(
    demands: list[tuple[int, int, int]], sizes: list[tuple[int, int]], apart: dict[int, str]
) -> None:
    """``apart``: the group of a VM that needs a node of its own, by number; no two of one are on a node now."""
    nodes = [node(f"n{i}", cpus, memory) for i, (cpus, memory) in enumerate(sizes)]
    items = [item(f"v{k}", memory, cpus) for k, (cpus, memory, _) in enumerate(demands)]
    spreads = {k: Spread(frozenset(group)) for k, group in apart.items()}
    items = [replace(each, apart=spreads.get(k)) for k, each in enumerate(items)]
    first = {(apart.get(k, k), at): k for k, (_, _, at) in reversed(list(enumerate(demands)))}
    current = {f"v{k}": f"n{at}" for (_, at), k in first.items() if at < len(nodes)}
    least = None
    for hosts in product(range(len(nodes)), repeat=len(items)):
        fits = all(
            sum(d[dimension] for d, host in zip(demands, hosts, strict=True) if host == i) <= size[dimension]
            for i, size in enumerate(sizes)
            for dimension in (0, 1)
        )
        own = [(apart[k], host) for k, host in enumerate(hosts) if k in apart]
        fits = fits and len(set(own)) == len(own)
        moved = sum(demands[k][1] for k, host in enumerate(hosts) if current.get(f"v{k}", f"n{host}") != f"n{host}")
        if fits and (least is None or moved < least):
            least = moved
    repair = Repair(items, nodes, current)
    found, quick = repair.by_program(SEARCH), repair.by_best_fit()
    assert (found.moved_mib if found else None) == least
    for each in (found, quick):
        if each is not None:
            assert least is not None and each.moved_mib >= least
            for each_node in nodes:
                here = [i for i in items if each.assignment[i.vm.name] == each_node.name]
                there = [i.vm.demand for i in here]
                own_here = [i.apart for i in here if i.apart is not None]
                assert len(set(own_here)) == len(own_here)
                assert sum(d.cpus for d in there) <= each_node.capacity.cpus
                assert sum(d.memory_mib for d in there) <= each_node.capacity.memory_mib
