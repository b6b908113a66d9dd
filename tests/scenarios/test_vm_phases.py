"""The engine takes every edge of the table of a VM's phases, and no other one. `world.py` looks at each commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scenarios import test_borrowed_rooms as rooms
from scenarios.test_checkpoints import checkpointed, with_checkpoints
from scenarios.test_states import half_lost, mend
from scenarios.world import NODES, World

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.engine.ledger import ledger as module
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import NotFoundError, OperationFailedError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import TRANSITIONS, VMPhase, check_phase

S, K, P = VJobState, OperationKind, VMPhase
Edge = tuple[VMPhase | None, VMPhase]


def started(world: World) -> None:
    world.running()


def suspended(world: World) -> None:
    world.sleeping(vms=2)


def resumed(world: World) -> None:
    job = world.sleeping(vms=2)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)


def migrated(world: World) -> None:
    job = world.running()
    world.ask(job, K.MIGRATE, next(node for node in NODES if node != world.host(job)))
    world.until(job, S.RUNNING)


def not_sealed(world: World) -> None:
    """Of two VMs the first one is sealed, and the file of the other is not there: both are brought back."""
    job = world.running(vms=2)
    seal, failed = world.nodes.seal, []

    def refuse_one(node: str, vm: str, **options: Any) -> Digest:
        if vm.endswith("-1") and not failed:
            failed.append(vm)
            raise NotFoundError("no state to seal")
        return seal(node, vm, **options)

    world.nodes.seal = refuse_one  # type: ignore[method-assign]
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)


def moved_to_another_store(world: World) -> None:
    rooms.test_saved_states_do_not_stay_on_a_node_whose_store_keeps_nothing(world._ledger_path.parent / "other")


def resumed_after_a_copy_broke_off(world: World) -> None:
    """The end of the copy could not be recorded: the ledger's disk was full, say."""
    job = world.sleeping()
    [vm] = world.context.ledger.vms(job)
    to = next(node for node in NODES if node != vm.image_node)
    world.context.ledger.enter_phase(vm.name, P.MOVING, destination=to)
    world.ask(job, K.RESUME, vm.image_node)
    world.until(job, S.RUNNING)


def not_restored(world: World) -> None:
    job = world.sleeping(vms=2)
    world.hypervisor.fail_next("restore", OperationFailedError("no"), vm=f"vjob{job}-1")
    world.ask(job, K.RESUME)
    world.until(job, S.SLEEPING)


def taken_back(world: World) -> None:
    job = half_lost(world)
    mend(world)
    world.requests().put_aside.take_back(0, 1)
    world.until(job, S.SLEEPING)


#: The state of a vjob whose VMs are on the way to a phase, and are lost there.
WAYS: dict[VMPhase, tuple[list[VMPhase], list[VJobState]]] = {
    P.LIVE: ([], []),
    P.MIGRATING: ([P.MIGRATING], []),
    P.SEALING: ([P.SEALING], [S.SUSPENDING]),
    P.SEALED: ([P.SEALING, P.SEALED], [S.SUSPENDING]),
    P.SAVED: ([P.SEALING, P.SEALED, P.SAVED], [S.SUSPENDING, S.SLEEPING]),
    P.MOVING: ([P.SEALING, P.SEALED, P.SAVED, P.MOVING], [S.SUSPENDING, S.SLEEPING]),
    P.RESTORING: ([P.SEALING, P.SEALED, P.SAVED, P.RESTORING], [S.SUSPENDING, S.SLEEPING, S.RESUMING]),
}


def lost_in(phase: VMPhase) -> Callable[[World], None]:
    """VMs are lost in ``phase``, as a killed engine would have left them in the ledger, and have a checkpoint."""

    def lost(world: World) -> None:
        job, ledger = checkpointed(world, vms=1), world.context.ledger
        [vm] = ledger.vms(job)
        other = next(node for node in NODES if node != vm.host)
        places = {"image_node": vm.host, "image_blake2b": "d", "destination": other, "host": vm.host}
        phases, states = WAYS[phase]
        with ledger.transaction():
            for state in states:
                ledger.transition(job, state, "for a test")
            for each in phases:
                ledger.enter_phase(vm.name, each, **places)
        world.hypervisor.kill_vm(vm.name)
        world.executor.begin(job, K.RESTART, "lost: for a test")
        world.until(job, S.SLEEPING, S.RUNNING)
        assert ledger.vjob(job).returns == 1

    return lost


BY: dict[Edge, Callable[[World], None]] = {
    (None, P.PLACED): started,
    (P.PLACED, P.BOOTING): started,
    (P.BOOTING, P.LIVE): started,
    (P.LIVE, P.MIGRATING): migrated,
    (P.MIGRATING, P.LIVE): migrated,
    (P.LIVE, P.SEALING): suspended,
    (P.SEALING, P.SEALED): suspended,
    (P.SEALED, P.SAVED): suspended,
    (P.SEALING, P.LIVE): not_sealed,
    (P.SEALED, P.LIVE): not_sealed,
    (P.SAVED, P.MOVING): moved_to_another_store,
    (P.MOVING, P.SAVED): moved_to_another_store,
    (P.SAVED, P.RESTORING): resumed,
    (P.RESTORING, P.LIVE): resumed,
    (P.MOVING, P.RESTORING): resumed_after_a_copy_broke_off,
    (P.RESTORING, P.SAVED): not_restored,
    (None, P.SAVED): taken_back,
    **{(phase, P.LOST): lost_in(phase) for phase in WAYS},
    (P.LOST, P.SAVED): lost_in(P.LIVE),
}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[Edge]:
    """The edges that engines have taken."""
    found: set[Edge] = set()

    def check(vm: str, source: VMPhase | None, target: VMPhase) -> str:
        found.add((source, target))
        return check_phase(vm, source, target)

    monkeypatch.setattr(module, "check_phase", check)
    return found


@pytest.fixture
def world(request: pytest.FixtureRequest, directory: Path) -> Iterator[World]:
    world = with_checkpoints(World(directory))
    (directory / "other").mkdir()
    yield world
    assert world.hypervisor.violations == []
    world.close()


@pytest.mark.parametrize("edge", TRANSITIONS, ids=lambda edge: "-".join(str(phase or "new") for phase in edge))
def test_the_engine_takes_every_edge_of_the_table_and_no_other(world: World, taken: set[Edge], edge: Edge) -> None:
    BY[edge](world)
    assert edge in taken
    assert taken <= TRANSITIONS.keys()
