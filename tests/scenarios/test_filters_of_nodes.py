"""Where nodes filter VMs by themselves, each does before a VM is created there, and no longer than it has one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios.world import NODES, World

from rmsplugin.adapters.nodes.base import Guard
from rmsplugin.adapters.platform.base import OUR_FILTER
from rmsplugin.engine.ledger.rows import OperationKind, VMRow
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


class Looked:
    """What was created on nodes, and whether these filtered it by then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.created: list[str] = []
        self.unfiltered: list[tuple[str, str, str]] = []
        for name in ("boot", "restore", "migrate"):
            setattr(world.hypervisor, name, self._looking(name))

    def _looking(self, name: str):  # type: ignore[no-untyped-def]
        real = getattr(self.world.hypervisor, name)

        def call(*words, **options):  # type: ignore[no-untyped-def]
            vm, node = (words[0], words[2]) if name == "migrate" else (words[1].name, words[0])
            self.created.append(name)
            if self.world.nodes.guards.get((node, vm)) != guard_of(self.row(vm)):
                self.unfiltered.append((name, node, vm))
            return real(*words, **options)

        return call

    def row(self, name: str) -> VMRow:
        return next(
            vm
            for vjob in self.world.context.ledger.vjobs()
            for vm in self.world.context.ledger.vms(vjob.job_id)
            if vm.name == name
        )


def guard_of(vm: VMRow) -> Guard:
    return Guard(vm.mac, vm.address)


@pytest.fixture(params=[False, True], ids=["booted", "from templates"])
def filtered(directory: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(directory, templates=request.param)
    yield world
    world.close()


def test_each_node_filters_a_vm_before_it_is_there_and_as_long_as_it_is(filtered: World) -> None:
    world, looked = filtered, Looked(filtered)
    job = world.running(vms=1)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    (vm,) = world.context.ledger.vms(job)
    other = next(node for node in NODES if node != vm.host)
    world.ask(job, K.MIGRATE, other)
    world.until(job, S.RUNNING)
    assert {"restore", "migrate"} <= set(looked.created)
    assert looked.unfiltered == []
    vms = world.context.ledger.vms(job)
    assert vms[0].host == other
    assert world.nodes.guards == {(each.host, each.name): guard_of(each) for each in vms}


def test_a_vm_that_its_node_cannot_filter_is_not_created(filtered: World) -> None:
    def refuse(node: str, vm: str, guard: Guard | None) -> None:
        assert guard is not None
        raise OperationFailedError(f"{node}: the interface of {vm} cannot be filtered")

    looked = Looked(filtered)
    filtered.nodes._guard = refuse  # type: ignore[method-assign]
    filtered.submit()
    for _ in range(10):
        filtered.tick()
    assert looked.created == []


@pytest.mark.parametrize("chosen", [OUR_FILTER, "", "of-the-site"])
def test_nodes_are_not_asked_where_libvirt_filters_or_nobody(directory: Path, chosen: str) -> None:
    world = World(directory, network_filter=chosen)
    world.running(vms=2)
    assert world.nodes.guards == {}
    world.close()
