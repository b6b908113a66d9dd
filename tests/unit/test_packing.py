"""Packing: first fit over a queue, the fewest nodes (VMPP), and whether all fit."""

from __future__ import annotations

import pytest

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.resources import NOTHING, Resources
from rmsplugin.packing.first_fit import FirstFit


def node(name: str, cpus: float = 2, memory: int = 3072, state: NodeState = NodeState.UP) -> Node:
    return Node(name, Resources(cpus, memory), state)


def vm(name: str, cpus: float = 1, memory: int = 1024) -> VM:
    return VM(name, Resources(cpus, memory))


# -- first fit ----------------------------------------------------------------------------------------------------


def test_first_fit_places_the_largest_first_and_on_the_first_node_with_room() -> None:
    room = FirstFit.on([node("n1"), node("n2")])
    assert room.place([vm("a", 0, 512), vm("b", 1, 2048), vm("c", 2, 2048)]) == {"c": "n1", "b": "n2", "a": "n1"}
    assert room.free("n1") == Resources(0, 512)
    assert room.free("n2") == Resources(1, 1024)


def test_first_fit_places_all_of_a_vjob_or_nothing() -> None:
    room = FirstFit.on([node("n1")])
    assert room.place([vm("a"), vm("b"), vm("c")]) is None
    assert room.free("n1") == Resources(2, 3072)
    assert room.place([vm("a"), vm("b")]) == {"a": "n1", "b": "n1"}


def test_what_a_vjob_learnt_that_was_not_placed_is_forgotten() -> None:
    room = FirstFit.on([node("n1"), node("n2", 1)])
    assert room.place([vm("a", 2, 2048), vm("b", 1, 512), vm("c", 1, 512)]) is None
    assert room.place([vm("d", 1, 512), vm("e", 1, 512)]) == {"d": "n1", "e": "n1"}


def test_first_fit_uses_nodes_that_are_up_only() -> None:
    room = FirstFit.on([node("n1", state=NodeState.DRAINING), node("n2", state=NodeState.DOWN), node("n3")])
    assert room.place([vm("a")]) == {"a": "n3"}
    assert room.free("n1") == NOTHING


def test_first_fit_asks_what_a_vjob_allows_for_that_vjob_only() -> None:
    room = FirstFit.on([node("n1"), node("n2")])
    assert room.place([vm("a")], lambda name: name == "n2") == {"a": "n2"}
    assert room.place([vm("b")], lambda name: False) is None
    assert room.place([vm("c")]) == {"c": "n1"}


def test_a_vm_that_stays_may_overload_its_node() -> None:
    room = FirstFit.on([node("n1"), node("n2")])
    room.take(vm("big", 3, 512), "n1")
    assert room.free("n1") == Resources(-1, 2560)
    assert room.total_free == Resources(2, 5632)
    assert room.largest_free == Resources(2, 3072)
    assert room.place([vm("idle", 0, 512)]) == {"idle": "n2"}


def test_a_vm_that_stays_on_a_node_which_is_not_up_takes_nothing_from_the_others() -> None:
    room = FirstFit.on([node("n1", state=NodeState.DRAINING), node("n2")])
    room.take(vm("a"), "n1")
    assert room.total_free == Resources(2, 3072)
    with pytest.raises(KeyError):
        room.take(vm("a"), "n3")


def test_without_a_node_that_is_up_there_is_room_for_nothing() -> None:
    room = FirstFit.on([node("n1", state=NodeState.DOWN)])
    assert room.place([vm("a")]) is None
    assert room.place([]) == {}
    assert room.total_free == room.largest_free == NOTHING
