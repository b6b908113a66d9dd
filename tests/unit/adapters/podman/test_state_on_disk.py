"""A state on disk: what is only in memory of the node yet is believed of no disk and no server of files."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmsplugin.adapters.platform.node_base import Call, NodeSettings
from rmsplugin.adapters.platform.podman.on_node import acts, checkpoint, container, state_file, vms
from rmsplugin.adapters.platform.podman.on_node.vms import ContainersOnNode
from rmsplugin.errors import OperationFailedError

VM = "vjob7-0"


class Node:
    """A node with one container; ``said`` has what became of it, in order."""

    def __init__(self, state: Path) -> None:
        self.state, self.said = state, list[str]()
        self.inode = 0

    def podman_writes(self) -> None:
        self.state.write_bytes(b"podman's export")
        self.inode = self.state.stat().st_ino

    def full(self, descriptor: int) -> None:
        assert os.fstat(descriptor).st_ino == self.inode
        self.said.append("disk is full")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    node = Node(tmp_path / f"{VM}.state.partial")

    class Group:
        def __init__(self, name: str) -> None:
            pass

        def processes(self) -> list[int]:
            return [] if "ended" in node.said else [11]

        def is_told_to_stand_still(self) -> bool:
            return False

        def kill(self, timeout_s: float) -> bool:
            node.said.append("ended")
            return True

    class Podman:
        children: tuple[int, ...] = ()

        def __init__(self, *words: str) -> None:
            assert str(node.state) in words

        def wait(self, deadline: float, *, over: Callable[[], bool]) -> str:
            node.podman_writes()
            return ""

    def freezes(name: str, timeout_s: float) -> bool:
        node.said.append("stands still")
        return True

    monkeypatch.setattr(acts, "DIRECTORY", tmp_path)
    for module in (vms, checkpoint):
        monkeypatch.setattr(module, "Group", Group)
    monkeypatch.setattr(checkpoint, "Podman", Podman)
    monkeypatch.setattr(checkpoint, "has_version_2", lambda: True)
    monkeypatch.setattr(checkpoint.use, "of", lambda name, group: checkpoint.use.NO_USE)
    monkeypatch.setattr(checkpoint, "_image_of", lambda name: "0123")
    monkeypatch.setattr(checkpoint.criu, "write_settings", lambda name: None)
    monkeypatch.setattr(container, "freeze", freezes)
    monkeypatch.setattr(container, "thaw", lambda name, bridge: node.said.append("goes on"))
    monkeypatch.setattr(container, "remove", lambda name: None)
    return node


def a_call() -> Call:
    settings = cast(NodeSettings, SimpleNamespace(bridge="br0"))
    turn = contextlib.nullcontext
    return Call(time.monotonic() + 5, settings, lambda _: True, lambda: None, turn, lambda _: None)


def test_a_vm_is_ended_when_its_state_is_on_disk(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: node.said.append("on disk"))
    ContainersOnNode().save(VM, node.state, a_call())
    assert node.said == ["stands still", "on disk", "ended"]
    assert state_file.read(node.state) == state_file.Seal(VM, "0123", len(b"podman's export"))


def test_a_vm_whose_state_never_comes_to_disk_goes_on(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full server of files takes what podman writes, and refuses it when podman has gone."""
    monkeypatch.setattr(os, "fsync", node.full)
    with pytest.raises(OSError, match="No space left"):
        ContainersOnNode().save(VM, node.state, a_call())
    assert node.said == ["stands still", "disk is full", "goes on"]
    assert not node.state.exists()


def test_a_checkpoint_that_never_comes_to_disk_is_none_and_its_vm_does_not_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", node.full)
    with pytest.raises(OSError, match="No space left"):
        ContainersOnNode().checkpoint(VM, node.state, a_call())
    assert node.said[:3] == ["stands still", "goes on", "disk is full"]
    assert not node.state.exists()


def test_a_vm_whose_state_is_another_file_than_was_looked_at_goes_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can say whether that one is on disk."""

    def writes_another() -> None:
        other = node.state.with_name("other")
        other.write_bytes(b"podman's export")
        other.rename(node.state)

    monkeypatch.setattr(node, "podman_writes", writes_another)
    with pytest.raises(OperationFailedError, match="another file"):
        ContainersOnNode().save(VM, node.state, a_call())
    assert node.said == ["stands still", "goes on"]


def test_a_vm_goes_on_though_what_lies_at_the_place_of_its_state_cannot_be_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def makes_a_directory() -> None:
        node.state.unlink()
        node.state.mkdir()

    monkeypatch.setattr(node, "podman_writes", makes_a_directory)
    with pytest.raises((OperationFailedError, OSError)):
        ContainersOnNode().save(VM, node.state, a_call())
    assert node.said == ["stands still", "goes on"]
