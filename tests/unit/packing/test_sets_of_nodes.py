"""VMs that have to be on a few of several sets of nodes: which sets are tried, and what is found by trying."""

from __future__ import annotations

import pytest

from rmsplugin.model.elements import VM, Node
from rmsplugin.model.joint import Concerning, Within
from rmsplugin.model.resources import Resources
from rmsplugin.model.standing import Standing
from rmsplugin.packing.item import Item
from rmsplugin.packing.ruled_fit import Obstacle, RuledFit
from rmsplugin.packing.sets_of_nodes import choices_within

SETS = (frozenset({"n1"}), frozenset({"n2", "n3"}), frozenset({"n4", "n5"}))
VMS = tuple(f"v{number}" for number in range(4))
FREE = {"n1": 100.0, "n2": 300.0, "n3": 100.0, "n4": 100.0, "n5": 200.0, "lone": 50.0}


def within(most: int, *vms: str) -> Concerning:
    return Concerning([Within(SETS, frozenset(vms or VMS), most)])


@pytest.mark.parametrize(
    ("most", "homes", "tried"),
    [
        (1, {}, [{"n2", "n3"}, {"n4", "n5"}, {"n1"}, {"lone"}]),
        (2, {}, [{"n2", "n3", "n4", "n5"}, {"n4", "n5", "n1"}, {"n1", "lone"}]),
        (2, {"v0": "n1"}, [{"n1", "n2", "n3"}, {"n1", "n4", "n5"}, {"n1", "lone"}]),
        (1, {"v0": "n1"}, []),
        (9, {}, [{*FREE}]),
    ],
)
def test_the_roomiest_sets_are_tried_first_beside_those_that_are_used(
    most: int, homes: dict[str, str], tried: list[set[str]]
) -> None:
    standing = Standing(homes, homes.items())
    assert [set(nodes) for nodes in choices_within(within(most), VMS, standing, FREE)] == tried


def test_vms_of_no_such_rule_have_no_choice_to_make() -> None:
    assert [*choices_within(within(1, "other"), VMS, Standing({}), FREE)] == []


def place(most: int, *sizes: int) -> dict[str, str] | Obstacle:
    """VMs of so many CPUs, on nodes of two."""
    nodes = [Node(f"n{number}", Resources(2, 9)) for number in range(1, 6)]
    items = [Item(VM(f"v{number}", Resources(size, 1))) for number, size in enumerate(sizes)]
    return RuledFit(nodes, within(most), {}).place(items, {})


def test_where_the_first_node_leads_nowhere_other_sets_are_tried() -> None:
    assert place(1, 2, 2) == {"v0": "n2", "v1": "n3"}
    assert place(2, 2, 2, 2, 2) == {"v0": "n2", "v1": "n3", "v2": "n4", "v3": "n5"}
    assert place(1, 1, 1) == {"v0": "n1", "v1": "n1"}, "first fit is right here"


def test_what_has_no_place_on_so_few_sets_is_told_with_its_numbers() -> None:
    found = place(1, 2, 2, 2)
    assert isinstance(found, Obstacle)
    assert (found.vm, found.rooms) == ("v1", 4)
    assert found.barred == {"within: 4 VMs on at most 1 of 3 sets of nodes": 4}
