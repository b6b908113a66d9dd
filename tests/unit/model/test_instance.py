"""Instances: what a good file becomes, and the whole message for each way in which a file can be bad."""

from __future__ import annotations

import copy
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from others import python_as

from rmsplugin.errors import InstanceError
from rmsplugin.instance import parse, read
from rmsplugin.model.elements import WAITING, NodeState, VMState, running_on, sleeping_on
from rmsplugin.model.resources import Resources
from rmsplugin.model.rules import Ban, Fence
from rmsplugin.model.vjob import VJobState

#: All that the format has: three states of nodes, four of vjobs, every key.
GOOD: dict[str, Any] = {
    "nodes": [
        {"name": "n1", "cpu": 2, "memory_mib": 4096, "state": "up"},
        {"name": "n2", "cpu": 2.5, "memory_mib": 4096},
        {"name": "n3", "cpu": 1, "memory_mib": 1024, "state": "draining"},
        {"name": "n4", "cpu": 1, "memory_mib": 1024, "state": "down"},
    ],
    "vjobs": [
        {
            "name": "a",
            "state": "running",
            "preemptible": False,
            "vms": [
                {"name": "a-0", "cpu": 1, "memory_mib": 512, "host": "n1"},
                {"name": "a-1", "cpu": 0.05, "memory_mib": 512, "host": "n3"},
            ],
        },
        {
            "name": "b",
            "state": "sleeping",
            "vms": [
                {"name": "b-0", "cpu": 0.29, "memory_mib": 1024, "image": "n1"},
                {"name": "b-1", "cpu": 1, "memory_mib": 1024, "image": "shared"},
            ],
        },
        {
            "name": "c",
            "state": "waiting",
            "target": "running",
            "nodes": ["n1", "n2"],
            "exclude": ["n2", "n4"],
            "priority": 7,
            "time_limit_s": 3600,
            "ran_s": 1.5,
            "state_s": 60,
            "waited_s": 90.5,
            "weight": 0.25,
            "vms": [{"name": "c-0", "cpu": 1, "memory_mib": 2048}],
        },
        {"name": "d", "state": "terminated", "vms": [{"name": "d-0", "cpu": 1, "memory_mib": 1, "host": None}]},
    ],
}


def test_everything_a_file_says_is_in_the_configuration() -> None:
    configuration = parse(json.dumps(GOOD), "f")
    assert [node.name for node in configuration.nodes] == ["n1", "n2", "n3", "n4"]
    assert configuration.nodes[1].capacity == Resources(2.5, 4096)
    assert [node.state for node in configuration.nodes] == [
        NodeState.UP,
        NodeState.UP,
        NodeState.DRAINING,
        NodeState.DOWN,
    ]
    a, b, c, d = configuration.vjobs
    assert [vjob.name for vjob in configuration.vjobs] == ["a", "b", "c", "d"]
    assert (a.preemptible, b.preemptible, a.lost) == (False, True, False)
    assert [vm.demand for vm in b.vms] == [Resources(0.29, 1024), Resources(1, 1024)]
    assert (c.target, c.rules) == (VJobState.RUNNING, (Fence(frozenset({"n1", "n2"})), Ban(frozenset({"n2", "n4"}))))
    assert (c.priority, c.time_limit_s, c.ran_s, c.state_s) == (7, 3600, 1.5, 60)
    assert (c.waited_s, c.weight, a.waited_s, a.weight) == (90.5, 0.25, 0, 1)
    assert (a.target, a.rules, a.priority, a.time_limit_s, a.state_s) == (None, (), 0, None, None)
    assert configuration.state(d) is VJobState.TERMINATED
    assert dict(configuration.locations) | {"d-0": None} == {
        "a-0": running_on("n1"),
        "a-1": running_on("n3"),
        "b-0": sleeping_on("n1"),
        "b-1": sleeping_on("shared"),
        "c-0": WAITING,
        "d-0": None,
    }


def test_a_vjob_that_has_a_vm_on_a_node_that_is_down_has_lost_it() -> None:
    data = copy.deepcopy(GOOD)
    data["vjobs"][0]["vms"][0]["host"] = "n4"
    data["vjobs"][1]["vms"][0]["image"] = "n4"
    configuration = parse(json.dumps(data), "f")
    assert [vjob.lost for vjob in configuration.vjobs] == [True, True, False, False]
    assert [configuration.locations[name] for name in ("a-0", "a-1", "b-0", "b-1")] == [
        WAITING,
        running_on("n3"),
        WAITING,
        sleeping_on("shared"),
    ]


def test_null_is_as_good_as_no_key() -> None:
    data = copy.deepcopy(GOOD)
    data["vjobs"][0] |= dict.fromkeys(("target", "nodes", "time_limit_s", "state_s"))
    data["vjobs"][0]["vms"][0]["image"] = None
    assert parse(json.dumps(data), "f").vjobs == parse(json.dumps(GOOD), "f").vjobs


# -- what is wrong with an object ----------------------------------------------------------------------------------

Change = Callable[[dict[str, Any]], object]


def setting(*place_and_value: Any) -> Change:
    """Put a value into a place."""
    *place, key, value = place_and_value

    def change(data: dict[str, Any]) -> None:
        holder: Any = data
        for step in place:
            holder = holder[step]
        holder[key] = value

    return change


def without(*place: Any) -> Change:
    """Take a key away."""
    *path, key = place

    def change(data: dict[str, Any]) -> None:
        holder: Any = data
        for step in path:
            holder = holder[step]
        del holder[key]

    return change


def vm(vjob: int, key: str, value: Any) -> Change:
    return setting("vjobs", vjob, "vms", 0, key, value)


VM0, VM1, VM2 = ("$.vjobs[0].vms[0]", "$.vjobs[1].vms[0]", "$.vjobs[2].vms[0]")

BAD: list[tuple[Change, str]] = [
    # the file itself
    (without("nodes"), "$.nodes: is required"),
    (without("vjobs"), "$.vjobs: is required"),
    (setting("nodes", []), "$.nodes: must be a list of at least one node, not []"),
    (setting("nodes", {"n1": {}}), "$.nodes: must be a list of at least one node, not an object"),
    (setting("vjobs", None), "$.vjobs: must be a list of vjobs, the head of the queue first, not null"),
    (setting("node", []), "$.node: unknown key; did you mean nodes?"),
    (setting("a b\n", []), '$["a b\\n"]: unknown key; there are nodes, vjobs, platforms, rules'),
    # nodes
    (setting("nodes", 1, "n2"), '$.nodes[1]: must be an object that describes a node, not "n2"'),
    (without("nodes", 1, "cpu"), "$.nodes[1].cpu: is required"),
    (setting("nodes", 1, "CPUs", 3), "$.nodes[1].CPUs: unknown key; did you mean cpu?"),
    (
        setting("nodes", 1, "racks", 3),
        "$.nodes[1].racks: unknown key; there are name, cpu, memory_mib, state, platform",
    ),
    (setting("nodes", 1, "name", 7), "$.nodes[1].name: must be a text, not 7"),
    (
        setting("nodes", 3, "name", ""),
        "$.nodes[3].name: the name of a node must not be empty\n$.vjobs[2].exclude: there is no node 'n4'",
    ),
    (
        setting("nodes", 3, "name", "n1"),
        "$.nodes[3].name: a node named 'n1' exists already; names must be unique\n"
        "$.vjobs[2].exclude: there is no node 'n4'",
    ),
    (
        setting("nodes", 2, "name", "shared"),
        "$.nodes[2].name: 'shared' is no name for a node: it means storage that all mount\n"
        "$.vjobs[0].vms[1].host: there is no node 'n3'",
    ),
    (setting("nodes", 1, "state", "idle"), '$.nodes[1].state: must be up, draining or down, not "idle"'),
    (setting("nodes", 1, "cpu", "2"), '$.nodes[1].cpu: must be a finite number of CPUs, 0 or more, not "2"'),
    (setting("nodes", 1, "cpu", -1), "$.nodes[1].cpu: must be a finite number of CPUs, 0 or more, not -1"),
    (setting("nodes", 1, "cpu", 1.125), "$.nodes[1].cpu: must have two decimals at most, not 1.125"),
    (setting("nodes", 1, "cpu", 1e300), "$.nodes[1].cpu: must be at most 1000000, not 1e+300"),
    (
        setting("nodes", 1, "memory_mib", 2**40),
        "$.nodes[1].memory_mib: must be at most 1073741824, not 1099511627776",
    ),
    (
        setting("nodes", 1, "memory_mib", 4096.0),
        "$.nodes[1].memory_mib: must be a whole number of MiB, 0 or more, not 4096.0",
    ),
    # vjobs
    (setting("vjobs", 1, []), "$.vjobs[1]: must be an object that describes a vjob, not []"),
    (without("vjobs", 1, "name"), "$.vjobs[1].name: is required"),
    (setting("vjobs", 1, "name", "a"), "$.vjobs[1].name: a vjob named 'a' exists already; names must be unique"),
    (
        setting("vjobs", 1, "state", "suspended"),
        '$.vjobs[1].state: must be waiting, running, paused, sleeping or terminated, not "suspended"',
    ),
    (
        setting("vjobs", 1, "target", "stopped"),
        '$.vjobs[1].target: must be running, paused, sleeping, waiting or terminated, not "stopped"',
    ),
    (
        setting("vjobs", 1, "target", "waiting"),
        "$.vjobs[1].target: a vjob that is sleeping cannot become waiting; it can become running, sleeping, terminated",
    ),
    (
        setting("vjobs", 0, "target", "sleeping"),
        "$.vjobs[0].target: a vjob that is not preemptible stays running once it runs",
    ),
    (setting("vjobs", 1, "preemptible", 1), "$.vjobs[1].preemptible: must be true or false, not 1"),
    (setting("vjobs", 1, "preemptable", True), "$.vjobs[1].preemptable: unknown key; did you mean preemptible?"),
    (setting("vjobs", 1, "nodes", "n1"), '$.vjobs[1].nodes: must be a list of names of nodes, not "n1"'),
    (setting("vjobs", 1, "nodes", ["n1", 2]), "$.vjobs[1].nodes[1]: must be the name of a node, not 2"),
    (
        setting("vjobs", 1, "nodes", []),
        "$.vjobs[1].nodes: an empty list allows no node at all; leave it out to allow all",
    ),
    (setting("vjobs", 1, "exclude", ["n9"]), "$.vjobs[1].exclude: there is no node 'n9'"),
    (setting("vjobs", 1, "priority", 0.5), "$.vjobs[1].priority: must be a whole number, not 0.5"),
    (setting("vjobs", 1, "priority", 2**31), "$.vjobs[1].priority: must be at most 2147483647, not 2147483648"),
    (
        setting("vjobs", 1, "time_limit_s", 0),
        "$.vjobs[1].time_limit_s: must be a number of seconds above 0, not 0",
    ),
    (setting("vjobs", 1, "ran_s", -1), "$.vjobs[1].ran_s: must be a number of seconds, 0 or more, not -1"),
    (setting("vjobs", 1, "state_s", True), "$.vjobs[1].state_s: must be a number of seconds, 0 or more, not true"),
    (setting("vjobs", 1, "waited_s", -1), "$.vjobs[1].waited_s: must be a number of seconds, 0 or more, not -1"),
    (setting("vjobs", 1, "waited_s", None), "$.vjobs[1].waited_s: must be a number of seconds, 0 or more, not null"),
    (setting("vjobs", 1, "user", 7), "$.vjobs[1].user: must be the name of a user, not 7"),
    (setting("vjobs", 1, "weight", 0), "$.vjobs[1].weight: must be a number above 0, not 0"),
    (setting("vjobs", 1, "weight", float("inf")), "$.vjobs[1].weight: must be a number above 0, not Infinity"),
    (setting("vjobs", 1, "weight", float("nan")), "$.vjobs[1].weight: must be a number above 0, not NaN"),
    (setting("vjobs", 1, "weight", 2_000_000), "$.vjobs[1].weight: must be at most 1000000, not 2000000"),
    (setting("vjobs", 1, "vms", []), "$.vjobs[1].vms: vjob 'b' has no VM; it needs at least one"),
    (setting("vjobs", 1, "vms", {"b-0": 1}), "$.vjobs[1].vms: must be a list of VMs, not an object"),
    # VMs
    (setting("vjobs", 1, "vms", 0, None), f"{VM1}: must be an object that describes a VM, not null"),
    (vm(1, "name", "a-0"), f"{VM1}.name: a VM named 'a-0' exists already; names must be unique"),
    (vm(1, "memory_mib", -5), f"{VM1}.memory_mib: must be a whole number of MiB, 0 or more, not -5"),
    (vm(1, "memory_mib", True), f"{VM1}.memory_mib: must be a whole number of MiB, 0 or more, not true"),
    (vm(1, "memory_mib", int("9" * 500)), f"{VM1}.memory_mib: must be a whole number of MiB, 0 or more, not Infinity"),
    (vm(1, "cpu", False), f"{VM1}.cpu: must be a finite number of CPUs, 0 or more, not false"),
    (vm(1, "cpu", float("nan")), f"{VM1}.cpu: must be a finite number of CPUs, 0 or more, not NaN"),
    (vm(1, "cpu", float("inf")), f"{VM1}.cpu: must be a finite number of CPUs, 0 or more, not Infinity"),
    (vm(1, "cpu", 0.001), f"{VM1}.cpu: must have two decimals at most, not 0.001"),
    (vm(1, "cpu", "1" * 50), f'{VM1}.cpu: must be a finite number of CPUs, 0 or more, not "{"1" * 35}...'),
    (vm(1, "memory", 5), f"{VM1}.memory: unknown key; did you mean memory_mib?"),
    # where a VM is
    (vm(0, "host", None), f"{VM0}.host: a running VM needs its host"),
    (vm(0, "host", "n7"), f"{VM0}.host: there is no node 'n7'"),
    (vm(0, "host", "shared"), f"{VM0}.host: a VM runs on a node, not on 'shared'"),
    (vm(0, "host", 1), f"{VM0}.host: must be the name of a node, not 1"),
    (vm(0, "image", "n1"), f"{VM0}.image: only a VM of a sleeping vjob has an image, and this vjob is running"),
    (vm(1, "image", None), f"{VM1}.image: a sleeping VM needs its image"),
    (vm(1, "image", "n7"), f"{VM1}.image: there is no node 'n7'"),
    (vm(1, "host", "n1"), f"{VM1}.host: only a VM of a running or paused vjob has a host, and this vjob is sleeping"),
    (vm(2, "host", "n1"), f"{VM2}.host: only a VM of a running or paused vjob has a host, and this vjob is waiting"),
    (vm(2, "image", "shared"), f"{VM2}.image: only a VM of a sleeping vjob has an image, and this vjob is waiting"),
    (vm(2, "name", "\ud800"), f'{VM2}.name: half of a character: "\\ud800"'),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message.partition("\n")[0][:60] for _, message in BAD])
def test_a_bad_instance_is_refused_with_the_place(change: Change, message: str) -> None:
    data = copy.deepcopy(GOOD)
    change(data)
    with pytest.raises(InstanceError) as caught:
        parse(json.dumps(data), "f.json")
    assert str(caught.value).splitlines() == [f"f.json: {line}" for line in message.splitlines()]


def test_all_faults_are_told_at_once_in_the_order_of_the_file() -> None:
    data = copy.deepcopy(GOOD)
    for change in (
        setting("nodes", 0, "cpu", "2"),
        setting("nodes", 2, "memory_mib", -1),
        setting("vjobs", 0, "vms", 0, "host", "n9"),
        setting("vjobs", 1, "vms", 1, "cpu", 0.123),
        setting("vjobs", 1, "vms", 1, "hots", "n1"),
        setting("vjobs", 2, 5),
        setting("vjobs", 3, "name", "a"),
    ):
        change(data)
    data["vjobs"] += [{"name": "e", "vms": [{}]}] * 10
    with pytest.raises(InstanceError) as caught:
        parse(json.dumps(data), "f")
    lines = str(caught.value).splitlines()
    assert lines[:9] == [
        'f: $.nodes[0].cpu: must be a finite number of CPUs, 0 or more, not "2"',
        "f: $.nodes[2].memory_mib: must be a whole number of MiB, 0 or more, not -1",
        "f: $.vjobs[0].vms[0].host: there is no node 'n9'",
        "f: $.vjobs[1].vms[1].cpu: must have two decimals at most, not 0.123",
        "f: $.vjobs[1].vms[1].hots: unknown key; did you mean host?",
        "f: $.vjobs[2]: must be an object that describes a vjob, not 5",
        "f: $.vjobs[3].name: a vjob named 'a' exists already; names must be unique",
        "f: $.vjobs[4].state: is required",
        "f: $.vjobs[4].vms[0].cpu: is required",
    ]
    assert lines[-1] == "f: $.vjobs[13].vms[0].name: is required"  # 13 after 4, as numbers


def test_what_only_follows_from_another_fault_is_not_told() -> None:
    data = copy.deepcopy(GOOD)
    data["nodes"][0]["name"] = 1  # then nobody knows whether there is a node n1
    data["vjobs"][1]["state"] = "asleep"  # then nobody knows whether its VMs need an image or a host
    with pytest.raises(InstanceError) as caught:
        parse(json.dumps(data), "f")
    assert str(caught.value).splitlines() == [
        "f: $.nodes[0].name: must be a text, not 1",
        'f: $.vjobs[1].state: must be waiting, running, paused, sleeping or terminated, not "asleep"',
    ]


def test_a_paused_vjob_is_in_the_memory_of_its_hosts() -> None:
    data = copy.deepcopy(GOOD)
    data["vjobs"][0] |= {"state": "paused", "target": "paused"}
    found = parse(json.dumps(data), "f")
    assert {found.locations[vm.name].state for vm in found.vjobs[0].vms} == {VMState.PAUSED}
    assert (found.state(found.vjobs[0]), found.vjobs[0].target) == (VJobState.PAUSED, VJobState.PAUSED)
    of_host = sum(vm.demand.memory_mib for vm in found.vjobs[0].vms if found.locations[vm.name].node == "n1")
    assert (found.used["n1"].memory_mib, found.used["n1"].cpus) == (of_host, 0)
    del data["vjobs"][0]["vms"][0]["host"]
    with pytest.raises(InstanceError, match=r"host: a paused VM needs its host"):
        parse(json.dumps(data), "f")


@pytest.mark.parametrize("target", ["sleeping", "paused"])
def test_a_lost_vjob_cannot_be_sent_to_sleep(target: str) -> None:
    data = copy.deepcopy(GOOD)
    data["vjobs"][1]["vms"][0]["image"] = "n4"
    data["vjobs"][1]["target"] = target
    with pytest.raises(InstanceError) as caught:
        parse(json.dumps(data), "f")
    assert str(caught.value) == (
        "f: $.vjobs[1].target: a vjob that lost a VM (its node is down) has to begin anew, and cannot become " + target
    )


ODD = (None, True, 0, -1, 1.5, 1e999, 10**30, "", "n1", "shared", "x\n", "\ud800", [], {}, [1], ["n1"], [[]], [{}])


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in some data but its root."""
    steps = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield (*place, step)
        yield from places(value[step], (*place, step))


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_in_a_file_it_is_read_or_refused_with_places(seed: int) -> None:
    random = Random(seed)
    data = copy.deepcopy(GOOD)
    for _ in range(random.randint(1, 4)):
        *path, last = random.choice(list(places(data)) or [("nodes",)])
        holder: Any = data
        for step in path:
            holder = holder[step]
        if random.random() < 0.7:
            holder[last] = copy.deepcopy(random.choice(ODD))
        else:
            del holder[last]
    try:
        parse(json.dumps(data), "f")
    except InstanceError as error:
        assert all(line.startswith("f: $") for line in str(error).split("\n"))
        str(error).encode()  # it can be printed


# -- what is wrong with a text or a file ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: is empty"),
        (" \n", "f: is empty"),
        ("[]", "f: $: must be an object with the keys nodes and vjobs, not []"),
        ("null", "f: $: must be an object with the keys nodes and vjobs, not null"),
        ('{"nodes": [],\n  "vjobs" []}', "f:2:11: not JSON: Expecting ':' delimiter"),
        ('{"nodes": []', "f:1:13: not JSON: Expecting ',' delimiter"),
        ("nodes:\n- n1\n", "f:1:1: not JSON: Expecting value"),
        ("{} {}", "f:1:4: not JSON: Extra data"),
        ("[" * 100_000, "f: lists and objects are nested too deeply"),
        ('{"a": ' * 100_000, "f: lists and objects are nested too deeply"),
        ('{"vjobs": [], "nodes": ' + "[" * 700 + "]" * 700 + "}", "f: lists and objects are nested too deeply"),
        (
            '{"nodes": [{"name": "n1", "cpu": 1, "memory_mib": 1, "cpu": 2}], "vjobs": [], "vjobs": []}',
            "f: $.nodes[0].cpu: this key is there more than once\nf: $.vjobs: this key is there more than once",
        ),
        (
            '{"nodes": [{"name": "n1", "cpu": 1' + "0" * 5000 + ', "memory_mib": 1}], "vjobs": []}',
            "f: $.nodes[0].cpu: must be a finite number of CPUs, 0 or more, not Infinity",
        ),
        (
            '{"nodes": [{"name": "n1", "cpu": 100000000000000000000, "memory_mib": 1}], "vjobs": []}',
            "f: $.nodes[0].cpu: must be at most 1000000, not 1e+20",
        ),
        (
            '{"nodes": [{"name": "n1", "cpu": 1e999, "memory_mib": 100000000000000000000}], "vjobs": []}',
            "f: $.nodes[0].cpu: must be a finite number of CPUs, 0 or more, not Infinity\n"
            "f: $.nodes[0].memory_mib: must be at most 1073741824, not 1e+20",
        ),
    ],
    ids=lambda text: text[:30],
)
def test_a_text_that_is_no_instance_is_refused(text: str, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        parse(text, "f")
    assert str(caught.value) == message


def zipped(data: bytes) -> bytes:
    """The same bytes whenever it is called: names of tests are made of them."""
    return gzip.compress(data, mtime=0)


def test_a_file_is_read_plain_and_gzipped_whatever_its_name(tmp_path: Path) -> None:
    expected = parse(json.dumps(GOOD), "f")
    text = json.dumps(GOOD, ensure_ascii=False).encode()
    for name, data in (
        ("plain.json", text),
        ("zipped.json.gz", zipped(text)),
        ("zipped-too", zipped(text)),
        ("mark.json", b"\xef\xbb\xbf" + text),  # as some editors begin a file
    ):
        (tmp_path / name).write_bytes(data)
        assert read(str(tmp_path / name)) == expected, name


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("missing.json", None, "No such file or directory"),
        ("no/dir.json", None, "No such file or directory"),
        ("", None, "Is a directory"),
        ("empty.json", b"", "is empty"),
        ("empty.json.gz", b"", "is empty"),
        ("nothing.gz", zipped(b""), "is empty"),
        ("plain.json.gz", b"{}", "not gzipped, though its name ends in .gz"),
        ("cut.json.gz", zipped(b'{"nodes": []}' * 9)[:-12], "gzipped, but damaged or cut short"),
        ("broken.gz", zipped(b"x" * 99)[:12] + b"\xff" * 40, "gzipped, but damaged or cut short"),
        ("head.gz", b"\x1f\x8b\xff", "gzipped, but damaged or cut short"),
        ("method.gz", b"\x1f\x8b\xff" + bytes(20), "gzipped, but damaged or cut short"),
        ("stream.gz", zipped(b"x")[:10] + b"\xff" * 20, "gzipped, but damaged or cut short"),
        ("latin.json", '{"nödes"'.encode("latin-1"), "not UTF-8 text (byte 4)"),
        ("wide.json", '{"nodes"'.encode("utf-16"), "not UTF-8 text (byte 1)"),
        ("large.json", b" " * (2**20 + 1), "more than 1 MiB, which no configuration has"),
        ("bomb.json.gz", zipped(b" " * (2**20 + 1)), "more than 1 MiB, which no configuration has"),
        ("nul\0.json", None, "embedded null byte"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    path = f"{tmp_path}/{name}"
    if data is not None:
        Path(path).write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        read(path, limit_bytes=2**20)
    assert str(caught.value) == f"{path}: {message}".replace("\0", "?")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not read")
def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    code = "try: read('secret')\nexcept Exception as e: print(e)"
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "secret").chmod(0o600)
    said = python_as(65534, code, before="from rmsplugin.instance import read", cwd=tmp_path)
    assert said == "secret: Permission denied\n"


def test_standard_input_is_a_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zipped").write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    with (tmp_path / "zipped").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert read("-") == parse(json.dumps(GOOD), "f")
        with pytest.raises(InstanceError, match=r"^standard input: is empty$"):
            read("-")


def test_a_large_file_is_read_whole(tmp_path: Path) -> None:
    nodes = [{"name": f"n{i}", "cpu": 2, "memory_mib": 4096} for i in range(5000)]
    vjobs = [
        {
            "name": f"j{j}",
            "state": "running",
            "vms": [
                {"name": f"j{j}-{k}", "cpu": 0.05, "memory_mib": 512, "host": f"n{(6 * j + k) % 5000}"}
                for k in range(6)
            ],
        }
        for j in range(5000)
    ]
    path = tmp_path / "large.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"nodes": nodes, "vjobs": vjobs}).encode()))
    configuration = read(str(path))
    assert len(configuration.locations) == 30_000
    assert {location.state for location in configuration.locations.values()} == {VMState.RUNNING}
