"""Better-fit: what holds for every sequence of arrivals, ends and loads of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.model.rules import admit, allowing
from rmsplugin.packing.arriving import pack_arriving
from rmsplugin.packing.better_fit import BetterFit
from rmsplugin.packing.item import Item
from rmsplugin.packing.vmpp import NoPacking

CPUS = st.sampled_from([0.0, 0.05, 0.5, 1.0, 1.25, 2.0])
MEMORY = st.sampled_from([0, 256, 512, 700, 1024, 2048])
STATES = st.sampled_from([*[NodeState.UP] * 5, NodeState.DRAINING, NodeState.DOWN])
SIZES = st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1024, 3072]))
RULES = st.sampled_from(
    [(), (), (), allowing(frozenset({"n0", "n2"})), allowing(exclude=frozenset({"n1"}))],
)


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    sizes = draw(st.lists(SIZES, min_size=1, max_size=5))
    return [Node(f"n{i}", Resources(*size), draw(STATES)) for i, size in enumerate(sizes)]


@st.composite
def arrivals(draw: st.DrawFn) -> list[Item]:
    demands = draw(st.lists(st.tuples(CPUS, MEMORY, RULES), max_size=14))
    return [Item(VM(f"v{i}", Resources(cpus, memory)), rules) for i, (cpus, memory, rules) in enumerate(demands)]


def check_viable(nodes: Sequence[Node], items: Sequence[Item], assignment: Mapping[str, str]) -> None:
    by_name, used = {node.name: node for node in nodes}, dict.fromkeys([node.name for node in nodes], NOTHING)
    for item in items:
        if item.vm.name in assignment:
            at = assignment[item.vm.name]
            assert by_name[at].state is NodeState.UP and admit(item.rules, at)
            used[at] += item.vm.demand
    assert all(node.capacity.holds(used[node.name]) for node in nodes)


def fits_in_use(nodes: Sequence[Node], items: Sequence[Item], assignment: Mapping[str, str], item: Item) -> bool:
    """Whether a VM has room beside those of a node in use, by looking at all of them."""
    for node in nodes:
        there = [each.vm.demand for each in items if assignment.get(each.vm.name) == node.name]
        free = node.capacity - sum(there, NOTHING)
        if there and free.holds(item.vm.demand) and admit(item.rules, node.name):
            return True
    return False


@given(clusters(), arrivals(), st.data())
@settings(max_examples=few(200))
def test_capacity_is_kept_and_no_node_is_taken_into_use_in_vain(
    nodes: list[Node], items: list[Item], data: st.DataObject
) -> None:
    fit = BetterFit(nodes)
    inserted: list[Item] = []
    for item in items:
        before, used = fit.assignment, fit.nodes_used
        at_ease = fits_in_use(nodes, inserted, before, item)
        if fit.insert(item):
            inserted.append(item)
        else:
            assert fit.assignment == before and not at_ease
        assert set(fit.assignment) == {each.vm.name for each in inserted}
        assert sum(fit.assignment[name] != node for name, node in before.items()) <= 1
        assert fit.nodes_used <= used + (not at_ease)
        check_viable(nodes, inserted, fit.assignment)
        if inserted and data.draw(st.integers(0, 3)) == 0:
            ended = data.draw(st.sampled_from(inserted))
            inserted.remove(ended)
            check_removal(fit, ended, nodes, inserted)


def check_removal(fit: BetterFit, ended: Item, nodes: Sequence[Node], left: Sequence[Item]) -> None:
    node = fit.remove(ended.vm.name)
    before, used = fit.assignment, fit.nodes_used
    alone, moves = fit.moves_to_empty(node, exchange=False), fit.moves_to_empty(node)
    assert fit.assignment == before
    assert moves is not None or alone is None
    assert alone is None or all(before[name] == node != to for name, to in alone.items())
    if fit.empty(node):
        assert moves is not None and {**before, **moves} == fit.assignment
        assert node not in fit.assignment.values() and fit.nodes_used == used - 1
    else:
        assert fit.assignment == before
    assert set(fit.assignment) == {each.vm.name for each in left}
    check_viable(nodes, left, fit.assignment)


@given(clusters(), arrivals())
@settings(max_examples=few(200))
def test_a_packing_is_viable_above_its_bound_and_the_same_again(nodes: list[Node], items: list[Item]) -> None:
    found = pack_arriving(items, nodes)
    assert found == pack_arriving(items, nodes)
    if isinstance(found, NoPacking):
        return
    assert set(found.assignment) == {item.vm.name for item in items}
    check_viable(nodes, items, found.assignment)
    assert found.nodes_used == len(set(found.assignment.values())) >= found.lower_bound


@given(clusters(), arrivals())
@settings(max_examples=few(200))
def test_an_overloaded_node_only_gives_away(nodes: list[Node], items: list[Item]) -> None:
    """All VMs begin on the first node; the others are viable, and take no more than they have."""
    if nodes[0].state is not NodeState.UP:
        return
    fit = BetterFit(nodes)
    for item in items:
        if admit(item.rules, "n0"):
            fit.put(item, "n0")
    for node in fit.overloaded():
        relieved = fit.relieve(node)
        assert relieved == (node not in fit.overloaded())
    assert set(fit.overloaded()) <= {"n0"}
    check_viable(nodes[1:], [item for item in items if fit.assignment.get(item.vm.name, "n0") != "n0"], fit.assignment)
