"""Overbooked VMs in files: decisions and packings against brute force, which divides CPUs by itself."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from examples import few
from hypothesis import given, settings
from hypothesis import strategies as st

from rmsplugin.instance import parse
from rmsplugin.model.elements import VMState
from rmsplugin.packing.search import Search
from rmsplugin.proposing.check import check
from rmsplugin.proposing.parameters import ProposalParameters
from rmsplugin.proposing.proposal import Proposal
from rmsplugin.proposing.propose import propose

SEARCH = Search(time_limit_s=3600, deterministic_limit=0.05)
NODES = [{"name": "n1", "cpu": 1, "memory_mib": 4096}, {"name": "n2", "cpu": 2, "memory_mib": 4096}]


@st.composite
def instances(draw: st.DrawFn) -> dict[str, Any]:
    """Vjobs of one VM, some of which are overbooked; those that run fit where they are."""
    vjobs: list[dict[str, Any]] = []
    rules: dict[float, list[str]] = {}
    ratios: dict[str, Fraction] = {}
    for number in range(draw(st.integers(1, 6))):
        vm = {"name": f"v{number}", "cpu": draw(st.sampled_from([0.5, 1, 2])), "memory_mib": 512}
        ratio = draw(st.sampled_from([1, 1.5, 2, 3, 16]))
        ratios[vm["name"]] = Fraction(ratio)
        rules.setdefault(ratio, []).append(vm["name"])
        vjobs.append({"name": f"j{number}", "state": "waiting", "vms": [vm]})
        host = draw(st.sampled_from(["", "n1", "n2"]))
        running = {each["vms"][0]["name"]: each["vms"][0]["host"] for each in vjobs[:-1] if each["state"] == "running"}
        if host and obeyed([each["vms"][0] for each in vjobs], ratios, running | {vm["name"]: host}):
            vm["host"], vjobs[-1]["state"] = host, "running"
    told = [{"rule": "overbook", "vms": vms, "ratio": ratio} for ratio, vms in rules.items() if ratio > 1]
    return {"nodes": NODES, "vjobs": vjobs, "rules": told}


def ratios_of(data: Mapping[str, Any]) -> dict[str, Fraction]:
    ratios = {vjob["vms"][0]["name"]: Fraction(1) for vjob in data["vjobs"]}
    return ratios | {vm: Fraction(rule["ratio"]) for rule in data["rules"] for vm in rule["vms"]}


def obeyed(vms: Sequence[Mapping[str, Any]], ratios: Mapping[str, Fraction], places: Mapping[str, str]) -> bool:
    """Whether VMs may be at these places, in the plainest words: hundredths of CPUs, each divided and cut off."""
    for node in NODES:
        here = [vm for vm in vms if places.get(vm["name"]) == node["name"]]
        taken = sum(math.floor(Fraction(round(vm["cpu"] * 100)) / ratios[vm["name"]]) for vm in here)
        if taken > 100 * node["cpu"]:
            return False
        if any(ratios[vm["name"]] > 1 and vm["cpu"] > node["cpu"] for vm in here):
            return False
    return True


def admitted(data: Mapping[str, Any]) -> set[str]:
    """The vjobs that run if each, in the order of the queue, runs if it and those before have places."""
    vms = [vjob["vms"][0] for vjob in data["vjobs"]]
    found: list[str] = []
    for vm in vms:
        if any(obeyed(vms, ratios_of(data), places) for places in all_places([*found, vm["name"]])):
            found.append(vm["name"])
    return set(found)


def all_places(vms: Sequence[str]) -> Iterator[dict[str, str]]:
    for nodes in product([node["name"] for node in NODES], repeat=len(vms)):
        yield dict(zip(vms, nodes, strict=True))


@given(data=instances())
@settings(max_examples=few(100), deadline=None)
def test_those_run_for_whom_brute_force_finds_places(data: dict[str, Any]) -> None:
    source = parse(json.dumps(data), "f.json")
    found = propose(source, ProposalParameters("rjsp-exact", search=SEARCH))
    assert isinstance(found, Proposal), found
    assert check(source, found) == []
    ends = found.target
    places = {name: at.node or "" for name, at in ends.items() if at.state is VMState.RUNNING}
    assert places.keys() == admitted(data)
    assert obeyed([vjob["vms"][0] for vjob in data["vjobs"]], ratios_of(data), places)
