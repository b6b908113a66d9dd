"""Ends of rooms: how many nodes are asked at a time, and what is not asked by the end of a cycle's wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.nodes.base import RoomEnd
from rmsplugin.engine.upkeep import room_ends
from rmsplugin.engine.upkeep.room_ends import Answered, Asked, RoomEnds

MOST = room_ends._MOST


class Nodes:
    """Nodes that answer when they are let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = threading.Event()

    def end_room(self, node: str, job_id: int) -> RoomEnd:
        self.asked.append(node)
        assert self.answer.wait(PATIENCE_S)
        return RoomEnd(True, ())


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    nodes = Nodes()
    yield nodes
    nodes.answer.set()


def answers(ends: RoomEnds, number: int) -> list[Answered]:
    found: list[Answered] = []
    while len(found) < number:
        found += ends.answers()
    return found


def test_rooms_beyond_so_many_are_asked_for_as_others_answer(nodes: Nodes) -> None:
    ends = RoomEnds(nodes, lambda: 0.0)
    for number in range(MOST + 2):
        ends.ask(Asked(number, f"n{number}", "idle"))
    nodes.answer.set()
    assert sorted(each.asked.job_id for each in answers(ends, MOST + 2)) == [*range(MOST + 2)]
    assert not ends.unanswered


def test_what_could_not_be_asked_in_a_cycle_is_asked_in_no_later_one(nodes: Nodes) -> None:
    """Whether the room is to end is decided anew: meanwhile a VM may have come."""
    ends = RoomEnds(nodes, lambda: 0.0)
    for number in range(MOST + 2):
        ends.ask(Asked(number, f"n{number}", "idle"))
    assert ends.answers(0) == []
    assert ends.unanswered == {*range(MOST)}
    nodes.answer.set()
    assert sorted(each.asked.job_id for each in answers(ends, MOST)) == [*range(MOST)]
    assert ends.answers() == [] and len(nodes.asked) == MOST
