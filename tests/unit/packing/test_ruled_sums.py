"""Ruled sums: each kind of rule refuses what it leaves too little for, and nothing that just fits."""

from __future__ import annotations

import pytest

from rmsplugin.model.elements import VM, Node, NodeState
from rmsplugin.model.joint import Capacity, Joint, Lonely, Online, Split, Spread, Within
from rmsplugin.model.resources import Resources
from rmsplugin.packing.ruled_sums import RuledSums

NAMES = frozenset({"n1", "n2", "n3"})


def refuses(rule: Joint, vms: int, *, nodes: int = 3, homes: dict[str, str] | None = None, **node: NodeState) -> bool:
    """Whether VMs ``v0``, ``v1``, ... of a CPU and 1 MiB are refused, on nodes of two CPUs and 4 MiB."""
    cluster = [Node(f"n{i}", Resources(2, 4), node.get(f"n{i}", NodeState.UP)) for i in range(1, nodes + 1)]
    sums = RuledSums(cluster, [rule], homes or {})
    return sums.refuse([VM(f"v{i}", Resources(1, 1))] for i in range(vms))


def named(*numbers: int) -> frozenset[str]:
    return frozenset(f"v{i}" for i in numbers)


@pytest.mark.parametrize(
    ("rule", "most"),
    [
        (Spread(named(0, 1, 2, 3)), 3),
        (Capacity(NAMES, named(*range(9)), 2), 2),
        (Online(NAMES, 2), 4),
        (Online(frozenset({"n1", "n2"}), 1), 4),
        (Within((frozenset({"n1", "n2"}), frozenset({"n3"})), named(*range(9)), 1), 4),
        (Within((frozenset({"n1", "n2"}),), named(*range(9)), 1), 4),
        (Within((), named(*range(9)), 2), 4),
        (Lonely(named(0)), 5),
        (Lonely(named(0), friends=named(1, 2, 3)), 8),
        (Split((named(0), named(1, 2, 3, 4, 5))), 5),
        (Split((named(0), named(1), named(2), named(3))), 3),
    ],
    ids=str,
)
def test_a_rule_refuses_from_the_first_vm_on_that_has_no_place(rule: Joint, most: int) -> None:
    assert [refuses(rule, vms) for vms in (most, most + 1)] == [False, True]


def test_memory_is_summed_up_as_cpus_are() -> None:
    sums = RuledSums([Node(name, Resources(9, 4)) for name in sorted(NAMES)], [Online(NAMES, 1)], {})
    assert not sums.refuse([[VM("a", Resources(0, 4))]])
    assert sums.refuse([[VM("a", Resources(0, 4)), VM("b", Resources(0, 1))]])


def test_a_capacity_on_some_nodes_refuses_nothing_for_others_have_room() -> None:
    assert not refuses(Capacity(frozenset({"n1", "n2"}), named(*range(9)), 2), 5)


def test_those_who_break_a_rule_where_they_are_prove_nothing_about_others() -> None:
    rule = Capacity(NAMES, named(0, 1, 2), 2)
    homes = {"v0": "n1", "v1": "n2", "v2": "n3"}
    assert not refuses(rule, 4, homes=homes)
    assert refuses(rule, 4, homes={"v0": "n1", "v1": "n2"})


@pytest.mark.parametrize(
    ("rule", "vms", "homes"),
    [
        (Spread(named(0, 1, 2, 3)), 4, {"v0": "n1", "v1": "n1"}),
        (Online(frozenset({"n1", "n2"}), 1), 5, {"v0": "n1", "v1": "n2"}),
        (Lonely(named(0)), 6, {"v0": "n1", "v1": "n1"}),
        (Split((named(0), named(1, 2, 3, 4, 5))), 6, {"v0": "n1", "v1": "n1"}),
    ],
    ids=lambda each: str(each) if isinstance(each, Joint) else "",
)
def test_places_that_break_a_rule_prove_nothing_though_they_need_no_more_than_it_leaves(
    rule: Joint, vms: int, homes: dict[str, str]
) -> None:
    assert not refuses(rule, len(homes), homes=homes)
    assert not refuses(rule, vms, homes=homes)
    assert refuses(rule, vms)


@pytest.mark.parametrize("homes", [{"v0": "n4"}, {"v0": "n1", "v1": "n1", "v2": "n1"}], ids=["draining", "overloaded"])
def test_vms_on_nodes_that_take_none_or_are_overloaded_prove_nothing(homes: dict[str, str]) -> None:
    assert not refuses(Online(NAMES, 1), 4, nodes=4, homes=homes, n4=NodeState.DRAINING)
    assert refuses(Online(NAMES, 1), 4, homes={})
