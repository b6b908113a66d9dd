"""The contract of ``adapters.platform.base.Platform``, on the simulated hypervisor and on libvirt.

The libvirt half needs a minicluster of two nodes and runs in its head's network: ``test_on_libvirt`` of each file
brings one up (or takes the one in $RMSPLUGIN_TEST_MINICLUSTER) and runs this file again in there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.worlds import (
    INSIDE,
    VM,
    A,
    B,
    SimulatedWorld,
    World,
)

from rmsplugin.model.capabilities import Capabilities


def skip_by_capability(test: pytest.Item, can: Capabilities) -> None:
    """Skip a test that needs (``@pytest.mark.needs``) what the platform cannot do: never by the platform's name."""
    for mark in test.iter_markers("needs"):
        for name in mark.args:
            if not getattr(can, name):
                pytest.skip(f"the platform has no {name}")


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if not INSIDE:
        simulated = SimulatedWorld()
        skip_by_capability(request.node, simulated.hypervisor.capabilities)
        yield simulated
        return
    world = LibvirtWorld(Path(INSIDE))
    skip_by_capability(request.node, world.hypervisor.capabilities)
    try:
        yield world
    finally:
        for node in (A, B):
            for name in world.hypervisor.list_vms(node):
                world.hypervisor.stop(node, name, timeout_s=20)
            files = world.nodes.list_files(node)
            for name in files.configs:
                world.nodes.drop_config(node, name)
            for name in files.states | files.partials:
                world.nodes.drop_state(node, name)
        world.close()


@pytest.fixture
def without_checkpoints(world: World) -> Iterator[None]:
    yield
    for number in (1, 2):
        for node in (A, B):
            world.nodes.drop_state(node, VM, checkpoint=number)
