"""The bound of a node's observed VMs, and what is kept back of it, are together never more than what they may have."""

from __future__ import annotations

from typing import Any

import pytest

from rmsplugin.adapters.nodes.base import MemoryReport
from rmsplugin.engine.context.bounds import Bounds
from rmsplugin.errors import OperationFailedError

ROOM_MIB, KEPT_MIB = 1024, 64


class Agents:
    """Node agents that keep what they were asked for, or refuse."""

    def __init__(self) -> None:
        self.refuses = False
        self.asked: list[int] = []
        self.used_mib: int | None = 0

    def bound_memory(self, node: str, mib: int) -> MemoryReport:
        self.asked.append(mib)
        if self.refuses:
            raise OperationFailedError("more is used")
        limit_mib = None if self.used_mib is None else mib
        return MemoryReport(self.used_mib is not None, "", limit_mib, self.used_mib, False, None)


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


@pytest.mark.parametrize(("used_mib", "has_all"), [(0, True), (360, True), (361, False), (None, True)])
def test_a_vm_may_take_all_of_its_memory_where_the_bound_leaves_it(
    agents: Agents, bounds: Bounds, used_mib: int | None, has_all: bool
) -> None:
    agents.used_mib = used_mib
    bounds.keep("n1")
    with bounds.whole("n1", "a", 600) as is_left:
        assert is_left == has_all


def test_of_vms_that_would_take_all_of_their_memory_at_once_only_so_many_may_as_there_is_room_for(
    bounds: Bounds,
) -> None:
    with bounds.whole("n1", "a", 600) as first:
        with bounds.whole("n1", "b", 600) as second, bounds.whole("n1", "c", 360) as third:
            assert (first, second, third) == (True, False, True)
        with bounds.whole("n1", "d", 360) as fourth:
            assert fourth, "c has done"
    with bounds.whole("n1", "b", 600) as again:
        assert again, "a has done"
