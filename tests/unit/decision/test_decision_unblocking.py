"""The cheapest way out of a shortage: compaction, reservation or suspension, and the sentence that says why."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from unit.loads import MANY, blocked_cluster, node, vm

from rmsplugin.decision.load import Board, NodeLoad
from rmsplugin.decision.reservation import ReservationLimits, Reservations
from rmsplugin.decision.unblocking import Prices, Unblocking, estimate_mib

LIMITS = ReservationLimits(most_share=0.5)
DEAR_STORE = Prices(store_mib_per_s=4.0)
SLOW_NETWORK = Prices(network_mib_per_s=0.01)


def unblocked(nodes: list[NodeLoad], prices: Prices = DEAR_STORE, limits: ReservationLimits = LIMITS) -> Unblocking:
    found = Unblocking(Board(nodes), Reservations(), 0.0, limits, prices)
    found.reconfigure()
    return found


def compactable() -> list[NodeLoad]:
    """690 MiB fit nowhere, unless 320 of n1 go to n2."""
    return [
        node("n0", vm("big", 700, MANY, age_s=1000.0), vm("mid", 690, MANY, age_s=1000.0), slots=2),
        node("n1", vm("a", 320), vm("b", 300)),
        node("n2", vm("c", 600)),
    ]


def test_migrations_on_other_nodes_make_room_at_the_least_memory_moved() -> None:
    found = unblocked(compactable())
    (note,) = found.notes
    assert note.what == "compacted"
    assert note.numbers["moved_mib"] == 690 + 320
    assert not any(found.board.is_short(name) for name in found.board.nodes)


def test_where_no_migrations_help_a_node_is_reserved() -> None:
    found = unblocked(blocked_cluster(3))
    assert [note.what for note in found.notes] == ["reserved"]
    assert found.closed and not found.board.suspended


def test_where_waiting_is_dear_the_last_in_the_queue_is_suspended() -> None:
    found = unblocked(blocked_cluster(3, age_s=1000.0), Prices())
    assert found.board.suspended == ["mid"]
    assert found.closed == frozenset()


def test_where_nothing_may_be_reserved_suspension_is_left() -> None:
    found = unblocked(blocked_cluster(1))  # less is idle than a node has
    assert found.board.suspended == ["mid"]


def test_the_sentence_names_all_costs() -> None:
    (note,) = unblocked(blocked_cluster(3), Prices()).notes
    assert note.sentence.endswith(
        "; compaction is impossible, reservation costs 87 VM-seconds, suspension costs 312 VM-seconds, "
        "waiting costs 800 VM-seconds"
    )
    assert note.numbers["suspension_cost_s"] == pytest.approx(2 * 6 + 1000 * (1 - 0.4) / 2)
    assert "compaction_cost_s" not in note.numbers
    (note,) = unblocked(compactable(), SLOW_NETWORK).notes
    assert "compaction costs at least 39000 VM-seconds" in note.sentence


@pytest.mark.parametrize("age_s", [10.0, 1000.0])
def test_a_reservation_costs_what_is_stalled_until_there_is_room(age_s: float) -> None:
    nodes = blocked_cluster(3, age_s)
    found = Unblocking(Board(nodes), Reservations(), 0.0, LIMITS, Prices())
    assert found.reservation(nodes[0].vms[0]).cost_s == pytest.approx(2 * 0.4 * age_s + 0.1 + 7)


def test_where_it_costs_less_to_wait_nothing_is_done() -> None:
    young = [node("n0", vm("big", 700, MANY, age_s=10.0), vm("mid", 600, MANY, age_s=10.0)), *blocked_cluster(3)[1:]]
    found = unblocked(young, Prices())
    assert (found.notes, found.board.moves, found.board.suspended) == ([], [], [])


def test_a_gang_is_suspended_as_a_whole_wherever_its_vms_are() -> None:
    nodes = [
        node("n0", vm("big", 700, MANY, rank=1, age_s=1000.0), vm("gang.0", 600, MANY, rank=5, age_s=1000.0)),
        node("n1", vm("gang.1", 600, rank=5, stalled=0.9)),
    ]
    found = unblocked(nodes, Prices())
    assert found.board.suspended == ["gang"]
    assert found.board.vms["n1"] == []


def test_a_vjob_with_a_vm_on_its_way_is_not_suspended() -> None:
    nodes = [
        node("n0", vm("big", 700, MANY, rank=1, age_s=1000.0), vm("gang.0", 600, MANY, rank=5, age_s=1000.0)),
        node("n1", vm("gang.1", 600, rank=5, fixed=True)),
    ]
    assert unblocked(nodes, Prices()).board.suspended == ["big"]


def test_the_last_in_the_queue_that_is_enough_goes_before_a_later_one_that_is_not() -> None:
    short = node("n0", vm("big", 800, MANY, rank=1), vm("mid", 400, MANY, rank=2), vm("late", 100, rank=7))
    nodes = [short, node("n1", vm("a", 950))]
    assert unblocked(nodes, Prices()).board.suspended == ["mid"]


def test_nothing_is_looked_for_that_cannot_be_cheaper() -> None:
    found = Unblocking(Board(compactable()), Reservations(), 0.0, LIMITS, Prices())
    big = found.board.vms["n0"][0]
    assert not found.compaction(big).is_bound
    assert found.compaction(big, below_s=1.0).is_bound


def test_a_compaction_leaves_other_short_nodes_alone_and_keeps_to_slots() -> None:
    wide, narrow = (node("n2", vm("c", 1080), memory_mib=1400, slots=slots) for slots in (2, 1))
    nodes = [*compactable()[:2], wide, node("n3", vm("huge", 1500, MANY))]
    assert [note.what for note in unblocked(nodes).notes] == ["compacted"]
    nodes[2] = narrow
    assert [note.what for note in unblocked(nodes).notes] == ["suspended"]


def test_no_more_compactions_are_looked_for_than_the_limit_says() -> None:
    found = unblocked(compactable(), replace(DEAR_STORE, searches=0))
    assert [note.what for note in found.notes] == ["suspended"]
    assert "compaction costs at least 4 VM-seconds" in found.notes[0].sentence


def test_without_a_search_compaction_is_impossible() -> None:
    found = Unblocking(Board(compactable()), Reservations(), 0.0, LIMITS, Prices(search=None))
    assert math.isinf(found.compaction(found.board.vms["n0"][0]).cost_s)


def test_what_is_expected_is_a_high_percentile_of_what_was_seen() -> None:
    assert estimate_mib([], 64) == 64
    assert estimate_mib([100] * 9 + [900], 64) == 100
    assert estimate_mib([100] * 8 + [900] * 2, 64) == 900
    assert estimate_mib([100], 64) == 100
