"""Placement rules in an instance: which vjobs they are given to, and files with faults in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmsplugin.errors import InstanceError
from rmsplugin.instance import parse
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.joint import Capacity, Gather, Lonely, Online, Part, Root, Split, Spread, Within
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Ban, Fence

NODES = [{"name": f"n{i}", "cpu": 4, "memory_mib": 4096} for i in (1, 2, 3)]
VJOBS = [
    {
        "name": name,
        "state": "running",
        "vms": [{"name": f"{name}-{i}", "cpu": 1, "memory_mib": 512, "host": "n1"} for i in (0, 1)],
    }
    for name in ("a", "b")
]


def read(*rules: Any) -> Configuration:
    return parse(json.dumps({"nodes": NODES, "vjobs": VJOBS, "rules": list(rules)}), "f.json")


def faults(*rules: Any) -> list[str]:
    with pytest.raises(InstanceError) as caught:
        read(*rules)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        ({"rule": "spread", "vms": ["a-0", "b-0"]}, Spread(frozenset({"a-0", "b-0"}))),
        ({"rule": "gather", "vms": ["a-0", "b-0"], "discrete": True}, Gather(frozenset({"a-0", "b-0"}), True)),
        ({"rule": "lonely", "vms": ["a-0", "b-0"]}, Lonely(frozenset({"a-0", "b-0"}))),
        ({"rule": "split", "groups": [["a-0"], ["b-0"]]}, Split((frozenset({"a-0"}), frozenset({"b-0"})))),
        ({"rule": "root", "vms": ["a-0", "b-0"]}, Root(frozenset({"a-0", "b-0"}))),
        (
            {"rule": "capacity", "nodes": ["n1"], "vms": ["a-0", "b-0"], "most": 1},
            Capacity(frozenset({"n1"}), frozenset({"a-0", "b-0"}), 1),
        ),
        ({"rule": "online", "nodes": ["n1", "n2"], "most": 1}, Online(frozenset({"n1", "n2"}), 1)),
        (
            {"rule": "within", "vms": ["a-0", "b-0"], "sets": [["n1", "n2"], ["n3"]], "most": 1},
            Within((frozenset({"n1", "n2"}), frozenset({"n3"})), frozenset({"a-0", "b-0"}), 1),
        ),
    ],
)
def test_a_rule_over_vms_of_several_vjobs_is_a_rule_of_each_of_them(data: Any, rule: Any) -> None:
    found = read(data)
    assert [vjob.rules for vjob in found.vjobs] == [(rule,), (rule,)]
    assert found.vjobs[0].rules is found.vjobs[1].rules
    assert found.joint == (rule,)


def test_a_vjob_without_vms_of_a_rule_is_not_given_it() -> None:
    found = read({"rule": "spread", "vms": ["a-0", "a-1"]})
    assert [len(vjob.rules) for vjob in found.vjobs] == [1, 0]


def test_a_fence_for_all_vms_of_a_vjob_is_its_own_rule_and_one_for_some_is_a_part() -> None:
    found = read(
        {"rule": "fence", "vms": ["a-0", "a-1", "b-0"], "nodes": ["n1"]},
        {"rule": "ban", "vms": ["a-1"], "nodes": ["n2"], "discrete": True},
    )
    fence = Fence(frozenset({"n1"}))
    assert found.vjobs[0].rules == (fence, Part(frozenset({"a-1"}), Ban(frozenset({"n2"}), True)))
    assert found.vjobs[1].rules == (Part(frozenset({"b-0"}), fence),)
    assert found.vjobs[0].rules[1].discrete and not found.vjobs[1].rules[0].discrete


def test_what_is_reserved_is_no_vms() -> None:
    found = read({"rule": "reserve", "nodes": ["n1", "n3"], "cpu": 0.5, "memory_mib": 1024})
    assert [node.capacity for node in found.nodes] == [
        Resources(3.5, 3072),
        Resources(4, 4096),
        Resources(3.5, 3072),
    ]


def test_overbooked_vms_are_booked_with_fewer_cpus_and_all_of_their_memory() -> None:
    found = read({"rule": "overbook", "vms": ["a-0", "b-1"], "ratio": 3})
    booked = {name: vm.demand for name, vm in found.vm_by_name.items()}
    assert booked == {
        "a-0": Resources(0.33, 512),
        "a-1": Resources(1, 512),
        "b-0": Resources(1, 512),
        "b-1": Resources(0.33, 512),
    }
    assert [vjob.rules for vjob in found.vjobs] == [(), ()]


def test_an_overbooked_vm_may_not_be_on_a_node_with_fewer_cpus_than_itself() -> None:
    rules = [
        {"rule": "overbook", "vms": ["a-0", "a-1"], "ratio": 2},
        {"rule": "reserve", "nodes": ["n2"], "cpu": 3.5},
    ]
    assert read(*rules).vjobs[0].rules == (Ban(frozenset({"n2"})),)


def test_no_vm_is_overbooked_twice() -> None:
    rule = {"rule": "overbook", "vms": ["a-0"], "ratio": 2}
    assert faults(rule, rule) == ["f.json: $.rules[1].vms: VM 'a-0' is overbooked by another rule, too"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ({"rule": "spred", "vms": ["a-0"]}, "$.rules[0].rule: must be spread, gather, fence, ban, lonely"),
        ({"rule": "spread", "vms": ["a-0", "x"]}, "$.rules[0].vms[1]: there is no VM 'x'"),
        ({"rule": "spread", "vms": ["a-0", "a-0"]}, "$.rules[0].vms[1]: VM 'a-0' is there more than once"),
        ({"rule": "spread", "vms": []}, "$.rules[0].vms: must name at least one VM"),
        ({"rule": "spread"}, "$.rules[0].vms: is required by spread"),
        ({"rule": "spread", "vms": ["a-0"], "most": 1}, "$.rules[0].most: spread has no such key; it has vms"),
        ({"rule": "spread", "vms": ["a-0"], "mots": 1}, "$.rules[0].mots: unknown key; did you mean most?"),
        ({"rule": "spread", "vms": "a-0"}, "$.rules[0].vms: must be a list of names of VMs"),
        ({"rule": "spread", "vms": [1]}, "$.rules[0].vms[0]: must be the name of a VM, not 1"),
        ({"rule": "ban", "vms": ["a-0"], "nodes": ["n9"]}, "$.rules[0].nodes[0]: there is no node 'n9'"),
        ({"rule": "split", "groups": [["a-0"]]}, "$.rules[0].groups: a split needs two groups at least"),
        (
            {"rule": "split", "groups": [["a-0"], ["b-0", "a-0"]]},
            "$.rules[0].groups[1][1]: VM 'a-0' is in another group, too",
        ),
        ({"rule": "split", "groups": [["a-0"], ["x"]]}, "$.rules[0].groups[1][0]: there is no VM 'x'"),
        ({"rule": "root", "vms": ["a-0"], "discrete": True}, "$.rules[0].discrete: root holds at every step"),
        ({"rule": "reserve", "nodes": ["n1"]}, "$.rules[0]: a reserve needs cpu, memory_mib or both"),
        ({"rule": "reserve", "nodes": ["n1"], "cpu": 5}, '$.rules[0]: 5 CPUs and 0 MiB cannot be kept on "n1"'),
        ({"rule": "reserve", "nodes": ["n1"], "cpu": 0.125}, "$.rules[0].cpu: must have two decimals at most"),
        ({"rule": "online", "nodes": ["n1"], "most": -1}, "$.rules[0].most: must be a whole number, 0 or more"),
        ({"rule": "within", "vms": ["a-0"], "most": 1}, "$.rules[0].sets: is required by within"),
        (
            {"rule": "within", "vms": ["a-0"], "most": 1, "sets": []},
            "$.rules[0].sets: must name at least one set of nodes",
        ),
        (
            {"rule": "within", "vms": ["a-0"], "most": 1, "sets": [["n1"], ["n2", "n1"]]},
            "$.rules[0].sets[1][1]: node 'n1' is in another set, too",
        ),
        (
            {"rule": "within", "vms": ["a-0"], "most": 1, "sets": [["n9"]]},
            "$.rules[0].sets[0][0]: there is no node 'n9'",
        ),
        ({"rule": "overbook", "vms": ["a-0"]}, "$.rules[0].ratio: is required by overbook"),
        (
            {"rule": "overbook", "vms": ["a-0"], "ratio": 0.5},
            "$.rules[0].ratio: must be a number from 1 to 16, not 0.5",
        ),
        ({"rule": "overbook", "vms": ["a-0"], "ratio": 2, "discrete": True}, "$.rules[0].discrete: overbook holds at"),
        (3, "$.rules[0]: must be an object that describes a rule, not 3"),
    ],
)
def test_a_faulty_rule_is_one_line_with_its_place(data: Any, fault: str) -> None:
    found = faults(data)
    assert len(found) == 1 and found[0].startswith(f"f.json: {fault}"), found


def test_rules_that_are_no_list_are_refused() -> None:
    with pytest.raises(InstanceError, match=r"\$\.rules: must be a list of rules, not \"spread\""):
        parse(json.dumps({"nodes": NODES, "vjobs": VJOBS, "rules": "spread"}), "f.json")
