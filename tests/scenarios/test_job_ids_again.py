"""Slurm gives out ids again after its state went back: the new job is not taken for the old one (decision 0053)."""

from __future__ import annotations

import pytest
from scenarios.test_absence import ticks
from scenarios.test_old_ledger import confirm, states
from scenarios.world import World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.errors import RefusedError
from rmsplugin.model.constraints import Constraints
from rmsplugin.model.vjob import Geometry, VJobState

S = VJobState


def again(world: World, job: int, **options: object) -> None:
    """An older StateSaveLocation is restored, and the id of the job is the next one that Slurm gives out."""
    if job in {each.job_id for each in world.rms.snapshot().jobs}:
        world.rms.forget(job)
    world.rms._last_id = job - 1
    world.pass_time(5)
    assert world.submit(**{"vms": 1, "memory_mib": 128, **options}) == job


def script(**geometry: object) -> str:
    wanted = Geometry(1, 1, 128, constraints=Constraints.parse())
    return f"#!/usr/bin/rmsplugin-job {wanted}\n#!/bin/sh\n{geometry.get('body', 'true')}\n"


@pytest.mark.parametrize("options", [{}, {"memory_mib": 256}], ids=["the same script", "another script"])
def test_job_with_the_id_of_a_sleeping_vjob_is_held_and_the_vjob_left_alone(
    world: World, options: dict[str, int]
) -> None:
    job = world.sleeping()
    world.context.ledger.update_vjob(job, resumes=True)
    files = states(world)
    again(world, job, **options)
    ticks(world, 8)
    assert (world.rms.job(job).state, world.rms.job(job).held) == (JobState.PENDING, True)
    assert (world.state(job), states(world)) == (S.SLEEPING, files)
    assert "its id is that of an earlier job" in world.events("not-a-vjob")[0]
    assert [held.job_id for held in world.cycle.brake.held] == [job]
    with pytest.raises(RefusedError, match="another job"):
        world.requests().resume(0, str(job), "")


def test_end_of_the_new_job_is_not_the_end_of_the_old_one(world: World) -> None:
    job = world.sleeping()
    files = states(world)
    again(world, job)
    ticks(world, 3)
    world.rms.cancel(job)
    ticks(world, 5)
    assert (world.state(job), states(world)) == (S.SLEEPING, files)


def test_script_of_a_running_vjob_is_not_shown_to_the_new_jobs_wrapper(world: World) -> None:
    job = world.running()
    [vm] = world.context.ledger.vms(job)
    again(world, job, gated=False)
    ticks(world, 3)
    answer = world.requests().access(0, str(job), wrapper=True)
    assert (answer["state"], "vms" in answer) == ("waiting", False)
    assert world.hypervisor.where(vm.name) == [vm.host]
    assert world.rms.job(job).held


def test_new_job_runs_once_the_old_ones_vjob_has_ended_and_it_is_released(world: World) -> None:
    job = world.sleeping()
    old = world.context.ledger.vjob(job)
    again(world, job, memory_mib=256)
    ticks(world, 3)
    confirm(world, job)
    ticks(world, 3)
    assert states(world) == []
    world.rms.release(job)
    world.until(job, S.RUNNING)
    new = world.context.ledger.vjob(job)
    assert (new.geometry.memory_mib, new.script_started, new.submitted > old.submitted) == (256, False, True)


def test_new_job_with_the_id_of_one_that_only_waited_takes_its_place(world: World) -> None:
    world.context.ledger.plans.set_pause("root")
    job = world.submit(vms=1, memory_mib=128)
    ticks(world, 2)
    again(world, job, memory_mib=256)
    world.context.ledger.plans.clear_pause()
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).geometry.memory_mib == 256
    assert not world.rms.job(job).held


@pytest.mark.parametrize("down", [False, True], ids=["the engine sees it", "the engine is down"])
@pytest.mark.parametrize("asleep", [False, True], ids=["running", "sleeping"])
def test_requeued_job_is_the_same(world: World, down: bool, asleep: bool) -> None:
    job = world.sleeping() if asleep else world.running()
    world.context.ledger.update_vjob(job, resumes=True)
    for _ in range(2):
        world.tick()
        if down:
            world.life.dead = True
        world.rms.requeue_by_admin(job)
        world.pass_time(5)
        if down:
            world.start_engine()
        world.until(job, S.RUNNING)
        ticks(world, 6)
        assert world.rms.job(job).state is JobState.RUNNING
    assert world.rms.job(job).restarts == 2
    assert not world.events("not-a-vjob")
    assert world.context.ledger.vjob(job).losses == 0


def test_other_job_that_was_requeued_while_the_engine_was_down_is_known_by_its_script(world: World) -> None:
    job = world.sleeping()
    files = states(world)
    world.life.dead = True
    again(world, job, gated=False, script=script(body="false"))
    world.pass_time(5)
    world.rms.snapshot()
    world.rms.requeue_by_admin(job)
    world.pass_time(5)
    world.start_engine()
    ticks(world, 4)
    assert world.rms.job(job).restarts == 1
    assert (world.rms.job(job).held, world.state(job), states(world)) == (True, S.SLEEPING, files)


def test_what_was_read_of_a_job_says_nothing_of_another_with_its_id(world: World) -> None:
    job = world.rms.submit(script="#!/bin/sh\ntrue\n")
    ticks(world, 2)
    assert world.rms.job(job).held
    again(world, job)
    world.until(job, S.RUNNING)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    world.rms.forget(job)
    world.tick()
    assert world.cycle._first_sight._read == {}


def test_elements_of_arrays_are_the_same_jobs_before_and_after_they_split_off(world: World) -> None:
    array = world.submit(vms=1, memory_mib=128, array=(1, 2, 3), array_limit=1)
    for _ in range(3):
        ticks(world, 4)
        [runs] = [vjob for vjob in world.context.ledger.vjobs() if vjob.state is S.RUNNING]
        world.rms.requeue_by_admin(runs.job_id)
        ticks(world, 8)
        assert world.rms.job(runs.job_id).state is JobState.RUNNING
        world.rms.finish(runs.job_id)
        ticks(world, 4)
    ended = {vjob.display_id for vjob in world.context.ledger.vjobs(ended=True) if vjob.state is S.TERMINATED}
    assert ended == {f"{array}_{number}" for number in (1, 2, 3)}
    assert not world.events("not-a-vjob")
