"""Whatever contradicts itself is refused, each contradiction with its place and a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.model.configuration import Configuration
from rmsplugin.model.elements import (
    SHARED,
    TERMINATED,
    VM,
    WAITING,
    Location,
    Node,
    NodeState,
    VJob,
    VMState,
    paused_on,
    running_on,
    sleeping_on,
)
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import allowing
from rmsplugin.model.validation import (
    LEGAL_TARGETS,
    MOST_CPUS,
    MOST_MEMORY_MIB,
    InvalidConfigurationError,
    json_path,
    problems,
)
from rmsplugin.model.vjob import VJobState

N1 = Node("n1", Resources(2, 4096))
N2 = Node("n2", Resources(2, 4096), NodeState.DRAINING)
N3 = Node("n3", Resources(2, 4096), NodeState.DOWN)
A, B, C = (VM(name, Resources(0.5, 512)) for name in ("a", "b", "c"))
RUNS = VJob("runs", (A,))
SLEEPS = VJob("sleeps", (B,))
WAITS = VJob("waits", (C,))
SOUND: dict[str, Any] = {
    "nodes": (N1, N2, N3),
    "vjobs": (RUNS, SLEEPS, WAITS),
    "locations": {"a": running_on("n1"), "b": sleeping_on("n2"), "c": WAITING},
}


def at(**locations: Location) -> Mapping[str, Any]:
    return {"locations": {**SOUND["locations"], **locations}}


def first_vjob(**changes: Any) -> Mapping[str, Any]:
    return {"vjobs": (replace(RUNS, **changes), SLEEPS, WAITS)}


def first_node(cpus: Any = 2, memory_mib: Any = 4096) -> Mapping[str, Any]:
    return {"nodes": (Node("n1", Resources(cpus, memory_mib)), N2, N3)}


def first_vm(cpus: Any = 0.5, memory_mib: Any = 512, name: str = "a") -> Mapping[str, Any]:
    return first_vjob(vms=(VM(name, Resources(cpus, memory_mib)),))


HOST, IMAGE = "$.vjobs[0].vms[0].host", "$.vjobs[1].vms[0].image"
CPUS = f"must be a finite number of CPUs from 0 to {MOST_CPUS}, not "
MEMORY = f"must be a whole number of MiB from 0 to {MOST_MEMORY_MIB}, not "

REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "unknown host": (at(a=running_on("n9")), f"{HOST}: there is no node 'n9'"),
    "host on a down node": (at(a=running_on("n3")), f"{HOST}: node 'n3' is down: nothing on it exists any more"),
    "running on shared storage": (at(a=running_on(SHARED)), f"{HOST}: a VM runs on a node, not on 'shared'"),
    "running without host": (at(a=Location(VMState.RUNNING)), f"{HOST}: a running VM needs its host"),
    "unknown image node": (at(b=sleeping_on("n9")), f"{IMAGE}: there is no node 'n9'"),
    "image on a down node": (at(b=sleeping_on("n3")), f"{IMAGE}: node 'n3' is down: nothing on it exists any more"),
    "sleeping without image": (at(b=Location(VMState.SLEEPING)), f"{IMAGE}: a sleeping VM needs its image"),
    "waiting with host": (
        at(c=Location(VMState.WAITING, "n1")),
        "$.vjobs[2].vms[0].host: a VM that is waiting is on no node, and not on 'n1'",
    ),
    "terminated with host": (
        at(c=Location(VMState.TERMINATED, "n1")),
        "$.vjobs[2].vms[0].host: a VM that is terminated is on no node, and not on 'n1'",
    ),
    "nowhere": (
        {"locations": {name: where for name, where in SOUND["locations"].items() if name != "b"}},
        "$.vjobs[1].vms[0]: nothing says where this VM is",
    ),
    "location of a stranger": (at(z=WAITING), "$.locations.z: no vjob has a VM of this name"),
    "node without name": (
        {"nodes": (N1, N2, N3, Node("", Resources(1, 1)))},
        "$.nodes[3].name: the name of a node must not be empty",
    ),
    "node named shared": (
        {"nodes": (N1, N2, N3, Node(SHARED, Resources(1, 1)))},
        "$.nodes[3].name: 'shared' is no name for a node: it means storage that all mount",
    ),
    "duplicate node": (
        {"nodes": (N1, N2, N3, N1)},
        "$.nodes[3].name: a node named 'n1' exists already; names must be unique",
    ),
    "duplicate vjob": (
        {"vjobs": (RUNS, replace(SLEEPS, name="runs"), WAITS)},
        "$.vjobs[1].name: a vjob named 'runs' exists already; names must be unique",
    ),
    "duplicate VM in two vjobs": (
        {"vjobs": (RUNS, replace(SLEEPS, vms=(B, A)), WAITS)},
        "$.vjobs[1].vms[1].name: a VM named 'a' exists already; names must be unique",
    ),
    "duplicate VM in one vjob": (
        first_vjob(vms=(A, A)),
        "$.vjobs[0].vms[1].name: a VM named 'a' exists already; names must be unique",
    ),
    "vjob without name": (first_vjob(name=""), "$.vjobs[0].name: the name of a vjob must not be empty"),
    "VM without name": (
        {**first_vm(name=""), "locations": {"": running_on("n1"), "b": sleeping_on("n2"), "c": WAITING}},
        "$.vjobs[0].vms[0].name: the name of a VM must not be empty",
    ),
    "empty vjob": (
        {"vjobs": (RUNS, SLEEPS, WAITS, VJob("empty", ()))},
        "$.vjobs[3].vms: vjob 'empty' has no VM; it needs at least one",
    ),
    "negative CPUs of a node": (first_node(cpus=-1), f"$.nodes[0].cpu: {CPUS}-1"),
    "NaN CPUs of a node": (first_node(cpus=math.nan), f"$.nodes[0].cpu: {CPUS}nan"),
    "infinite CPUs of a node": (first_node(cpus=math.inf), f"$.nodes[0].cpu: {CPUS}inf"),
    "negative memory of a node": (first_node(memory_mib=-1), f"$.nodes[0].memory_mib: {MEMORY}-1"),
    "more memory than exists": (first_node(memory_mib=2**31 + 1), f"$.nodes[0].memory_mib: {MEMORY}2147483649"),
    "negative CPU demand": (first_vm(cpus=-0.5), f"$.vjobs[0].vms[0].cpu: {CPUS}-0.5"),
    "NaN CPU demand": (first_vm(cpus=math.nan), f"$.vjobs[0].vms[0].cpu: {CPUS}nan"),
    "infinite CPU demand": (first_vm(cpus=-math.inf), f"$.vjobs[0].vms[0].cpu: {CPUS}-inf"),
    "more CPUs than exist": (first_vm(cpus=10**7), f"$.vjobs[0].vms[0].cpu: {CPUS}10000000"),
    "a third of a CPU": (
        first_vm(cpus=0.333),
        "$.vjobs[0].vms[0].cpu: CPUs are counted in hundredths: two decimals at most, not 0.333",
    ),
    "negative memory demand": (first_vm(memory_mib=-512), f"$.vjobs[0].vms[0].memory_mib: {MEMORY}-512"),
    "NaN memory demand": (first_vm(memory_mib=math.nan), f"$.vjobs[0].vms[0].memory_mib: {MEMORY}nan"),
    "half a MiB": (first_vm(memory_mib=0.5), f"$.vjobs[0].vms[0].memory_mib: {MEMORY}0.5"),
    "only unknown nodes allowed": (
        first_vjob(rules=allowing(frozenset({"n8", "n9"}))),
        "$.vjobs[0].nodes: there is no node 'n8'\n$.vjobs[0].nodes: there is no node 'n9'",
    ),
    "unknown node excluded": (
        first_vjob(rules=allowing(exclude=frozenset({"n8", "n2"}))),
        "$.vjobs[0].exclude: there is no node 'n8'",
    ),
    "no node allowed": (
        first_vjob(rules=allowing(frozenset())),
        "$.vjobs[0].nodes: an empty list allows no node at all; leave it out to allow all",
    ),
    "no time": (first_vjob(time_limit_s=0.0), "$.vjobs[0].time_limit_s: must be a number of seconds above 0, not 0.0"),
    "endless time": (
        first_vjob(time_limit_s=math.inf),
        "$.vjobs[0].time_limit_s: must be a number of seconds above 0, not inf",
    ),
    "negative time used": (
        first_vjob(ran_s=-1.0),
        "$.vjobs[0].ran_s: must be a number of seconds, 0 or more, not -1.0",
    ),
    "NaN time in its state": (
        first_vjob(state_s=math.nan),
        "$.vjobs[0].state_s: must be a number of seconds, 0 or more, not nan",
    ),
    "back to the queue": (
        first_vjob(target=VJobState.WAITING),
        "$.vjobs[0].target: a vjob that is running cannot become waiting; "
        "it can become paused, running, sleeping, terminated",
    ),
    "suspend what may not be preempted": (
        first_vjob(target=VJobState.SLEEPING, preemptible=False),
        "$.vjobs[0].target: a vjob that is not preemptible stays running once it runs",
    ),
    "a transitional target": (
        first_vjob(target=VJobState.SUSPENDING),
        "$.vjobs[0].target: a vjob that is running cannot become suspending; "
        "it can become paused, running, sleeping, terminated",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_contradiction_is_refused_with_its_place(name: str) -> None:
    changes, sentence = REFUSED[name]
    with pytest.raises(InvalidConfigurationError) as caught:
        Configuration(**{**SOUND, **changes})
    assert str(caught.value) == sentence


def test_all_contradictions_are_named_at_once() -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        Configuration(**{**SOUND, **first_vm(cpus=-1, memory_mib=-1), **at(a=running_on("n9"), z=WAITING)})
    assert [json_path(problem.place) for problem in caught.value.problems] == [
        "$.vjobs[0].vms[0].cpu",
        "$.vjobs[0].vms[0].memory_mib",
        "$.vjobs[0].vms[0].host",
        "$.locations.z",
    ]


def test_a_node_that_is_allowed_need_not_be_there_but_one_that_is_excluded() -> None:
    names = frozenset({"n1", "n9"})
    vjobs = (replace(SOUND["vjobs"][0], rules=allowing(names)), *SOUND["vjobs"][1:])
    assert Configuration(**{**SOUND, "vjobs": vjobs}).vjobs[0].allows("n1")
    vjobs = (vjobs[0], replace(SOUND["vjobs"][1], rules=allowing(exclude=names)), *SOUND["vjobs"][2:])
    with pytest.raises(InvalidConfigurationError, match=r"^\$\.vjobs\[1\]\.exclude: there is no node 'n9'$"):
        Configuration(**{**SOUND, "vjobs": vjobs})


@pytest.mark.parametrize("key", ["nodes", "exclude"])
def test_each_vjob_with_an_unknown_node_is_named_though_others_name_the_same_nodes(key: str) -> None:
    wrong, right = frozenset({"n9"}), frozenset({"n1"})
    rules = [allowing(**{key: names}) for names in (right, wrong, wrong)]
    vjobs = tuple(replace(vjob, rules=each) for vjob, each in zip(SOUND["vjobs"], rules, strict=True))
    with pytest.raises(InvalidConfigurationError) as caught:
        Configuration(**{**SOUND, "vjobs": vjobs})
    assert [json_path(problem.place) for problem in caught.value.problems] == [f"$.vjobs[1].{key}", f"$.vjobs[2].{key}"]


SOUND_CHANGES: dict[str, Mapping[str, Any]] = {
    "as it is": {},
    "no node and no vjob": {"nodes": (), "vjobs": (), "locations": {}},
    "running on a draining node": at(a=running_on("n2")),
    "image on shared storage": at(b=sleeping_on(SHARED)),
    "VMs that demand nothing": first_vm(cpus=0, memory_mib=0),
    "a node that offers nothing": first_node(cpus=0, memory_mib=0),
    "an overloaded node": first_vm(cpus=64, memory_mib=10**6),
    "running where it may not be any more": first_vjob(rules=allowing(exclude=frozenset({"n1"}))),
    "a sum of hundredths": first_vm(cpus=0.1 + 0.2),
    "two decimals": first_vm(cpus=0.29),
    "the most there can be": first_node(cpus=MOST_CPUS, memory_mib=MOST_MEMORY_MIB),
    "restricted to a down node": first_vjob(rules=allowing(frozenset({"n3"}))),
}


@pytest.mark.parametrize("name", SOUND_CHANGES)
def test_what_does_not_contradict_itself_is_accepted(name: str) -> None:
    assert Configuration(**{**SOUND, **SOUND_CHANGES[name]})


PLACES = {
    VMState.WAITING: WAITING,
    VMState.RUNNING: running_on("n1"),
    VMState.PAUSED: paused_on("n1"),
    VMState.SLEEPING: sleeping_on("n2"),
    VMState.TERMINATED: TERMINATED,
}


@pytest.mark.parametrize("target", VJobState)
@pytest.mark.parametrize("state", VMState)
def test_a_target_is_legal_only_where_the_table_says_so(state: VMState, target: VJobState) -> None:
    changes = {**first_vjob(target=target), **at(a=PLACES[state])}
    if target in LEGAL_TARGETS[VJobState(state)]:
        Configuration(**{**SOUND, **changes})
    else:
        with pytest.raises(InvalidConfigurationError, match=rf"^\$\.vjobs\[0\]\.target: a vjob that is {state} cannot"):
            Configuration(**{**SOUND, **changes})


def test_no_legal_target_throws_a_saved_state_away_or_wakes_the_dead() -> None:
    for state in (VJobState.RUNNING, VJobState.PAUSED, VJobState.SLEEPING):
        assert VJobState.WAITING not in LEGAL_TARGETS[state]
    assert VJobState.PAUSED not in LEGAL_TARGETS[VJobState.SLEEPING]  # its memory is on disk
    assert LEGAL_TARGETS[VJobState.TERMINATED] == {VJobState.TERMINATED}


@pytest.mark.parametrize("key", ["time_limit_s", "ran_s", "state_s", "waited_s", "weight"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_number_out_of_bounds_is_refused_of_a_vjob_like_one_that_is_sound(key: str, value: float) -> None:
    rules = allowing(frozenset({"n1"}))
    first, second = (VJob(name, (VM(f"{name}0", Resources(1, 512)),), rules=rules) for name in "ab")
    found = problems(
        (Node("n1", Resources(4, 4096)),),
        (first, replace(second, **{key: value})),
        {"a0": WAITING, "b0": WAITING},
    )
    assert [problem.place for problem in found] == [("vjobs", 1, key)]


@pytest.mark.parametrize(
    ("second", "place", "words"),
    [
        (VJob("more", (VM("a", A.demand),)), running_on("n1"), "a VM named 'a' exists already"),
        (VJob("more", (VM("d", A.demand),)), running_on("n9"), "there is no node 'n9'"),
        (VJob("more", (VM("d", A.demand),)), running_on("n3"), "node 'n3' is down"),
        (VJob("more", (VM("", A.demand),)), running_on("n1"), "the name of a VM must not be empty"),
    ],
)
def test_one_vm_is_looked_at_although_another_has_its_demand(second: VJob, place: Location, words: str) -> None:
    locations = {"a": running_on("n1"), second.vms[0].name: place}
    found = [str(each) for each in problems((N1, N3), (RUNS, second), locations)]
    assert len(found) == 1
    assert words in found[0]
