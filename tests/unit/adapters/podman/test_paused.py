"""A container that stood still before a save of it was given up stands still afterwards: files as its control group."""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.node_base import Call, NodeSettings
from rmsplugin.adapters.platform.podman.on_node import acts, checkpoint, container, groups, network, program, vms
from rmsplugin.adapters.platform.podman.on_node.vms import ContainersOnNode
from rmsplugin.errors import OperationFailedError, RmspluginError, TimedOutError

VM = "vjob7-0"
INTERFACE = "rmsv-of-it"
#: CRIU, which reads a process that waits for storage: it ends when the container goes on. The kernel says that it does.
_READS = """
( while [ "$(cat {group}/cgroup.freeze)" = 1 ]; do sleep .01; done; echo frozen 0 >{group}/cgroup.events ) &
wait; exec sleep 1000
"""


class Node:
    """A node with one paused container."""

    def __init__(self, directory: Path) -> None:
        self.group, self.in_bridge = directory / f"rmsplugin/{VM}/libpod-1", {INTERFACE}
        self.group.mkdir(parents=True)
        (directory / "cgroup.controllers").write_text("cpu\n")
        (self.group / "cgroup.procs").write_text("11\n")
        (self.group / "cgroup.freeze").write_text("1")
        (self.group / "cgroup.events").write_text("frozen 1\n")

    def is_told_to_stand_still(self) -> bool:
        return (self.group / "cgroup.freeze").read_text() == "1"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path / "cgroup")
    of_node = functools.partial(groups.Group, root=tmp_path / "cgroup")
    for module in (vms, checkpoint, container):
        monkeypatch.setattr(module, "Group", of_node)
    monkeypatch.setattr(acts, "DIRECTORY", tmp_path)
    monkeypatch.setattr(checkpoint, "_image_of", lambda name: "0123")
    monkeypatch.setattr(checkpoint, "_FREEZE_S", 0.05)
    monkeypatch.setattr(checkpoint, "has_version_2", lambda: True)
    monkeypatch.setattr(checkpoint, "await_end", functools.partial(checkpoint.await_end, reads_s=0.0))
    monkeypatch.setattr(checkpoint.criu, "write_settings", lambda name: None)
    monkeypatch.setattr(program, "_PODMAN", ("sh", "-c", _READS.format(group=node.group)))
    monkeypatch.setattr(container, "_interfaces", lambda name: [INTERFACE])
    monkeypatch.setattr(network, "is_attached", lambda interface: interface in node.in_bridge)
    monkeypatch.setattr(network, "attach", lambda interface, bridge: node.in_bridge.add(interface))
    monkeypatch.setattr(network, "detach", node.in_bridge.discard)
    return node


def a_call(within_s: float) -> Call:
    settings = cast(NodeSettings, SimpleNamespace(bridge="br0"))
    turn = contextlib.nullcontext
    return Call(time.monotonic() + within_s, settings, lambda _: True, lambda: None, turn, lambda _: None)


@pytest.mark.parametrize("in_bridge", [True, False], ids=["paused by podman", "paused by the engine"])
def test_a_paused_container_stays_so_when_its_save_is_given_up(node: Node, tmp_path: Path, in_bridge: bool) -> None:
    """Its processes wait for storage, so it cannot be seen to stand still again."""
    if not in_bridge:
        node.in_bridge.clear()
    with pytest.raises(RmspluginError):
        ContainersOnNode().save(VM, tmp_path / "state", a_call(0.2))
    assert node.is_told_to_stand_still()
    assert (INTERFACE in node.in_bridge) == in_bridge, "it is as it was"


@pytest.mark.parametrize("in_bridge", [True, False], ids=["paused by podman", "paused by the engine"])
def test_a_paused_container_stays_so_when_a_second_save_is_given_up(
    node: Node, tmp_path: Path, in_bridge: bool
) -> None:
    """Since the first one a process waits for storage: the container is told to stand still, and not seen to."""
    if not in_bridge:
        node.in_bridge.clear()
    for _ in range(2):
        with pytest.raises(RmspluginError):
            ContainersOnNode().save(VM, tmp_path / "state", a_call(0.2))
    assert node.is_told_to_stand_still()
    assert (INTERFACE in node.in_bridge) == in_bridge, "it is as it was"


@pytest.mark.parametrize("told", ["0", "1"], ids=["running", "paused"])
def test_a_pause_that_is_given_up_leaves_a_container_as_it_was(node: Node, told: str) -> None:
    (node.group / "cgroup.freeze").write_text(told)
    (node.group / "cgroup.events").write_text("frozen 0\n")
    with pytest.raises(TimedOutError):
        ContainersOnNode().pause(VM, a_call(0.05))
    assert node.is_told_to_stand_still() == (told == "1")


def test_podman_is_listened_to_while_criu_is_waited_for(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says more than its pipe holds, once its save is given up."""
    says = _READS.replace("cgroup.events", f"cgroup.events; head -c 300000 /dev/zero; touch {tmp_path}/said")
    monkeypatch.setattr(program, "_PODMAN", ("sh", "-c", says.format(group=node.group)))
    monkeypatch.setattr(checkpoint, "await_end", functools.partial(checkpoint.await_end, ends_s=PATIENCE_S))
    with pytest.raises(RmspluginError):
        ContainersOnNode().save(VM, tmp_path / "state", a_call(0.2))
    assert (tmp_path / "said").exists(), "nobody ended it before it had said all"


@pytest.mark.parametrize("act", ["save", "pause"])
def test_a_paused_container_stays_so_when_its_network_cannot_be_stopped(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    def detach(interface: str) -> None:
        raise OperationFailedError("ip link: no")

    monkeypatch.setattr(network, "detach", detach)
    words = (VM, a_call(PATIENCE_S)) if act == "pause" else (VM, tmp_path / "state", a_call(PATIENCE_S))
    with pytest.raises(OperationFailedError, match="ip link: no"):
        getattr(ContainersOnNode(), act)(*words)
    assert node.is_told_to_stand_still()
