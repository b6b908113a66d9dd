"""Virtual reconfiguration: when a node is reserved, for whom, and until when; and when it is of no use (section 5)."""

from __future__ import annotations

from dataclasses import replace

from unit.loads import MANY, after, blocked_cluster, node, vm

from rmsplugin.decision.load import Arrival, Board, NodeLoad
from rmsplugin.decision.load_sharing import place
from rmsplugin.decision.reservation import (
    Reconfiguration,
    Reservation,
    ReservationLimits,
    Reservations,
    reconfigure,
)

LIMITS = ReservationLimits(most_share=0.5, reserving_s=600.0)
NOTHING = Reservations()


def cycle(
    nodes: list[NodeLoad], before: Reservations = NOTHING, now_s: float = 0.0, limits: ReservationLimits = LIMITS
) -> Reconfiguration:
    return reconfigure(Board(nodes), before, now_s, limits)


def words(found: Reconfiguration) -> list[str]:
    return [note.what for note in found.notes]


def reserving(name: str, since_s: float = 0.0) -> Reservations:
    return Reservations((Reservation(name, "big", since_s),))


def test_a_blocked_cluster_reserves_the_most_lightly_loaded_node_with_most_idle_memory() -> None:
    nodes = [*blocked_cluster(2), node("lighter", vm("c", 640)), node("lightest", vm("d", 620))]
    found = cycle(nodes)
    assert [(each.node, each.vm) for each in found.reservations.held] == [("lightest", "big")]
    assert found.board.moves == []
    assert "700 MiB" in found.notes[0].sentence


def test_nothing_is_reserved_unless_more_is_idle_than_a_node_has() -> None:
    assert cycle(blocked_cluster(2)).reservations == NOTHING  # 800 MiB idle
    assert len(cycle(blocked_cluster(3)).reservations.held) == 1  # 1200 MiB idle


def test_nothing_is_reserved_while_nobody_waits_for_its_pages() -> None:
    calm = [node("n0", vm("big", 700), vm("mid", 600)), *blocked_cluster(3)[1:]]
    assert cycle(calm).reservations == NOTHING


def test_reserved_nodes_take_no_arrivals_and_no_relief() -> None:
    nodes = [*blocked_cluster(3)[1:], node("n0", vm("big", 700, MANY), vm("mid", 600, MANY), vm("tiny", 50))]
    found = cycle(nodes, Reservations((Reservation("n1", "big", 0.0),)))
    placed = place(found.board, [Arrival(f"j{i}", {f"j{i}": 10}) for i in range(20)], found.closed)
    assert found.closed == {"n1"}
    assert {node for nodes in placed.values() for node in nodes.values()} == {"n0", "n2", "n3"} - {"n0"}
    assert all(move.destination != "n1" for move in found.board.moves)


def test_as_soon_as_there_is_room_the_largest_that_suffers_moves_there() -> None:
    nodes = [blocked_cluster()[0], node("n1", vm("a1", 300)), *blocked_cluster(3)[2:]]
    found = cycle(nodes, reserving("n1"), 60.0)
    assert [(move.vm, move.destination) for move in found.board.moves] == [("big", "n1")]
    assert found.reservations.held[0].guests == {"big"}


def test_with_until_empty_room_is_not_enough() -> None:
    nodes = [blocked_cluster()[0], node("n1", vm("a1", 300)), *blocked_cluster(3)[2:]]
    limits = replace(LIMITS, until="empty")
    assert cycle(nodes, reserving("n1"), 60.0, limits).board.moves == []
    nodes[1] = node("n1")
    assert [move.vm for move in cycle(nodes, reserving("n1"), 60.0, limits).board.moves] == ["big"]


def test_a_node_is_released_at_once_when_nobody_is_blocked_any_more() -> None:
    nodes = [node("n0", vm("big", 700)), *blocked_cluster(3)[1:]]
    found = cycle(nodes, reserving("n1"), 60.0)
    assert (found.reservations.held, words(found)) == ((), ["released"])


def test_a_node_is_released_when_whoever_moved_there_has_ended_and_not_before() -> None:
    held = Reservations((Reservation("n1", "big", 0.0, frozenset({"big", "mid"})),))
    with_guest = [node("n0"), node("n1", vm("mid", 600)), node("n2")]
    found = cycle(with_guest, held, 60.0)
    assert [each.guests for each in found.reservations.held] == [{"mid"}]
    (note,) = cycle([node("n0"), node("n1", vm("other", 600)), node("n2")], held, 60.0).notes
    assert (note.what, note.sentence) == ("released", "n1 is released: the VMs that were moved there have ended")


def test_a_further_blocking_tries_reserved_nodes_with_guests_first() -> None:
    nodes = [blocked_cluster()[0], node("n1", vm("old", 250)), node("n2", vm("c", 100)), *blocked_cluster(3)[3:]]
    serving = Reservation("n1", "old", 0.0, frozenset({"old"}))
    found = cycle(nodes, Reservations((Reservation("n2", "big", 10.0), serving)), 60.0)
    assert [(move.vm, move.destination) for move in found.board.moves] == [("big", "n1")]
    assert found.closed == {"n1"}  # n2 reserved for nobody any more


def test_no_more_nodes_are_reserved_than_the_limit_says() -> None:
    short = [node(f"s{i}", vm(f"x{i}", 700, MANY), vm(f"y{i}", 600, MANY)) for i in range(6)]
    nodes = [*short, *(node(f"n{i}", vm(f"a{i}", 300), vm(f"b{i}", 300)) for i in range(10))]
    assert len(cycle(nodes, limits=replace(LIMITS, most_share=0.2)).reservations.held) == 3
    assert len(cycle(nodes, limits=replace(LIMITS, most_share=0.01)).reservations.held) == 1


def test_a_reserving_period_is_bounded_then_the_cluster_is_truly_full_and_says_so() -> None:
    nodes = blocked_cluster(3)
    found = cycle(nodes, reserving("n1"), 599.0)
    assert found.closed == {"n1"}
    found = cycle(nodes, reserving("n1"), 600.0)
    assert (found.closed, words(found)) == (frozenset(), ["full"])
    assert "truly full" in found.notes[0].sentence
    assert cycle(nodes, found.reservations, 1199.0).closed == frozenset()
    assert len(cycle(nodes, found.reservations, 1200.0).closed) == 1


def test_a_reserved_node_that_is_lost_is_forgotten() -> None:
    found = cycle(blocked_cluster(2), reserving("gone"), 10.0)
    assert found.closed == frozenset()


def test_each_vm_of_a_gang_is_helped_and_the_node_is_kept_until_both_have_ended() -> None:
    gang = [
        node("n0", vm("gang.0", 600, MANY), vm("a", 500)),
        node("n1", vm("gang.1", 600, MANY), vm("b", 500)),
    ]
    nodes = [*gang, node("n2", vm("c", 100), memory_mib=1400), node("n3", vm("d", 900))]
    held = Reservations((Reservation("n2", "gang.0", 0.0),))
    found = cycle(nodes, held, 60.0)
    assert {(move.vm, move.destination) for move in found.board.moves} == {("gang.0", "n2"), ("gang.1", "n2")}
    assert found.reservations.held[0].guests == {"gang.0", "gang.1"}


# -- the conditions under which it is of no use ---------------------------------------------------------------------


def test_lightly_loaded_migrations_end_the_shortage_and_nothing_is_reserved() -> None:
    nodes = [blocked_cluster()[0], node("n1", vm("a", 300)), node("n2"), node("n3")]
    found = cycle(nodes)
    assert found.reservations == NOTHING
    assert len(found.board.moves) == 1


def test_vms_of_equal_sizes_that_fit_are_never_blocked() -> None:
    nodes = [node(f"n{i}", *(vm(f"v{i}.{k}", 250, MANY) for k in range(4 + (i == 0))), slots=9) for i in range(8)]
    found = cycle(nodes)
    assert (found.reservations, found.board.moves) == (NOTHING, [])


def test_one_that_no_node_can_hold_gets_a_node_for_itself_and_others_do_not_suffer_from_it() -> None:
    nodes = [node("n0", vm("huge", 1500, MANY), vm("mid", 500, fixed=True)), node("n1"), *blocked_cluster(3)[2:]]
    found = cycle(nodes)
    assert found.reservations.held[0].guests == {"huge"}
    assert [each.name for each in found.board.vms["n1"]] == ["huge"]
    second = cycle(after(found.board), found.reservations, 10.0)
    assert second.board.moves == [] and second.closed == {"n1"}


def test_the_node_reserved_for_a_large_one_is_a_large_node() -> None:
    small = [node(f"s{i}", vm(f"v{i}", 300, rank=i), memory_mib=500) for i in range(4)]
    nodes = [*blocked_cluster(0), *small, node("large", vm("c", 300), vm("d", 310))]
    assert [each.node for each in cycle(nodes).reservations.held] == ["large"]
