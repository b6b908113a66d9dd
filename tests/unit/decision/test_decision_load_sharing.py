"""Load sharing: where arrivals go, and how a node that is short is relieved."""

from __future__ import annotations

from unit.loads import MANY, node, vm

from rmsplugin.decision.load import Arrival, Board, Move
from rmsplugin.decision.load_sharing import LIGHTEST, TIGHTEST, place, relieve


def arrival(name: str, *sizes_mib: int, home: str | None = None) -> Arrival:
    return Arrival(name, {f"{name}.{i}": size for i, size in enumerate(sizes_mib)}, home)


def test_an_arrival_goes_to_the_least_loaded_node_with_memory_and_a_slot() -> None:
    board = Board(
        [
            node("full", vm("a", 950)),
            node("crowded", vm("b", 10), vm("c", 10), slots=2),
            node("two", vm("d", 10), vm("e", 10)),
            node("one", vm("f", 500)),
        ]
    )
    assert place(board, [arrival("new", 100)]) == {"new": {"new.0": "one"}}


def test_an_arrival_goes_home_if_its_home_qualifies_and_else_elsewhere() -> None:
    nodes = [node("home", vm("a", 100), vm("b", 100)), node("empty")]
    assert place(Board(nodes), [arrival("new", 800, home="home")]) == {"new": {"new.0": "home"}}
    assert place(Board(nodes), [arrival("new", 900, home="home")]) == {"new": {"new.0": "empty"}}


def test_closed_nodes_take_no_arrivals_not_even_at_home() -> None:
    board = Board([node("home"), node("other", vm("a", 100))])
    assert place(board, [arrival("new", 10, home="home")], {"home"}) == {"new": {"new.0": "other"}}
    assert place(board, [arrival("more", 10, home="home")], {"home", "other"}) == {}


def test_a_gang_arrives_as_a_whole_or_not_at_all_and_leaves_no_trace_if_not() -> None:
    board = Board([node("n0", slots=2), node("n1", vm("a", 700))])
    placed = place(board, [arrival("large", 800, 800), arrival("gang", 300, 700)])
    assert placed == {"gang": {"gang.1": "n0", "gang.0": "n0"}} or set(placed) == {"gang"}
    assert sum(len(vms) for vms in board.vms.values()) == 3


def test_one_that_finds_no_place_is_passed_by_smaller_ones() -> None:
    board = Board([node("n0", vm("a", 500))])
    assert set(place(board, [arrival("large", 600), arrival("small", 400)])) == {"small"}


def test_relief_moves_as_little_memory_as_ends_the_shortage() -> None:
    board = Board([node("n0", vm("a", 600), vm("b", 300), vm("c", 250)), node("n1", vm("d", 400))])
    relieve(board)
    assert board.moves == [Move("c", "n0", "n1", 250)]


def test_a_smaller_one_that_is_not_enough_stays() -> None:
    board = Board([node("n0", vm("a", 650), vm("b", 400), vm("c", 100)), node("n1", vm("d", 400))])
    relieve(board)
    assert [move.vm for move in board.moves] == ["b"]


def test_two_small_ones_go_where_the_one_that_would_do_fits_nowhere() -> None:
    nodes = [node("n0", vm("a", 800), vm("b", 200), vm("c", 200)), node("n1", vm("d", 750)), node("n2", vm("e", 780))]
    board = Board([node("n0", vm("a", 900), vm("b", 200), vm("c", 200)), *nodes[1:]])
    relieve(board, where=TIGHTEST)
    assert {(move.vm, move.destination) for move in board.moves} == {("b", "n2"), ("c", "n1")}


def test_a_crowded_node_sends_vms_away_though_it_has_memory() -> None:
    board = Board([node("n0", vm("a", 30), vm("b", 20), vm("c", 10), slots=2), node("n1", slots=2)])
    relieve(board)
    assert board.moves == [Move("c", "n0", "n1", 10)]


def test_where_the_shortage_cannot_be_ended_it_is_made_smaller() -> None:
    board = Board([node("n0", vm("a", 900), vm("b", 800), vm("c", 100)), node("n1", vm("d", 850))])
    relieve(board)
    assert [move.vm for move in board.moves] == ["c"]


def test_a_fixed_vm_and_one_that_is_alone_stay() -> None:
    board = Board(
        [node("n0", vm("a", 700, fixed=True), vm("b", 600, fixed=True)), node("n1", vm("c", 1500)), node("n2")]
    )
    relieve(board)
    assert board.moves == []


def test_no_node_is_short_by_what_came_to_it() -> None:
    board = Board(
        [node("n0", vm("a", 700, MANY), vm("b", 600, MANY)), node("n1", vm("c", 500)), node("n2", vm("d", 450))]
    )
    relieve(board)
    assert board.moves == []


def test_a_vm_leaves_for_the_most_lightly_loaded_node_or_for_the_tightest_where_that_is_asked_for() -> None:
    nodes = [
        node("n0", vm("a", 700), vm("b", 400)),
        node("tight", vm("c", 500)),
        node("crowded", vm("d", 50), vm("e", 50)),
        node("light", vm("f", 300)),
    ]
    for where, there in ((LIGHTEST, "light"), (TIGHTEST, "tight")):
        board = Board(nodes)
        relieve(board, where=where)
        assert board.moves == [Move("b", "n0", there, 400)]
    seeds = Board(nodes)
    relieve(seeds)
    assert [move.destination for move in seeds.moves] == ["light"]


def test_several_that_leave_a_node_are_spread_over_lightly_loaded_ones() -> None:
    board = Board([node("n0", vm("a", 900), vm("b", 100), vm("c", 100), vm("d", 100)), node("n1"), node("n2")])
    relieve(board)
    assert sorted(move.destination for move in board.moves) == ["n1", "n2"]


def test_where_those_that_leave_fit_only_tightly_they_go_there() -> None:
    """The largest first to the lightest node would leave no room for the third."""
    board = Board(
        [
            node("n0", vm("a", 900, fixed=True), vm("b", 400), vm("c", 300), vm("d", 300)),
            node("light", vm("e", 400, fixed=True)),
            node("tight", vm("f", 300, fixed=True), vm("g", 300, fixed=True)),
        ]
    )
    relieve(board)
    assert {move.vm: move.destination for move in board.moves} == {"b": "tight", "c": "light", "d": "light"}
