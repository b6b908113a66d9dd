"""A ledger that was restored from a backup knows nothing of what happened since: no running work is ended for that."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from scenarios.test_absence import ticks, unharmed
from scenarios.world import World

from rmsplugin.engine.ledger import ledger_care
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.reconcile.reconcile import RmsAct
from rmsplugin.errors import RefusedError, UnavailableError
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
    job = world.sleeping()
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
    assert world.events("stray-stopped")
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
        job = world.running()

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


def suspended_since(world: World) -> tuple[int, list[str]]:
    """A job that runs in the ledger, and sleeps; and the files of its saved states."""
    job = world.running()

    def suspend() -> None:
        world.ask(job, K.SUSPEND)
        world.until(job, S.SLEEPING)

    restored(world, suspend)
    return job, states(world)


def states(world: World) -> list[str]:
    return [path for node in world.sizes for path in world.files.paths(node)]


@pytest.mark.parametrize("looks", [0, 1, 2, 5])
def test_nothing_by_hand_touches_a_vjob_that_is_held_back(world: World, looks: int) -> None:
    job, files = suspended_since(world)
    for _ in range(looks):
        world.tick(10)
    asked = world.requests()
    for act in (
        lambda: asked.suspend(0, str(job)),
        lambda: asked.resume(0, str(job), ""),
        lambda: asked.migrate(0, str(job), "", ""),
    ):
        with pytest.raises(UnavailableError if not world.executor.held_back.compared else RefusedError):
            act()
        world.tick(10)
    assert (world.state(job), states(world), world.rms.job(job).restarts) == (S.RUNNING, files, 0)


def test_nothing_of_the_engines_touches_a_vjob_that_is_held_back(world: World) -> None:
    job, files = suspended_since(world)
    [vm] = world.context.ledger.vms(job)
    world.rms.set_node(vm.host, draining=True)
    for _ in range(6):
        world.submit(vms=2, memory_mib=512, priority=100)
        world.tick(10)
    assert (world.state(job), states(world), world.rms.job(job).restarts) == (S.RUNNING, files, 0)
    assert [kind for kind, _ in begun(world, job)] == []


def begun(world: World, job: int) -> list[tuple[str, str]]:
    """The operations on a vjob since the ledger was restored, and who asked for them."""
    rows = world.context.ledger._rows("select kind, requested_by from operations where job_id = ?", [job])
    return [(row["kind"], row["requested_by"]) for row in rows if row["kind"] != "start"]


def test_saved_states_that_the_ledger_does_not_know_are_taken_over_when_an_operator_confirms_them(world: World) -> None:
    job, _ = suspended_since(world)
    for _ in range(3):
        world.tick(10)
    [held] = world.cycle.brake.held
    assert (held.job_id, held.directive.what, held.proved) == (job, K.SUSPEND, False)
    assert "saved states of them that the ledger does not know" in held.directive.reason
    boots = [call for call in world.hypervisor.calls if call[0] == "boot"]
    confirm(world, job)
    world.tick(10)
    assert world.events("taken-over")
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.script_started, world.rms.job(job).restarts) == (0, True, 0)
    assert [call for call in world.hypervisor.calls if call[0] == "boot"] == boots
    assert len(world.hypervisor.where(f"vjob{job}-0")) == 1


def test_state_is_offered_where_the_backup_was_made_during_the_suspend(world: World) -> None:
    job = world.running()
    world.rms.suspend(job)
    seen = world.context.ledger

    def begin() -> None:
        world.executor.intend(job, K.SUSPEND, "asked")

    begin()
    backup = ledger_care.backup(world._ledger_path)
    [operation] = seen.running_operations()
    world.executor.submit(operation)
    world.until(job, S.SLEEPING)
    files = states(world)
    world.life.dead = True
    world.close()
    for end in ("", "-wal", "-shm"):
        Path(f"{world._ledger_path}{end}").unlink(missing_ok=True)
    shutil.copy(backup, world._ledger_path)
    world.start_engine()
    world.context.ledger.plans.clear_pause()
    for _ in range(4):
        world.tick(10)
    assert states(world) == files
    [held] = world.cycle.brake.held
    assert (held.directive.what, held.directive.takes_over) == (K.SUSPEND, True)
    confirm(world, job)
    world.until(job, S.RUNNING)
    assert (world.context.ledger.vjob(job).losses, world.rms.job(job).restarts) == (0, 0)


def test_saved_state_that_is_there_twice_is_not_offered(world: World) -> None:
    job, _ = suspended_since(world)
    [vm] = world.context.ledger.vms(job)
    other = next(node for node in world.sizes if node != vm.host)
    state = world.files.get(vm.host, f"/store/{vm.name}.state")
    assert state is not None
    world.files.mark(other, "/store", "0" * 32)
    world.files.put(other, f"/store/{vm.name}.state", state)
    for _ in range(3):
        world.tick(10)
    [held] = world.cycle.brake.held
    assert (held.directive.what, held.proved) == (K.RESTART, False)


def test_lost_states_of_many_are_held_back(world: World) -> None:
    jobs = [world.sleeping() for _ in range(4)]
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


def test_vms_of_vjobs_that_a_lost_ledger_knew_are_left_alone_and_told(world: World) -> None:
    jobs: list[int] = []

    def run_and_end() -> None:
        jobs.append(world.running(vms=1, memory_mib=128))

    restored(world, run_and_end)
    [job] = jobs
    [node] = world.hypervisor.where(f"vjob{job}-0")
    world.rms.forget(job)
    ticks(world, 2)
    assert world.hypervisor.where(f"vjob{job}-0") == [node]
    [problem] = [each for each in world.cycle.report.problems if "does not know the vjobs" in each]
    assert f"of 1 VMs, which are left alone: vjob{job}-0 on {node}. Was it lost" in problem
