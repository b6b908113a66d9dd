"""What libvirt's nodes tell of VMs of which some are locked, so that a question about them is not answered in time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libvirt
import pytest

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.values import power
from rmsplugin.adapters.platform.libvirt.ways import ByUri
from rmsplugin.errors import TimedOutError

VMS = [f"vjob{job}-0" for job in range(1, 6)]


class Libvirt:
    """A node's connection, domains and the way to it; a question about a locked domain ends as the time is over."""

    def __init__(self) -> None:
        self.locked: set[str] = set()

    def call(self, what: str, function: Callable[[Any], Any], timeout_s: float) -> Any:
        return function(self)

    query = call

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
        if self._name in self._on.locked:
            raise TimedOutError(f"{self._name} is locked")
        return {"type": libvirt.VIR_DOMAIN_JOB_NONE}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Libvirt:
    node = Libvirt()
    monkeypatch.setattr(LibvirtNodes, "link", lambda self, name: node)
    return node


def busy(nodes: LibvirtNodes) -> set[str]:
    return {name for name, vm in nodes.list_vms("n1").items() if vm.job_running}


def test_locked_vm_lets_others_look_busy_no_longer_than_one_listing(node: Libvirt) -> None:
    nodes = LibvirtNodes(ByUri("test:///default"), 1.0, 1.0)
    node.locked = {"vjob2-0"}
    assert busy(nodes) >= node.locked
    for _ in range(3):
        assert busy(nodes) == {"vjob2-0"}
    node.locked = {"vjob2-0", "vjob4-0"}
    assert busy(nodes) >= node.locked
    for _ in range(3):
        assert busy(nodes) == {"vjob2-0", "vjob4-0"}


def test_vm_that_was_locked_is_busy_no_longer(node: Libvirt) -> None:
    nodes = LibvirtNodes(ByUri("test:///default"), 1.0, 1.0)
    node.locked = {"vjob1-0", "vjob3-0"}
    for _ in range(3):
        busy(nodes)
    node.locked = {"vjob3-0"}
    busy(nodes)
    assert busy(nodes) == {"vjob3-0"}
    node.locked = set()
    assert busy(nodes) == set()


def test_a_vm_whose_process_is_ending_does_not_run() -> None:
    assert power(libvirt.VIR_DOMAIN_SHUTDOWN, 0, None) is VMPower.ENDING
    assert power(libvirt.VIR_DOMAIN_RUNNING, 1, None) is VMPower.RUNNING
