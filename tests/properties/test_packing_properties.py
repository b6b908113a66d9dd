"""Packing: what holds for every instance, small ones against a search through all assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from examples import few
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Ban, Fence, allowing
from rmsplugin.packing.budget import Budget
from rmsplugin.packing.classes import classify
from rmsplugin.packing.diving import dive
from rmsplugin.packing.feasible import Fits, FitsNot, fits
from rmsplugin.packing.ffd import first_fit_decreasing
from rmsplugin.packing.first_fit import FirstFit
from rmsplugin.packing.greedy import heuristics
from rmsplugin.packing.hosting import host
from rmsplugin.packing.integer import Wanted, combine, spread
from rmsplugin.packing.item import Item
from rmsplugin.packing.patterns import Pricer, maximal
from rmsplugin.packing.relaxation import relax
from rmsplugin.packing.search import Search
from rmsplugin.packing.vmpp import NoPacking, Packing, pack

CPUS = st.sampled_from([0.0, 0.05, 0.5, 1.0, 1.25, 2.0])
MEMORY = st.sampled_from([0, 256, 512, 700, 1024, 2048])
STATES = st.sampled_from([NodeState.UP, NodeState.UP, NodeState.UP, NodeState.DRAINING, NodeState.DOWN])


@st.composite
def some_nodes(draw: st.DrawFn, most: int) -> list[Node]:
    sizes = draw(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([1024, 3072])), max_size=most))
    return [Node(f"n{i}", Resources(cpus, memory), draw(STATES)) for i, (cpus, memory) in enumerate(sizes)]


@st.composite
def some_vms(draw: st.DrawFn, name: str, most: int) -> list[VM]:
    demands = draw(st.lists(st.tuples(CPUS, MEMORY), max_size=most))
    return [VM(f"{name}-{i}", Resources(cpus, memory)) for i, (cpus, memory) in enumerate(demands)]


# -- first fit ----------------------------------------------------------------------------------------------------


class NaiveFirstFit:
    """First fit as the papers write it: look through all nodes for each VM."""

    def __init__(self, nodes: list[Node]) -> None:
        self.left = {
            node.name: [node.capacity.centi_cpus, node.capacity.memory_mib]
            for node in nodes
            if node.state is NodeState.UP
        }

    def place(
        self, vms: list[VM], allows: Callable[[str], bool] | None, apart_from: set[str] | None
    ) -> dict[str, str] | None:
        left = {name: list(free) for name, free in self.left.items()}
        placed: dict[str, str] = {}
        for vm in sorted(vms, key=lambda vm: (-vm.demand.memory_mib, -vm.demand.cpus, vm.name)):
            demand = (vm.demand.centi_cpus, vm.demand.memory_mib)
            for name, free in left.items():
                if apart_from is not None and name in {*placed.values(), *apart_from}:
                    continue
                if (allows is None or allows(name)) and free[0] >= demand[0] and free[1] >= demand[1]:
                    free[0] -= demand[0]
                    free[1] -= demand[1]
                    placed[vm.name] = name
                    break
            else:
                return None
        self.left = left
        return placed


@given(st.data(), some_nodes(8))
def test_first_fit_is_plain_first_fit_over_a_whole_queue(data: st.DataObject, nodes: list[Node]) -> None:
    quick, plain = FirstFit.on(nodes), NaiveFirstFit(nodes)
    for j in range(data.draw(st.integers(1, 8))):
        vms = data.draw(some_vms(f"j{j}", 5))
        only = data.draw(st.none() | st.sets(st.sampled_from([f"n{i}" for i in range(8)])))
        allows = None if only is None else only.__contains__
        apart_from = data.draw(st.none() | st.sets(st.sampled_from([f"n{i}" for i in range(8)]), max_size=2))
        assert quick.place(reversed(vms), allows, apart_from) == plain.place(vms, allows, apart_from)
        if plain.left and data.draw(st.booleans()):
            stays, node = data.draw(some_vms(f"s{j}", 1)), data.draw(st.sampled_from(sorted(plain.left)))
            for vm in stays:
                quick.take(vm, node)
                plain.left[node][0] -= vm.demand.centi_cpus
                plain.left[node][1] -= vm.demand.memory_mib
        for name, (cpus, memory) in plain.left.items():
            assert (quick.free(name).centi_cpus, quick.free(name).memory_mib) == (cpus, memory)


# -- the fewest nodes, and whether all fit ------------------------------------------------------------------------

SEARCH = Search(deterministic_limit=5.0)


@st.composite
def some_items(draw: st.DrawFn, nodes: list[Node], most: int) -> list[Item]:
    names = [node.name for node in nodes]
    subset = st.frozensets(st.sampled_from(names)) if names else st.just(frozenset[str]())
    rule = st.just((None, frozenset[str]())) | st.tuples(st.none() | subset, subset)
    rules = draw(st.lists(rule, min_size=1, max_size=3))
    return [Item(vm, allowing(*draw(st.sampled_from(rules)))) for vm in draw(some_vms("v", most))]


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Item], list[Node]]:
    nodes = draw(some_nodes(4))
    return draw(some_items(nodes, 7)), nodes


def fewest_by_trying(items: Sequence[Item], nodes: Sequence[Node]) -> int | None:
    """The fewest nodes by a search through all assignments; None if there is no packing."""
    room = {n.name: [n.capacity.centi_cpus, n.capacity.memory_mib] for n in nodes if n.state is NodeState.UP}
    used = dict.fromkeys(room, 0)
    best: int | None = None

    def assign(i: int) -> None:
        nonlocal best
        count = sum(1 for number in used.values() if number)
        if best is not None and count >= best:
            return
        if i == len(items):
            best = count
            return
        vm = items[i].vm
        for name, left in room.items():
            if allowed(items[i], name) and left[0] >= vm.demand.centi_cpus and left[1] >= vm.demand.memory_mib:
                left[0] -= vm.demand.centi_cpus
                left[1] -= vm.demand.memory_mib
                used[name] += 1
                assign(i + 1)
                used[name] -= 1
                left[0] += vm.demand.centi_cpus
                left[1] += vm.demand.memory_mib

    assign(0)
    return best


def allowed(item: Item, node: str) -> bool:
    return all((node in rule.nodes) is isinstance(rule, Fence) for rule in item.rules if isinstance(rule, (Fence, Ban)))


def assert_viable(items: Sequence[Item], nodes: Sequence[Node], assignment: Mapping[str, str]) -> None:
    left = {n.name: [n.capacity.centi_cpus, n.capacity.memory_mib] for n in nodes if n.state is NodeState.UP}
    assert set(assignment) == {item.vm.name for item in items}
    for item in items:
        node = assignment[item.vm.name]
        assert allowed(item, node)
        left[node][0] -= item.vm.demand.centi_cpus
        left[node][1] -= item.vm.demand.memory_mib
    assert all(amount >= 0 for free in left.values() for amount in free)


@settings(max_examples=few(120))
@given(problems())
def test_a_packing_is_viable_and_as_good_as_it_says(problem: tuple[list[Item], list[Node]]) -> None:
    items, nodes = problem
    best, found = fewest_by_trying(items, nodes), pack(items, nodes, SEARCH)
    if isinstance(found, NoPacking):
        assert best is None
        assert found.proven and found.explanation
        return
    assert best is not None
    assert_viable(items, nodes, found.assignment)
    assert found.nodes_used == len(set(found.assignment.values()))
    assert found.lower_bound <= best <= found.nodes_used
    assert found.optimal  # instances of this size are always settled


@settings(max_examples=few(120))
@given(problems())
def test_fits_agrees_with_a_search_through_all_assignments(problem: tuple[list[Item], list[Node]]) -> None:
    items, nodes = problem
    found = fits(items, nodes, SEARCH)
    if fewest_by_trying(items, nodes) is None:
        assert isinstance(found, FitsNot) and found.explanation
    else:
        assert isinstance(found, Fits)
        assert_viable(items, nodes, found.assignment)


@settings(max_examples=few(100))
@given(problems(), st.floats(0.0, 0.01))
def test_a_search_that_is_cut_short_still_tells_nothing_wrong(
    problem: tuple[list[Item], list[Node]], limit: float
) -> None:
    items, nodes = problem
    best, search = fewest_by_trying(items, nodes), Search(deterministic_limit=limit)
    found = pack(items, nodes, search)
    if isinstance(found, Packing):
        assert best is not None
        assert_viable(items, nodes, found.assignment)
        assert found.lower_bound <= best <= found.nodes_used
    else:
        assert best is None or not found.proven
    answer = fits(items, nodes, search)
    assert not isinstance(answer, Fits) or best is not None
    assert not isinstance(answer, FitsNot) or best is None


@given(problems())
def test_what_ffd_uses_is_counted_with_the_nodes_in_the_given_order(problem: tuple[list[Item], list[Node]]) -> None:
    items, nodes = problem
    items = [Item(item.vm) for item in items]
    free = {node.name: node.capacity for node in nodes if node.state is NodeState.UP}
    plain = first_fit_decreasing([item.vm for item in items], free)
    found = pack(items, nodes, SEARCH)
    if isinstance(found, Packing):
        assert found.ffd_nodes_used == (None if plain is None else len(set(plain.values())))
    else:
        assert plain is None


# -- each way to search, on its own: in small instances the first mostly leaves nothing for the others -----------------


@settings(max_examples=few(100))
@given(problems())
def test_both_integer_programs_find_the_optimum_on_their_own(problem: tuple[list[Item], list[Node]]) -> None:
    items, nodes = problem
    assume(items)
    best, classes = fewest_by_trying(items, nodes), classify(items, nodes)
    wanted = Wanted(1, len(classes.kind_of))
    assume(wanted.at_most)
    patterns = [(kind, maximal(classes, kind, 10**6, Budget(SEARCH))) for kind in range(len(classes.available))]
    columns = [
        (kind, tuple((c, n) for c, n in enumerate(row) if n))
        for kind, rows in patterns
        if rows is not None
        for row in rows.tolist()
    ]
    for answer in (
        combine(classes, columns, [], wanted, Budget(SEARCH), 1.0),
        spread(classes, wanted, Budget(SEARCH)),
    ):
        if best is None:
            assert answer.loads is None
            assert answer.bound == wanted.at_most + 1
        else:
            assert answer.loads is not None
            assert answer.bound == best == sum(answer.loads.values())
            assert_viable(items, nodes, host(classes, answer.loads, {}))


@settings(max_examples=few(100))
@given(problems())
def test_the_relaxation_proves_no_more_than_is_true_and_a_dive_from_it_is_viable(
    problem: tuple[list[Item], list[Node]],
) -> None:
    items, nodes = problem
    assume(items and any(node.state is NodeState.UP for node in nodes))
    best, classes, budget = fewest_by_trying(items, nodes), classify(items, nodes), Budget(SEARCH)
    pricer = Pricer(classes, budget)
    relaxation = relax(classes, pricer, [], classes.available, budget)
    assert best is None or (not relaxation.infeasible and relaxation.bound <= best)
    if relaxation.values:
        assert relaxation.bound >= sum(relaxation.values) - 1e-6  # solved to the end
        loads = dive(classes, pricer, relaxation, classes.available, budget)
        if loads is not None:
            assert_viable(items, nodes, host(classes, loads, {}))


@given(problems(), st.data())
def test_all_ways_to_price_find_the_same_worth(problem: tuple[list[Item], list[Node]], data: st.DataObject) -> None:
    items, nodes = problem
    assume(items)
    classes = classify(items, nodes)
    size = len(classes.count)
    prices = np.array(data.draw(st.lists(st.integers(0, 1000), min_size=size, max_size=size)), dtype=np.int64)
    by_list, by_table = (Pricer(classes, Budget(SEARCH), elements) for elements in (10**6, 0))
    offers = {kind: (worth, patterns) for kind, worth, patterns in by_table.price(prices)}
    for kind, worth, patterns in by_list.price(prices):
        (_, also_worth, also_best) = by_list._by_solver(kind, prices)
        assert worth == offers[kind][0] == also_worth
        for rows in (patterns, offers[kind][1], also_best):
            assert (rows @ prices).max() == worth
            assert (rows @ classes.demand <= classes.capacity[kind]).all()
            assert (rows <= classes.most[:, kind]).all()


@given(problems())
def test_every_heuristic_packs_viably(problem: tuple[list[Item], list[Node]]) -> None:
    items, nodes = problem
    assume(items)
    classes = classify(items, nodes)
    for loads in heuristics(classes, Budget(SEARCH)):
        if loads is not None:
            assert_viable(items, nodes, host(classes, loads, {}))
