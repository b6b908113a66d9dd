"""Load sharing and virtual reconfiguration: nothing moves back and forth, and nobody is made worse off."""

from __future__ import annotations

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.loads import after

from rmsplugin.decision.load import Arrival, Board, NodeLoad, VMLoad
from rmsplugin.decision.load_sharing import place, relieve
from rmsplugin.decision.reservation import ReservationLimits, Reservations, reconfigure
from rmsplugin.decision.unblocking import Prices, Unblocking

LIMITS = ReservationLimits(most_share=0.5, reserving_s=600.0)


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeLoad]:
    """Up to six nodes with up to five VMs each, some of them gangs, some nodes short or crowded."""
    nodes = []
    for number in range(draw(st.integers(1, 6))):
        vms = tuple(
            VMLoad(
                f"{vjob}.{number}.{k}",
                vjob,
                draw(st.integers(1, 12)) * 50,
                draw(st.sampled_from([0.0, 100.0])),
                draw(st.sampled_from([0.0, 0.3, 0.9])),
                draw(st.sampled_from([10.0, 500.0])),
                rank=int(vjob[1:]),
                fixed=draw(st.integers(0, 5)) == 0,
            )
            for k, vjob in enumerate(draw(st.lists(st.sampled_from([f"v{i}" for i in range(8)]), max_size=5)))
        )
        nodes.append(NodeLoad(f"n{number}", draw(st.sampled_from([800, 1000, 1400])), draw(st.integers(2, 5)), vms))
    return nodes


def shortage(nodes: list[NodeLoad]) -> dict[str, tuple[int, int]]:
    """By node, the MiB and the slots that it lacks."""
    return {
        node.name: (max(0, node.demand_mib - node.memory_mib), max(0, len(node.vms) - node.slots)) for node in nodes
    }


@given(clusters())
def test_with_constant_demands_the_second_relief_moves_nothing(nodes: list[NodeLoad]) -> None:
    first = Board(nodes)
    relieve(first)
    second = Board(after(first))
    relieve(second)
    assert second.moves == []


@given(clusters())
def test_relief_makes_no_node_short_and_loses_no_vm(nodes: list[NodeLoad]) -> None:
    board = Board(nodes)
    relieve(board)
    was, now = shortage(nodes), shortage(after(board))
    assert all(now[name][0] <= was[name][0] and now[name][1] <= was[name][1] for name in was)
    names = sorted(vm.name for node in nodes for vm in node.vms)
    assert sorted(vm.name for vms in board.vms.values() for vm in vms) == names


@given(clusters())
@settings(max_examples=few(60), deadline=None)
def test_with_constant_demands_the_second_cycle_moves_nothing(nodes: list[NodeLoad]) -> None:
    first = reconfigure(Board(nodes), Reservations(), 0.0, LIMITS)
    assert len({move.vm for move in first.board.moves}) == len(first.board.moves)
    second = reconfigure(Board(after(first.board)), first.reservations, 30.0, LIMITS)
    assert second.board.moves == []
    assert second.closed == first.closed


@given(clusters())
@settings(max_examples=few(60), deadline=None)
def test_with_constant_demands_unblocking_comes_to_rest(nodes: list[NodeLoad]) -> None:
    """Not always in the first cycle: a VM that relief has moved may have to make way for a compaction of the next."""
    loads, before = nodes, Reservations()
    for cycle in range(6):
        found = Unblocking(Board(loads), before, 30.0 * cycle, LIMITS, Prices())
        found.reconfigure()
        if not found.board.moves and not found.board.suspended:
            return
        loads, before = after(found.board), found.reservations
    raise AssertionError("it does not come to rest")


@given(clusters(), st.lists(st.lists(st.integers(1, 600), min_size=1, max_size=3), max_size=6))
def test_arrivals_fit_where_they_go_and_never_on_closed_nodes(nodes: list[NodeLoad], sizes: list[list[int]]) -> None:
    closed = {nodes[0].name}
    board = Board(nodes)
    queue = [Arrival(f"j{i}", {f"j{i}.{k}": mib for k, mib in enumerate(each)}) for i, each in enumerate(sizes)]
    placed = place(board, queue, closed)
    was = {node.name: node for node in nodes}
    for vjob, places in placed.items():
        assert len(places) == len(sizes[int(vjob[1:])])
        assert not closed & set(places.values())
    for name in {node for places in placed.values() for node in places.values()}:
        assert not board.is_short(name)
        assert len(board.vms[name]) <= was[name].slots


@given(clusters(), st.integers(0, 1300))
@settings(max_examples=few(60), deadline=None)
def test_reserved_nodes_are_few_and_get_nobody_but_their_guests(nodes: list[NodeLoad], later_s: int) -> None:
    first = reconfigure(Board(nodes), Reservations(), 0.0, LIMITS)
    second = reconfigure(Board(after(first.board)), first.reservations, float(later_s), LIMITS)
    for cycle, now_s in ((first, 0.0), (second, later_s)):
        assert len(cycle.closed) <= LIMITS.most_nodes(len(nodes))
        # A node may be reserved after somebody was sent there to relieve another one.
        guests = {each.node: each.guests for each in cycle.reservations.held if each.since_s < now_s}
        assert all(move.vm in guests[move.destination] for move in cycle.board.moves if move.destination in guests)
        assert all(each.guests or now_s - each.since_s < 600 for each in cycle.reservations.held)
