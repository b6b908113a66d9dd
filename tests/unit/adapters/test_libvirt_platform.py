"""A restore on libvirt: what a node refuses to an engine whose turn is over is no damaged state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from rmsplugin.adapters.platform.base import KernelImage, VMSpec
from rmsplugin.adapters.platform.libvirt.nodes import LibvirtNodes
from rmsplugin.adapters.platform.libvirt.platform import LibvirtPlatform
from rmsplugin.adapters.platform.libvirt.ways import ByUri
from rmsplugin.errors import CorruptStateError, DeposedError, OperationFailedError, RmspluginError

SPEC = VMSpec(
    name="vjob7-0",
    uuid="00000000-0000-4000-8000-000000000007",
    cpus=1,
    memory_mib=96,
    mac="52:54:00:00:00:07",
    bridge="br0",
    image=KernelImage("/vmlinux", "/initrd", ""),
    config_path="/vm/vjob7-0.config",
    console_log="/vm/vjob7-0.console",
)


class Failing:
    """A node without VMs, of which each longer call fails."""

    def __init__(self, error: RmspluginError) -> None:
        self._error = error

    def start(self, what: str, function: Callable[[Any], Any]) -> Failing:
        return self

    def wait(self, timeout_s: float) -> bool:
        return True

    def result(self) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("told", "raised"),
    [
        (DeposedError("n1: the turn of this engine is over"), DeposedError),
        (OperationFailedError("there is no magic"), CorruptStateError),
    ],
    ids=["an engine that is deposed", "a head that is damaged"],
)
def test_a_state_whose_head_is_not_read_is_corrupt_unless_the_engine_is_deposed(
    monkeypatch: pytest.MonkeyPatch, told: RmspluginError, raised: type[RmspluginError]
) -> None:
    monkeypatch.setattr(LibvirtNodes, "find", lambda self, node, name: None)
    monkeypatch.setattr(LibvirtNodes, "link", lambda self, node: Failing(told))
    platform = LibvirtPlatform(ByUri("test:///default"), domain_type="qemu", machine_type="pc-q35-7.2")
    with contextlib.closing(platform), pytest.raises(raised, match=str(told)) as found:
        platform.restore("n1", SPEC, "/store/vjob7-0.state", timeout_s=1)
    assert type(found.value) is raised
