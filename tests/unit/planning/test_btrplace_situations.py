"""The situations of BtrPlace's public tests, constraint by constraint, as values: what has to come out of each.

They are those of the tests of its constraints' solvers (version 1.12) that can be said by rules here, and are not
in ``test_ruled_situations``. Where an answer differs, the row says why. docs/operator/placement-rules.md says which
constraints have no rule here, and which tests are not rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from unit.situations import PARAMETERS, planned, situation

from rmsplugin.instance import parse
from rmsplugin.model.joint import Capacity, Gather, Joint, Lonely, Part, Split, Spread, Within
from rmsplugin.model.rules import Ban, Fence


def fence(vm: str, *nodes: str) -> dict[str, Any]:
    return {"rule": "fence", "vms": [vm], "nodes": list(nodes)}


#: Two groups of nodes.
PAIRS = (["n1", "n2"], ["n3", "n4"])


def among(*vms: str, discrete: bool, groups: Collection[list[str]] = PAIRS) -> tuple[dict[str, Any], ...]:
    """The VMs are on nodes of one of the groups: on one set of nodes, and on no node that is in none."""
    nodes = [node for group in groups for node in group]
    within = {"rule": "within", "vms": list(vms), "sets": list(groups), "most": 1, "discrete": discrete}
    return within, {"rule": "fence", "vms": list(vms), "nodes": nodes, "discrete": discrete}


def kept_free(node: str, cpu: int) -> dict[str, Any]:
    """What VMs may not have of a node's CPUs: they may have the others."""
    return {"rule": "reserve", "nodes": [node], "cpu": cpu}


def each_to_its_own(*, discrete: bool) -> tuple[dict[str, Any], ...]:
    """Three groups of VMs, each on its own set of nodes."""
    of = (("123", ["n1", "n2"]), ("456", ["n3", "n4"]), ("7", ["n5"]))
    return tuple({"rule": "fence", "vms": list(vms), "nodes": nodes, "discrete": discrete} for vms, nodes in of)


#: Two groups of VMs on two of three sets of nodes. 7 and 8 are in no group.
GROUPED = {"n1": ["1", "3", "8"], "n2": ["2"], "n3": ["4", "6"], "n4": ["5"], "n5": ["7"]}
#: The same, but one of the second group is on a node of the first one.
STRAYED = {**GROUPED, "n2": ["2", "6"], "n3": ["4"]}


def changing(*, discrete: bool) -> tuple[dict[str, Any], ...]:
    """The first group is to take the set of the second one, which goes to one of the two other sets."""
    first = among("1", "2", "3", discrete=discrete, groups=(["n1", "n2"], ["n3", "n4"], ["n5"]))
    second = among("4", "5", "6", discrete=discrete, groups=(["n1", "n2"], ["n5"]))
    return (*first, *second, {"rule": "fence", "vms": ["1", "2", "3"], "nodes": ["n3", "n4"], "discrete": discrete})


ROOT_1 = {"rule": "root", "vms": ["1"]}
BARRED = tuple({"rule": "ban", "vms": [vm], "nodes": ["n2"]} for vm in ("1", "4"))


class Row(NamedTuple):
    """One situation.

    Attributes:
        hosts: the VMs that run, by node.
        rules: in the form of an instance; ``waiting`` VMs want to run, ``targets`` are fixed states.
        actions: the kinds of actions of the whole plan, sorted.
        ends: the node of some VMs in the end, of those that are told.
        cpu: the CPUs of each node, or those of all; ``demands``: those of the VMs that have other than one.
        preemptible: the running VMs that may be suspended.
    """

    hosts: Mapping[str, list[str]]
    rules: tuple[dict[str, Any], ...]
    actions: list[str]
    ends: Mapping[str, str] = {}
    waiting: tuple[str, ...] = ()
    targets: Mapping[str, str] = {}
    cpu: int | Mapping[str, int] = 4
    demands: Mapping[str, int] = {}
    preemptible: tuple[str, ...] = ()


ROWS = {
    # CSpreadTest
    "spread: one waits beside one that runs (issue 48)": Row(
        {"n1": ["2"], "n2": []}, ({"rule": "spread", "vms": ["1", "2"]},), ["run"], {"1": "n2"}, ("1",)
    ),
    "spread: a full node, and four apart on other nodes (testFoo)": Row(
        {
            "n0": ["0", "1", "2", "3", "4"],
            "n1": ["5", "6", "7", "8", "9"],
            "n2": ["10", "11", "12", "13"],
            "n3": ["14", "15", "16"],
        },
        ({"rule": "spread", "vms": ["3", "9", "13", "16"]}, {"rule": "reserve", "nodes": ["n0"], "cpu": 1}),
        ["migrate"],
        {"9": "n1", "13": "n2", "16": "n3"},
        cpu=5,
    ),
    # CGatherTest
    "gather: nobody acts where one is to stay out": Row(
        {"n1": [], "n2": ["2"]},
        ({"rule": "gather", "vms": ["1", "2"], "discrete": True},),
        [],
        {"2": "n2"},
        ("1",),
        {"1": "waiting"},
    ),
    "gather: in the end, one that starts is where the other runs": Row(
        {"n1": [], "n2": ["2"]},
        ({"rule": "gather", "vms": ["1", "2"], "discrete": True},),
        ["run"],
        {"1": "n2", "2": "n2"},
        ("1",),
    ),
    # CLonelyTest
    "lonely: in the end, the stray one of them leaves the strangers": Row(
        {"n1": ["1", "2"], "n2": ["3", "4", "5"], "n3": []},
        ({"rule": "lonely", "vms": ["1", "2", "3"], "discrete": True},),
        ["migrate"],
        {"1": "n1", "2": "n1", "4": "n2", "5": "n2"},
    ),
    "lonely: of VMs that stay out nothing is asked": Row(
        {"n1": [], "n2": [], "n3": []},
        ({"rule": "lonely", "vms": ["1", "2"]},),
        [],
        waiting=("1", "2"),
        targets={"1": "waiting", "2": "waiting"},
    ),
    # CRootTest
    "root: it stays": Row({"n1": ["1", "2"], "n2": []}, ({"rule": "root", "vms": ["1"]},), [], {"1": "n1"}),
    # CRunningCapacityTest
    "capacity: as many as may be are there, and one that is asleep": Row(
        {"n1": ["1", "2"], "n2": [], "n3": ["3", "4"]},
        ({"rule": "capacity", "nodes": ["n1", "n2", "n3"], "vms": ["1", "2", "3", "4", "5"], "most": 4},),
        [],
        waiting=("5",),
    ),
    "capacity: one too many leaves in the end": Row(
        {"n1": ["1", "2"], "n2": ["3", "4", "5"], "n3": []},
        ({"rule": "capacity", "nodes": ["n1", "n2"], "vms": list("12345"), "most": 4, "discrete": True},),
        ["migrate"],
    ),
    "capacity: more than may be, and nowhere else to go; there it is no plan, here they stay": Row(
        {"n1": ["1", "2"], "n2": ["3"], "n3": ["4"]},
        ({"rule": "capacity", "nodes": ["n1", "n2", "n3"], "vms": list("1234"), "most": 2},),
        [],
        {"1": "n1", "2": "n1", "3": "n2", "4": "n3"},
    ),
    "capacity: one ends and another begins": Row(
        {"n1": ["1", "2"]},
        ({"rule": "capacity", "nodes": ["n1"], "vms": ["1", "2", "3"], "most": 2, "discrete": True},),
        ["run", "stop"],
        {"1": "n1", "3": "n1"},
        ("3",),
        {"1": "running", "2": "terminated", "3": "running"},
    ),
    "capacity: each node has its own (issue 112)": Row(
        {"n0": ["0"], "n1": ["1", "2"], "n2": []},
        tuple(
            {"rule": "capacity", "nodes": [node], "vms": ["0", "1", "2"], "most": most, "discrete": True}
            for node, most in (("n0", 2), ("n1", 1), ("n2", 0))
        ),
        ["migrate"],
        {"0": "n0"},
    ),
    # CBanTest, CFenceTest
    "ban: one of five leaves": Row(
        {f"n{number}": [str(number)] for number in range(5)},
        ({"rule": "ban", "vms": ["0"], "nodes": ["n0", "n2", "n4"]},),
        ["migrate"],
        {str(number): f"n{number}" for number in range(1, 5)},
    ),
    "fence: one leaves": Row(
        {"n1": ["1", "4"], "n2": ["2"], "n3": ["3"]}, (fence("2", "n1", "n3"),), ["migrate"], {"1": "n1", "3": "n3"}
    ),
    "fence: one that is to end does not leave first": Row(
        {"n1": ["1", "4"], "n2": ["2"], "n3": ["3"]}, (fence("2", "n1", "n3"),), ["stop"], targets={"2": "terminated"}
    ),
    # COverbookTest
    "overbook: three begin": Row(
        {"n1": [], "n2": []},
        ({"rule": "overbook", "vms": ["1", "2", "3"], "ratio": 2},),
        ["run", "run", "run"],
        waiting=("1", "2", "3"),
        cpu=2,
    ),
    "overbook: as many as two nodes hold by the ratio": Row(
        {"n1": [], "n2": []},
        ({"rule": "overbook", "vms": list("12345678"), "ratio": 2},),
        ["run"] * 8,
        waiting=tuple("12345678"),
        cpu=2,
    ),
    "overbook: seven where six have room; there it is no plan, here the last waits": Row(
        {"n1": [], "n2": []},
        ({"rule": "overbook", "vms": list("1234567"), "ratio": 1},),
        ["run"] * 6,
        waiting=tuple("1234567"),
        cpu=3,
    ),
    "overbook: one makes way, then the other begins": Row(
        {"n1": ["1"]},
        ({"rule": "overbook", "vms": ["1", "2"], "ratio": 1},),
        ["run", "suspend"],
        {"2": "n1"},
        ("2",),
        {"1": "sleeping", "2": "running"},
        cpu=1,
    ),
    # CAmongTest, as one of the sets, and a fence to all of them
    "among: of one group, outside of which is one of them": Row(
        {"n1": ["1"], "n2": ["2"], "n3": ["3"], "n4": []},
        among("1", "2", "3", discrete=True, groups=(["n1", "n2"],)),
        ["migrate", "run", "run"],
        {"1": "n1", "2": "n2"},
        ("4", "5"),
    ),
    "among: one has to leave for the other group, and the others follow": Row(
        {"n1": ["1"], "n2": ["2", "3"], "n3": [], "n4": []},
        (*among("1", "2", "5", discrete=True), fence("2", "n3", "n4")),
        ["migrate", "migrate", "run", "run"],
        {"3": "n2"},
        ("4", "5"),
    ),
    "among: two have to be in two groups; there it is no plan, here they stay": Row(
        {"n1": ["1"], "n2": ["2", "3"], "n3": [], "n4": []},
        (*among("1", "2", "5", discrete=True), fence("2", "n3"), fence("1", "n1")),
        ["run", "run"],
        {"1": "n1", "2": "n2"},
        ("4", "5"),
    ),
    "among: all along, one starts where the others are": Row(
        {"n1": ["1"], "n2": ["2", "3"], "n3": [], "n4": []},
        among("1", "2", "5", discrete=False),
        ["run", "run"],
        {"1": "n1", "2": "n2", "3": "n2"},
        ("4", "5"),
    ),
    "among: all along, none can be the first to leave; there it is no plan, here they are saved": Row(
        {"n1": ["1"], "n2": ["2"], "n3": ["3"], "n4": []},
        (*among("1", "2", "5", discrete=False), fence("2", "n3")),
        ["resume", "resume", "run", "run", "suspend", "suspend"],
        {"2": "n3", "3": "n3"},
        ("4", "5"),
    ),
    # CQuarantineTest, as a ban for those outside and a root for those inside
    "quarantine: nobody goes": Row(
        {"n1": ["1"], "n2": ["2", "3"], "n3": ["4"]},
        (*BARRED, {"rule": "root", "vms": ["2", "3"]}),
        [],
    ),
    "quarantine: one outside is to come; there it is no plan, here it stays": Row(
        {"n1": ["1"], "n2": ["2", "3"], "n3": ["4"]},
        (*({"rule": "ban", "vms": [vm], "nodes": ["n1"]} for vm in "234"), ROOT_1, fence("4", "n1")),
        [],
        {"1": "n1", "4": "n3"},
    ),
    "quarantine: one inside is to leave; there it is no plan, here it stays": Row(
        {"n1": ["1"], "n2": ["2", "3"], "n3": ["4"]},
        (*BARRED, {"rule": "root", "vms": ["2"]}, fence("2", "n1")),
        [],
        {"2": "n2"},
    ),
    # CSplitAmongTest, as a fence for each group; where the sets are not known, as one of the sets for each group
    "split among: in the end, one that strayed goes back to its group": Row(
        STRAYED,
        each_to_its_own(discrete=True),
        ["migrate"],
        {"1": "n1", "2": "n2", "3": "n1", "4": "n3", "5": "n4", "7": "n5", "8": "n1"},
    ),
    "split among: all along, one has strayed before; there it is no plan, here it goes back": Row(
        STRAYED,
        each_to_its_own(discrete=False),
        ["migrate"],
        {"1": "n1", "2": "n2", "3": "n1", "4": "n3", "5": "n4", "7": "n5", "8": "n1"},
    ),
    "split among: in the end, two groups have changed their sets": Row(
        GROUPED, changing(discrete=True), ["migrate"] * 6, {"7": "n5", "8": "n1"}
    ),
    "split among: all along, none can be the first to leave; there it is no plan, here they are saved": Row(
        GROUPED, changing(discrete=False), ["resume"] * 6 + ["suspend"] * 6, {"7": "n5", "8": "n1"}
    ),
    # CResourceCapacityTest, as a reserve of what is beyond the amount, on one of the nodes
    "resource capacity: enough for those that run, and one that is asleep": Row(
        {"n1": ["1", "2"], "n2": [], "n3": ["3", "4"]},
        (kept_free("n2", 5),),
        [],
        waiting=("5",),
        cpu=5,
        demands={"1": 2, "2": 3, "3": 3, "5": 5},
    ),
    "resource capacity: one too many leaves": Row(
        {"n1": ["1", "2"], "n2": ["3", "4", "5"], "n3": []},
        (kept_free("n2", 1),),
        ["migrate"],
        {"1": "n1", "2": "n1"},
        cpu=5,
        demands={"1": 2, "2": 3, "3": 3},
    ),
    "resource capacity: of all that two nodes have; two leave for one that begins": Row(
        {"n1": ["1", "2"], "n2": ["3", "4"], "n3": []},
        (fence("5", "n1"),),
        ["migrate", "migrate", "run"],
        {"1": "n3", "2": "n3", "3": "n2", "4": "n2", "5": "n1"},
        ("5",),
        {"5": "running"},
        5,
        {"1": 2, "2": 3, "3": 3, "5": 5},
    ),
    "resource capacity: one that gets more is too much for the node": Row(
        {"n1": ["1", "2"], "n2": []}, (kept_free("n1", 1),), ["migrate"], cpu=5, demands={"1": 3, "2": 3}
    ),
    "resource capacity: more than may be, and nowhere else to go; there it is no plan, here the last is saved": Row(
        {"n1": ["1", "2"]},
        (kept_free("n1", 2),),
        ["suspend"],
        {"1": "n1"},
        cpu=5,
        demands={"1": 3, "2": 2},
        preemptible=("1", "2"),
    ),
    "resource capacity: one leaves, and another begins there": Row(
        {"n1": ["1", "2"], "n2": []},
        (kept_free("n1", 1), fence("4", "n1")),
        ["migrate", "run"],
        {"1": "n2", "2": "n1", "4": "n1"},
        ("4",),
        {"4": "running"},
        5,
        {"1": 3, "4": 3},
    ),
    # CPreserveTest, as a demand that has grown from three CPUs to five
    "preserve: one that gets more, or the one beside it, leaves": Row(
        {"n1": ["1", "2"], "n2": ["3"]},
        (),
        ["migrate"],
        {"3": "n2"},
        cpu={"n1": 7, "n2": 10},
        demands={"1": 3, "2": 5, "3": 5},
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_each_situation_has_its_plan(row: Row) -> None:
    found = planned(
        situation(
            row.hosts,
            *row.rules,
            waiting=row.waiting,
            cpu=row.cpu,
            targets=row.targets,
            demands=row.demands,
            preemptible=row.preemptible,
        )
    )
    assert sorted(str(action.kind) for action in found.plan.actions()) == row.actions
    assert {vm: found.target[vm].node for vm in row.ends} == row.ends


@pytest.mark.parametrize(("kept_mib", "node"), [(0, "n1"), (3072, "n0")])
def test_the_node_with_most_room_is_the_one_with_most_beside_what_is_kept_free(kept_mib: int, node: str) -> None:
    """CResourceCapacityTest: BtrPlace's search prefers that node. Here a policy does, and by memory."""
    data = {
        "nodes": [{"name": name, "cpu": 4, "memory_mib": mib} for name, mib in (("n0", 5120), ("n1", 7168))],
        "vjobs": [{"name": "j1", "state": "waiting", "vms": [{"name": "1", "cpu": 1, "memory_mib": 3072}]}],
        "rules": [{"rule": "reserve", "nodes": ["n1"], "memory_mib": kept_mib}] if kept_mib else [],
    }
    found = planned(parse(json.dumps(data), "room"), replace(PARAMETERS, policy="load-sharing"))
    assert found.target["1"].node == node


GROUPS = (frozenset("12"), frozenset("345"), frozenset("67"))
ALL = frozenset({"n1", "n2", "n3"})
TWO = tuple(frozenset(pair) for pair in PAIRS)

#: The rule, the VMs of each node, and those that are where the rule does not want them.
MISPLACED: Mapping[str, tuple[Joint, Mapping[str, str], str]] = {
    "spread, apart": (Spread(frozenset("12")), {"n1": "13", "n2": "2"}, ""),
    "spread, two on one node": (Spread(frozenset("123")), {"n1": "13", "n2": "2"}, "13"),
    "gather, one runs": (Gather(frozenset("12")), {"n2": "2"}, ""),
    "gather, both on one node": (Gather(frozenset("12")), {"n2": "12"}, ""),
    "gather, on two nodes": (Gather(frozenset("12")), {"n1": "1", "n2": "2"}, "12"),
    "lonely, alone": (Lonely(frozenset("123")), {"n1": "123", "n2": "45"}, ""),
    "lonely, one with strangers": (Lonely(frozenset("123")), {"n1": "13", "n2": "245"}, "245"),
    "split, apart": (Split(GROUPS), {"n1": "12", "n2": "3", "n3": "45", "n4": "6", "n5": "78"}, ""),
    "split, one with another group": (Split(GROUPS), {"n1": "125", "n2": "3", "n3": "4", "n4": "6", "n5": "78"}, "125"),
    "split, two with other groups": (Split(GROUPS), {"n1": "125", "n2": "3", "n3": "46", "n5": "78"}, "12456"),
    "capacity, enough": (Capacity(ALL, frozenset("12345"), 4), {"n1": "123", "n2": "4"}, ""),
    "capacity, one too many": (Capacity(ALL, frozenset("12345"), 4), {"n1": "123", "n2": "4", "n3": "5"}, "12345"),
    "capacity of one node, enough": (Capacity(frozenset({"n1"}), frozenset("124"), 1), {"n1": "1"}, ""),
    "capacity of one node, too many": (Capacity(frozenset({"n1"}), frozenset("124"), 1), {"n1": "14"}, "14"),
    "among, in one group": (Within(TWO, frozenset("125"), 1), {"n1": "1", "n2": "23"}, ""),
    "among, in two groups": (Within(TWO, frozenset("125"), 1), {"n1": "1", "n2": "23", "n3": "5"}, "5"),
    "split among, each in its own": (Part(frozenset("456"), Fence(TWO[1])), {"n1": "13", "n2": "2", "n3": "46"}, ""),
    "split among, one elsewhere; there it is the whole group": (
        Part(frozenset("456"), Fence(TWO[1])),
        {"n1": "13", "n2": "2", "n3": "4", "n4": "5", "n5": "6"},
        "6",
    ),
    "split among, one with another group; there it is both groups": (
        Part(frozenset("456"), Fence(TWO[1])),
        {"n1": "13", "n2": "26", "n3": "4", "n4": "5", "n5": "7"},
        "6",
    ),
    "ban, elsewhere": (Part(frozenset("1"), Ban(frozenset({"n3", "n4"}))), {"n1": "12", "n2": "3", "n3": "4"}, ""),
    "ban, there": (Part(frozenset("1"), Ban(frozenset({"n1", "n3"}))), {"n1": "12", "n2": "3", "n3": "4"}, "1"),
    "fence, inside": (Part(frozenset("1"), Fence(frozenset({"n1", "n2"}))), {"n1": "12", "n3": "4"}, ""),
    "fence, outside": (Part(frozenset("4"), Fence(frozenset({"n1", "n2"}))), {"n1": "12", "n3": "4"}, "4"),
}


def misplaced(rule: Joint, places: Mapping[str, Collection[str]]) -> str:
    """The VMs that would break the rule if they came to where they are, all others being there."""
    held = [(vm, node) for node, vms in places.items() for vm in vms]
    return "".join(sorted(vm for vm, node in held if rule.broken(held, [(vm, node)]) is not None))


@pytest.mark.parametrize(("rule", "places", "wrong"), MISPLACED.values(), ids=MISPLACED.keys())
def test_each_check_names_those_that_are_misplaced(rule: Joint, places: Mapping[str, str], wrong: str) -> None:
    assert misplaced(rule, places) == wrong
