"""The bound of a node's observed VMs, and what is kept back of it, are together never more than what they may have."""

from __future__ import annotations

from typing import Any

import pytest

from rmsplugin.engine.context.bounds import Bounds
from rmsplugin.errors import OperationFailedError

ROOM_MIB, KEPT_MIB = 1024, 64


class Agents:
    """Node agents that keep what they were asked for, or refuse."""

    def __init__(self) -> None:
        self.refuses = False
        self.asked: list[int] = []

    def bound_memory(self, node: str, mib: int) -> None:
        self.asked.append(mib)
        if self.refuses:
            raise OperationFailedError("more is used")


@pytest.fixture
def agents() -> Agents:
    return Agents()


@pytest.fixture
def bounds(agents: Agents) -> Bounds:
    nodes: Any = agents
    made = Bounds(nodes, lambda: 0.0)
    made.set("n1", ROOM_MIB, KEPT_MIB, 0)
    return made


def test_what_was_kept_back_is_given_once(agents: Agents, bounds: Bounds) -> None:
    bounds.relieve("n1")
    bounds.relieve("n1")
    assert agents.asked == [ROOM_MIB - KEPT_MIB, ROOM_MIB, ROOM_MIB]


def test_where_the_lower_bound_is_refused_nothing_is_given_that_was_given_already(
    agents: Agents, bounds: Bounds
) -> None:
    bounds.relieve("n1")
    agents.refuses = True
    bounds.set("n1", ROOM_MIB, KEPT_MIB, 0)
    agents.refuses = False
    bounds.relieve("n1")
    assert max(agents.asked) == bounds.of("n1") == ROOM_MIB


def test_what_could_not_be_given_is_given_later(agents: Agents, bounds: Bounds) -> None:
    agents.refuses = True
    bounds.relieve("n1")
    agents.refuses = False
    bounds.relieve("n1")
    assert bounds.of("n1") == ROOM_MIB
