"""A ledger that was restored from a backup knows nothing of what happened since: no running work is ended for that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from scenarios.test_absence import events, running, sleeping, ticks, unharmed
from scenarios.world import World

from rmsplugin.engine import ledger_care
from rmsplugin.engine.reconcile import RmsAct
from rmsplugin.engine.rows import OperationKind
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


def restored(world: World, meanwhile: Callable[[], object]) -> None:
    """The engine's ledger is backed up, something happens, and the operator goes back to the backup."""
    ledger = world._ledger_path
    backup = ledger_care.backup(ledger)
    meanwhile()
    world.life.dead = True
    world.close()
    for end in ("", "-wal", "-shm"):
        Path(f"{ledger}{end}").unlink(missing_ok=True)
    shutil.copy(backup, ledger)
    world.start_engine()
    world.context.ledger.plans.clear_pause()


def running_since(world: World, jobs: int = 1) -> list[int]:
    """Jobs that wait in the ledger, and run."""
    world.context.ledger.plans.set_pause("root")
    waiting = [world.submit(vms=1, memory_mib=128) for _ in range(jobs)]
    ticks(world, 2)
    assert {world.state(job) for job in waiting} == {S.WAITING}

    def run() -> None:
        world.context.ledger.plans.clear_pause()
        for job in waiting:
            world.until(job, S.RUNNING)

    restored(world, run)
    return waiting


def resumed_since(world: World, meanwhile: Callable[[int], object] = lambda job: None) -> int:
    """A job that sleeps in the ledger, and runs on another node."""
    job = sleeping(world)
    was = world.context.ledger.vms(job)[0].image_node

    def resume() -> None:
        world.ask(job, K.RESUME, next(node for node in world.sizes if node != was))
        world.until(job, S.RUNNING)
        ticks(world, 2)
        meanwhile(job)

    restored(world, resume)
    return job


def confirm(world: World, *jobs: int) -> None:
    world.cycle.brake.confirm(map(str, jobs))


def test_jobs_that_run_since_run_on_until_an_operator_says_otherwise(world: World) -> None:
    jobs = running_since(world, 2)
    before = [world.hypervisor.where(f"vjob{job}-0") for job in jobs]
    ticks(world)
    assert [world.hypervisor.where(f"vjob{job}-0") for job in jobs] == before
    assert {world.rms.job(job).restarts for job in jobs} == {0}
    assert [(held.job_id, held.directive.what, held.proved) for held in world.cycle.brake.held] == [
        (job, RmsAct.REQUEUE, False) for job in jobs
    ]
    confirm(world, jobs[0])
    ticks(world)
    assert [world.rms.job(job).restarts for job in jobs] == [1, 0]
    world.until(jobs[0], S.RUNNING)
    assert len(world.hypervisor.where(f"vjob{jobs[0]}-0")) == 1


def test_nothing_is_placed_beside_vms_that_the_ledger_does_not_know(world: World) -> None:
    [job] = running_since(world)
    [node] = world.hypervisor.where(f"vjob{job}-0")
    new = world.submit(vms=1, memory_mib=128, constraints={"nodes": node})
    ticks(world)
    assert world.state(new) is S.WAITING
    assert world.rms.job(new).gated, "nobody tried to start it"
    world.rms.finish(job)
    world.until(new, S.RUNNING)


def test_what_runs_since_is_removed_when_its_job_ends(world: World) -> None:
    [job] = running_since(world)
    ticks(world, 2)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    ticks(world, 2)
    assert world.leftovers() == []


def test_vm_whose_job_waits_in_slurm_too_is_ended(world: World) -> None:
    [job] = running_since(world)
    world.rms.requeue(job)
    world.until(job, S.RUNNING)
    assert events(world, "stray-stopped")
    assert len(world.hypervisor.where(f"vjob{job}-0")) == 1


def test_vjob_that_was_resumed_since_goes_on_with_its_vms(world: World) -> None:
    job = resumed_since(world)
    [node] = world.hypervisor.where(f"vjob{job}-0")
    world.until(job, S.RUNNING)
    ticks(world)
    unharmed(world, job)
    assert world.hypervisor.where(f"vjob{job}-0") == [node]
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def test_vjob_whose_vms_run_is_not_resumed_from_its_file(world: World) -> None:
    job = resumed_since(world, lambda job: world.rms.suspend(job))
    [node] = world.hypervisor.where(f"vjob{job}-0")
    world.context.ledger.update_vjob(job, resumes=True)
    ticks(world)
    world.ask(job, K.RESUME)
    ticks(world)
    assert world.hypervisor.where(f"vjob{job}-0") == [node]
    assert [(held.job_id, held.directive.what, held.proved) for held in world.cycle.brake.held] == [
        (job, K.RESTART, False)
    ]
    confirm(world, job)
    ticks(world)
    assert world.state(job) is S.RUNNING
    assert len(world.hypervisor.where(f"vjob{job}-0")) == 1


@pytest.mark.parametrize("then", [S.WAITING, S.RUNNING])
def test_vjob_that_was_suspended_since_keeps_its_saved_state(world: World, then: VJobState) -> None:
    if then is S.WAITING:
        world.context.ledger.plans.set_pause("root")
        job = world.submit(vms=1, memory_mib=128)
        ticks(world, 2)
    else:
        job = running(world)

    def suspend() -> None:
        world.context.ledger.plans.clear_pause()
        world.until(job, S.RUNNING)
        world.ask(job, K.SUSPEND)
        world.until(job, S.SLEEPING)

    restored(world, suspend)
    states = [path for node in world.sizes for path in world.files.paths(node)]
    assert states
    for _ in range(4):
        world.tick(10)
    assert [path for node in world.sizes for path in world.files.paths(node)] == states
    assert (world.state(job), world.rms.job(job).restarts) == (then, 0)
    assert [(held.job_id, held.proved) for held in world.cycle.brake.held] == [(job, False)]


def test_lost_states_of_many_are_held_back(world: World) -> None:
    jobs = [sleeping(world) for _ in range(4)]
    for job in jobs:
        [vm] = world.context.ledger.vms(job)
        world.files.damage(vm.image_node, f"/store/{vm.name}.state")
    world.tick()
    for job in jobs:
        world.ask(job, K.RESUME)
    ticks(world)
    assert {held.job_id for held in world.cycle.brake.held} == {*jobs}
    assert {world.context.ledger.vjob(job).losses for job in jobs} == {0}
    confirm(world, *jobs)
    for job in jobs:
        world.until(job, S.RUNNING)
    assert {world.context.ledger.vjob(job).losses for job in jobs} == {1}
