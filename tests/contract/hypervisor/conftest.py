"""The contract of ``adapters.platform.base.Platform``, on the simulated hypervisor, on libvirt and on podman.

The real halves need a minicluster of two nodes and run in its head's network: ``test_on_libvirt`` and
``test_on_podman`` of each file bring one up (or take the one in $RMSPLUGIN_TEST_MINICLUSTER, of libvirt, or
$RMSPLUGIN_TEST_CONTAINERS) and run the file again in there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.on_podman import PodmanWorld
from contract.hypervisor.worlds import (
    IN_CONTAINERS,
    INSIDE,
    VM,
    A,
    B,
    SimulatedWorld,
    World,
)

from rmsplugin.model.capabilities import EVERYTHING, PODMAN, Capabilities


def skip_by_capability(test: pytest.Item, can: Capabilities) -> None:
    """Skip a test that needs (``@pytest.mark.needs``) what the platform cannot do: never by the platform's name."""
    for mark in test.iter_markers("needs"):
        for name in mark.args:
            if not getattr(can, name):
                pytest.skip(f"the platform has no {name}")


@pytest.fixture(params=["real"] if INSIDE else ["simulated", "simulated: as podman"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if not INSIDE:
        simulated = SimulatedWorld(PODMAN if request.param.endswith("podman") else EVERYTHING)
        skip_by_capability(request.node, simulated.hypervisor.capabilities)
        yield simulated
        return
    world = PodmanWorld(Path(INSIDE)) if IN_CONTAINERS else LibvirtWorld(Path(INSIDE))
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
