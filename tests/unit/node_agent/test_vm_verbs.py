"""Verbs about VMs, by an agent whose platform obeys no engine by itself: what is refused before anything is done."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.node_agent.test_node_agent import MARKER, Node

VM = "vjob12-0"
WANTED: dict[str, Any] = {
    "uuid": "00000000-0000-4000-8000-000000000001",
    "cpus": 1,
    "memory_mib": 64,
    "reference": "localhost/guest:1",
    "mounts": [["/home", True]],
    "filtered": False,
}


#: The node agent, with a directory of its own for what is known of VMs.
AGENT = """
import sys
from pathlib import Path
from rmsplugin.adapters.platform.podman.on_node import acts
from rmsplugin.node_agent.main import main
acts.DIRECTORY = Path(sys.argv.pop(1))
sys.exit(main())
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    agent = [sys.executable, "-c", AGENT, str(tmp_path / "known")]
    return Node(tmp_path / "n1", '[hypervisor]\nplatform = "podman"\n', agent=agent)


def test_a_platform_with_its_own_way_is_not_asked_by_verbs(tmp_path: Path) -> None:
    node = Node(tmp_path / "n1")
    for words in ("vm-list", f"vm-has {VM}", f"vm-stop {VM} 1000"):
        assert "is asked by its own way" in node.call(words)["error"]


def test_vms_that_are_not_here_are_not_listed(node: Node) -> None:
    assert node.call("vm-list") == {"vms": {}}
    assert node.call("vm-statistics") == {"vms": {}}
    assert node.call(f"vm-has {VM}") == {"here": False}
    assert node.call(f"vm-used {VM}")["kind"] == "not_found"


@pytest.mark.parametrize(
    "words",
    [
        "vm-list more",
        "vm-has",
        "vm-has dom0",
        f"vm-stop {VM}",
        f"vm-stop {VM} 0",
        f"vm-stop {VM} soon",
        f"vm-pause ../{VM} 1000",
        f"vm-save {VM} 1000",
        "vm-list --shared",
        f"vm-cpus {VM} 1000",
        f"vm-cpus {VM} 1000 0",
        f"vm-cpus {VM} 0 1",
        f"vm-memory {VM} 1000 -5",
        f"vm-memory {VM} 1000 all",
    ],
)
def test_words_of_another_form_are_refused(node: Node, words: str) -> None:
    assert node.call(words)["kind"] == "failed"
    assert node.files() == []


@pytest.mark.parametrize("verb", ["vm-save", "vm-checkpoint"])
def test_states_are_written_in_stores_only_and_under_the_vms_own_name(node: Node, verb: str) -> None:
    other = f"{node.store}/vjob13-0.state"
    for path in (
        "/etc/passwd",
        f"{node.root}/{VM}.state",
        f"{node.store}/../{VM}.state",
        other,
        f"{node.store}/.{VM}.state",
    ):
        assert "not " in node.call(f"{verb} {VM} 1000 {path}")["error"], path
    for path in (f"{node.store}/{VM}.state.partial", f"{node.shared}/checkpoint-3.{VM}.state.partial"):
        assert node.call(f"{verb} {VM} 1000 {path}")["kind"] == "not_found", "the VM is not here"


def test_a_part_of_a_group_is_a_store_and_others_are_none(node: Node) -> None:
    for directory, kind in ((f"{node.shared}/groups/a", "not_found"), (f"{node.shared}/other/a", "failed")):
        assert node.call(f"vm-save {VM} 1000 {directory}/{VM}.state.partial")["kind"] == kind


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "1"},
        {"cpus": 0},
        {"cpus": "many"},
        {"memory_mib": -1},
        {"reference": "--privileged"},
        {"reference": ""},
        {"mounts": [["/home"]]},
        {"mounts": 7},
        {"resized_cpus": -1},
        {"resized_memory_mib": "half"},
        {"filtered": None, "uuid": None},
    ],
)
def test_descriptions_of_another_form_are_refused(node: Node, change: dict[str, Any]) -> None:
    said = node.call(f"vm-boot {VM} 1000", json.dumps({**WANTED, **change}).encode())
    assert "not the description of a VM" in said["error"]
    assert "not the description of a VM" in node.call(f"vm-boot {VM} 1000", b"[")["error"]


def test_vms_that_are_not_here_are_not_resized(node: Node) -> None:
    for words in (f"vm-cpus {VM} 1000 1", f"vm-memory {VM} 1000 64"):
        assert node.call(words)["kind"] == "not_found"


def test_a_deposed_engine_may_look_and_not_act(node: Node) -> None:
    assert node.call("obey --epoch 5") == {}
    acts = [f"vm-{act} {VM} 1000 --epoch 4" for act in ("boot", "stop", "pause", "unpause")]
    acts += [f"vm-{act} {VM} 1000 {node.store}/{VM}.state --epoch 4" for act in ("save", "checkpoint", "restore")]
    acts += [f"vm-{act} {VM} 1000 1 --epoch 4" for act in ("cpus", "memory")]
    for words in [*acts, f"vm-abort {VM} --epoch 4"]:
        assert node.call(words, json.dumps(WANTED).encode())["kind"] == "deposed", words
    assert node.call("vm-list --epoch 4") == {"vms": {}}


def test_the_key_of_another_node_does_nothing_with_vms(node: Node) -> None:
    for words in ("vm-list", f"vm-stop {VM} 1000", f"vm-boot {VM} 1000"):
        assert "not for the key of a node" in node.call(words, flags=("--peer",))["error"]
    assert (node.store / ".rmsplugin-store").read_text() == f"{MARKER}\n"
