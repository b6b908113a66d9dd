"""Platforms in an instance: what vjobs of each can do, and files that ask one for what it cannot do."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rmsplugin.errors import InstanceError
from rmsplugin.instance import parse
from rmsplugin.model.capabilities import EVERYTHING
from rmsplugin.model.rules import confined_to

TWO: dict[str, Any] = {
    "platforms": [{"name": "box", "lacks": ["migrate", "elsewhere"]}, {"name": "bare", "lacks": ["suspend", "pause"]}],
    "nodes": [
        {"name": "n1", "cpu": 2, "memory_mib": 4096},
        {"name": "b1", "cpu": 2, "memory_mib": 4096, "platform": "box"},
        {"name": "b2", "cpu": 2, "memory_mib": 4096, "platform": "box"},
        {"name": "c1", "cpu": 2, "memory_mib": 4096, "platform": "bare"},
    ],
    "vjobs": [
        {"name": "own", "state": "running", "vms": [{"name": "o", "cpu": 1, "memory_mib": 512, "host": "n1"}]},
        {
            "name": "boxed",
            "state": "running",
            "platform": "box",
            "vms": [{"name": f"x{i}", "cpu": i, "memory_mib": 512, "host": f"b{i}"} for i in (1, 2)],
        },
        {
            "name": "saved",
            "state": "sleeping",
            "platform": "box",
            "vms": [{"name": "s", "cpu": 1, "memory_mib": 512, "image": "b2"}],
        },
        {
            "name": "bared",
            "state": "running",
            "platform": "bare",
            "vms": [{"name": "e", "cpu": 1, "memory_mib": 512, "host": "c1"}],
        },
        {"name": "new", "state": "waiting", "platform": "box", "vms": [{"name": "w", "cpu": 1, "memory_mib": 512}]},
    ],
}


def test_a_vjob_is_on_nodes_of_its_platform_and_is_asked_only_for_what_that_can_do() -> None:
    found = {vjob.name: vjob for vjob in parse(json.dumps(TWO), "f.json").vjobs}
    only = {name: confined_to(vjob.rules) for name, vjob in found.items()}
    assert only == {"own": {"n1"}, "boxed": {"b1", "b2"}, "saved": {"b2"}, "bared": {"c1"}, "new": {"b1", "b2"}}
    bound = {vm.name: vm.only for vjob in found.values() for vm in vjob.vms}
    assert bound == {"o": None, "x1": "b1", "x2": "b2", "s": "b2", "e": None, "w": None}
    assert [name for name, vjob in found.items() if not vjob.preemptible] == ["bared"]
    assert found["own"].can == EVERYTHING and not found["own"].anchored
    assert found["boxed"].can == replace(EVERYTHING, migrate=False, elsewhere=False) and found["boxed"].anchored


def test_a_file_without_platforms_is_as_it_was() -> None:
    data = {"nodes": TWO["nodes"][:1], "vjobs": TWO["vjobs"][:1]}
    [vjob] = parse(json.dumps(data), "f.json").vjobs
    assert (vjob.platform, vjob.can, vjob.rules, vjob.vms[0].only) == ("", EVERYTHING, (), None)


Change = Callable[[dict[str, Any]], None]


def at(value: Any, *path: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            at("b1", "vjobs", 0, "vms", 0, "host"),
            "$.vjobs[0].vms[0].host: node 'b1' is of platform 'box', and",
        ),
        (
            at("n1", "vjobs", 1, "vms", 0, "host"),
            "$.vjobs[1].vms[0].host: node 'n1' is of no platform, and",
        ),
        (at("shared", "vjobs", 2, "vms", 0, "image"), "$.vjobs[2].vms[0].image: platform 'box' restores a VM only on"),
        (at("sleeping", "vjobs", 3, "target"), "$.vjobs[3].target: "),
        (at("paused", "vjobs", 3, "state"), "$.vjobs[3].vms[0].host: platform 'bare' pauses no VM"),
        (at(["n1"], "vjobs", 4, "nodes"), "$.vjobs[4].nodes: none of these nodes is of the platform of this vjob"),
        (at("podman", "vjobs", 4, "platform"), '$.vjobs[4].platform: there is no "podman" among the platforms'),
        (at("x", "nodes", 0, "platform"), '$.nodes[0].platform: there is no "x" among the platforms'),
        (at("", "platforms", 0, "name"), '$.platforms[0].name: must be a text that is not empty, not ""'),
        (at("bare", "platforms", 0, "name"), '$.platforms[1].name: a platform named "bare" exists already'),
        (at(["fly"], "platforms", 0, "lacks"), "$.platforms[0].lacks[0]: must be migrate, suspend, elsewhere or pause"),
        (at("migrate", "platforms", 0, "lacks"), "$.platforms[0].lacks: must be a list of abilities"),
        (at(1, "platforms", 0, "lack"), "$.platforms[0].lack: unknown key; did you mean lacks?"),
        (at({}, "platforms"), "$.platforms: must be a list of platforms"),
        (at(None, "platforms", 0), "$.platforms[0]: must be an object that describes a platform, not null"),
        (at({"lacks": []}, "platforms", 0), "$.platforms[0].name: is required"),
    ],
)
def test_a_file_that_asks_a_platform_for_what_it_cannot_do_is_refused(change: Change, message: str) -> None:
    data = copy.deepcopy(TWO)
    change(data)
    with pytest.raises(InstanceError) as caught:
        parse(json.dumps(data), "f.json")
    assert f"f.json: {message}" in str(caught.value)
