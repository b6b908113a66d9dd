"""Ending: a container that was told to end is never taken for one that goes on, however long its processes take."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from rmsplugin.adapters.platform.node_base import Call, NodeSettings, WantedVM
from rmsplugin.adapters.platform.podman.on_node import acts, container, vms
from rmsplugin.adapters.platform.podman.on_node.vms import ContainersOnNode
from rmsplugin.errors import NotFoundError, TimedOutError

VM = "vjob7-0"
WANTED = WantedVM(VM, "u", 1, 64, "localhost/guest:1", (), False)


class Node:
    """The container's processes: killed ones end when their storage answers."""

    def __init__(self) -> None:
        self.processes, self.killed, self.frozen = [11, 12], False, False
        self.storage_answers = True

    def processes_left(self) -> list[int]:
        if self.killed and self.storage_answers:
            self.processes = []
        return self.processes

    def kill(self, timeout_s: float) -> bool:
        self.killed, self.frozen = True, False
        return not self.processes_left()

    def is_frozen(self) -> bool:
        return self.frozen

    def makers(self) -> list[int]:
        return []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node with one container, which can be saved."""
    node = Node()

    class Saved:
        def __init__(self, *words: object) -> None:
            pass

        @contextlib.contextmanager
        def made(self, call: Call):  # type: ignore[no-untyped-def]
            node.frozen = True
            yield

        def require_on_disk(self) -> None:
            pass

    class Seen:
        def __init__(self, name: str) -> None:
            self.processes, self.kill = node.processes_left, node.kill
            self.is_frozen, self.makers = node.is_frozen, node.makers

    monkeypatch.setattr(acts, "DIRECTORY", tmp_path)
    monkeypatch.setattr(vms, "Group", Seen)
    monkeypatch.setattr(vms.groups, "names", lambda: [VM] if node.processes_left() else [])
    monkeypatch.setattr(vms, "Checkpoint", Saved)
    monkeypatch.setattr(vms, "_is_being_made", lambda name: False)
    monkeypatch.setattr(container, "remove", lambda name: None)
    return node


def a_call(seconds: float = 5.0) -> Call:
    settings = cast(NodeSettings, SimpleNamespace(bridge="br0", references=frozenset(), mount_targets=()))
    turn = contextlib.nullcontext
    return Call(time.monotonic() + seconds, settings, lambda _: True, lambda: None, turn, lambda _: None)


def power() -> str | None:
    seen = ContainersOnNode().list().get(VM)
    return None if seen is None else seen["power"]


def test_a_saved_vm_whose_processes_wait_for_storage_is_ending_and_not_running(node: Node, tmp_path: Path) -> None:
    assert power() == "running"
    node.storage_answers = False
    with pytest.raises(TimedOutError):
        ContainersOnNode().save(VM, tmp_path / "state", a_call())
    assert power() == "ending"
    node.storage_answers = True
    assert power() is None


@pytest.mark.parametrize("act", ["unpause", "pause", "save", "checkpoint"])
def test_nothing_is_done_any_more_with_a_vm_that_is_ending(node: Node, tmp_path: Path, act: str) -> None:
    """As an agent leaves it that was killed after it had begun: frozen, with a signal that waits for it."""
    acts.note_end(VM)
    node.frozen = True
    words = (VM, a_call()) if act in ("pause", "unpause") else (VM, tmp_path / "state", a_call())
    with pytest.raises(NotFoundError):
        getattr(ContainersOnNode(), act)(*words)
    assert power() is None and not acts.is_ending(VM)


def test_an_end_that_was_begun_is_gone_on_with_by_who_looks(node: Node) -> None:
    acts.note_end(VM)
    assert power() == "ending"
    assert node.killed
    assert power() is None


def test_a_start_waits_for_the_end_of_the_one_before(node: Node, tmp_path: Path) -> None:
    node.storage_answers = False
    acts.note_end(VM)
    with pytest.raises(TimedOutError, match="did not end"):
        ContainersOnNode().boot(WANTED, a_call())
    with pytest.raises(TimedOutError, match="did not end"):
        ContainersOnNode().restore(WANTED, tmp_path, a_call())


def test_what_is_forgotten_is_not_ending(node: Node) -> None:
    acts.note_end(VM)
    assert acts.is_known(VM)
    acts.forget(VM)
    assert not acts.is_known(VM)
