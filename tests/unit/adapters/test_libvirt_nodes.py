"""What libvirt's nodes tell of VMs of which some are locked, so that a question about them is not answered in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import libvirt
import pytest
from patience import PATIENCE_S

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.platform.libvirt.link import Call
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.values import power
from rmsplugin.adapters.platform.libvirt.ways import ByUri
from rmsplugin.errors import TimedOutError

VMS = [f"vjob{job}-0" for job in range(1, 6)]


class Libvirt:
    """A node's connection, domains and the way to it; a question about a locked domain is answered when it is not."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.asked: list[str] = []  # VMs, for what is under way in them
        self.changed = threading.Condition()
        self.hanging: list[str] = []  # VMs whose question waits
        self.has_turn = True  # whether the thread of a call begins in time
        self.late: list[Callable[[], object]] = []  # calls whose threads have not begun

    def lock(self, *names: str) -> None:
        """Have these be locked, and no others."""
        with self.changed:
            self.locked = set(names)
            self.changed.notify_all()

    def call(self, what: str, function: Callable[[Any], Any], timeout_s: float) -> Any:
        if not self.has_turn:
            self.late.append(lambda: function(self))
            raise TimedOutError(f"{what}: no answer within {timeout_s:g} s")
        before, call = len(self.hanging), Call(what, lambda: function(self))
        while not call.wait(0.01):
            if len(self.hanging) > before:
                raise TimedOutError(f"{what}: no answer within {timeout_s:g} s")
        return call.result()

    def query(self, what: str, function: Callable[[Any], Any], timeout_s: float) -> Any:
        return function(self)

    def getAllDomainStats(self, stats: int, flags: int) -> list[tuple[Domain, dict[str, int]]]:
        return [
            (self.lookupByName(name), {"state.state": libvirt.VIR_DOMAIN_RUNNING, "state.reason": 1}) for name in VMS
        ]

    def lookupByName(self, name: str) -> Domain:
        return Domain(self, name)


class Domain:
    def __init__(self, on: Libvirt, name: str) -> None:
        self._on, self._name = on, name

    def name(self) -> str:
        return self._name

    def UUIDString(self) -> str:
        return f"uuid of {self._name}"

    def jobStats(self) -> dict[str, int]:
        self._on.asked.append(self._name)
        with self._on.changed:
            if self._name in self._on.locked:
                self._on.hanging.append(self._name)
                self._on.changed.wait_for(lambda: self._name not in self._on.locked, PATIENCE_S)
                self._on.hanging.remove(self._name)
        return {"type": libvirt.VIR_DOMAIN_JOB_NONE}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Libvirt]:
    node = Libvirt()
    monkeypatch.setattr(LibvirtNodes, "link", lambda self, name: node)
    yield node
    node.lock()


def busy(nodes: LibvirtNodes) -> set[str]:
    return {name for name, vm in nodes.list_vms("n1").items() if vm.job_running}


def become_busy(nodes: LibvirtNodes, names: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while busy(nodes) != names:
        assert time.monotonic() < deadline


def test_locked_vm_lets_others_look_busy_no_longer_than_one_listing(node: Libvirt) -> None:
    nodes = LibvirtNodes(ByUri("test:///default"), 1.0, 1.0)
    node.lock("vjob2-0")
    assert busy(nodes) >= node.locked
    for _ in range(3):
        assert busy(nodes) == {"vjob2-0"}
    node.lock("vjob2-0", "vjob4-0")
    assert busy(nodes) >= node.locked
    for _ in range(3):
        assert busy(nodes) == {"vjob2-0", "vjob4-0"}


def test_vm_that_was_locked_is_busy_no_longer(node: Libvirt) -> None:
    nodes = LibvirtNodes(ByUri("test:///default"), 1.0, 1.0)
    node.lock("vjob1-0", "vjob3-0")
    for _ in range(3):
        busy(nodes)
    node.lock("vjob3-0")
    become_busy(nodes, {"vjob3-0"})
    node.lock()
    become_busy(nodes, set())


def test_a_locked_vm_is_not_asked_again_before_it_has_answered(node: Libvirt) -> None:
    nodes = LibvirtNodes(ByUri("test:///default"), 1.0, 1.0)
    node.lock("vjob2-0")
    busy(nodes)
    for _ in range(6):
        assert busy(nodes) == {"vjob2-0"}
    assert node.asked.count("vjob2-0") == 1, "libvirt serves five questions of one connection at a time"
    node.lock()
    become_busy(nodes, set())
    assert node.asked.count("vjob2-0") == 2


@pytest.mark.parametrize("begins", [False, True], ids=["never", "too late"])
def test_a_question_that_had_no_turn_in_time_is_asked_at_the_next_look(node: Libvirt, begins: bool) -> None:
    """On a loaded machine the thread of a call begins late; or not at all, as its connection was given up meanwhile."""
    nodes = LibvirtNodes(ByUri("test:///default"), 1.0, 1.0)
    node.has_turn = False
    assert busy(nodes) == set(VMS)
    node.has_turn = True
    for call in node.late if begins else ():
        call()
    assert node.asked == [], "nobody waits for the answer"
    assert busy(nodes) == set()


def test_a_vm_whose_process_is_ending_does_not_run() -> None:
    assert power(libvirt.VIR_DOMAIN_SHUTDOWN, 0, None) is VMPower.ENDING
    assert power(libvirt.VIR_DOMAIN_RUNNING, 1, None) is VMPower.RUNNING
