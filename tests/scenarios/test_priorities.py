"""The queue while vjobs run and sleep: Slurm computes no priorities of them, and the engine goes on by its rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios.world import World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.capacity.priorities import priority_of
from rmsplugin.errors import RefusedError
from rmsplugin.model.priority import Weights
from rmsplugin.model.vjob import VJobState

S = VJobState
LONG_S = 400.0
#: What its age gives to a job in that time.
AGED = 4000


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    """A world whose engine decides by `mixed`: in the order of the queue, which priorities make."""
    world = World(directory, urgent=True, policy="mixed")
    world.rms.priorities.weights = Weights(age=100_000, max_age_s=10_000, share=100_000)
    world.rms.priorities.shares["nobody"] = 0.25
    yield world
    assert world.hypervisor.violations == []
    world.close()


def full(world: World, **options: object) -> int:
    """Submit a vjob that takes all nodes."""
    return world.submit(**{"vms": 3, "cpus": 2, "memory_mib": 256, **options})  # type: ignore[arg-type]


def running(world: World, **options: object) -> int:
    job = full(world, **options)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    return job


def asleep(world: World) -> tuple[int, int]:
    """A vjob that the engine suspended, and the urgent one that it made way for."""
    job = running(world)
    world.pass_time(LONG_S)  # what has just started is exempt
    urgent = full(world, partition="urgent")
    world.until(urgent, S.RUNNING, ticks=200)
    assert world.state(job) is S.SLEEPING
    return job, urgent


def priority(world: World, job: int) -> int:
    seen = world.cycle.seen
    assert seen is not None
    return priority_of(seen, world.context.ledger.vjob(job), seen.jobs.get(job))


def end(world: World, job: int) -> None:
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)


def test_a_sleeping_vjob_is_not_overtaken_by_a_newer_one_of_its_user(world: World) -> None:
    job, urgent = asleep(world)
    world.rms.priorities.shares["nobody"] = 0.5  # its share rises, and with it the priority of all that wait
    newer = full(world)
    world.tick()
    end(world, urgent)
    world.until(job, S.RUNNING, ticks=200)
    assert world.state(newer) is S.WAITING


def test_age_goes_on_counting_in_sleep(world: World) -> None:
    job, _ = asleep(world)
    before = priority(world, job)
    world.pass_time(LONG_S)
    world.tick()
    assert abs(priority(world, job) - before - AGED) <= 200


def test_another_user_with_a_better_share_comes_first_as_in_slurm(world: World) -> None:
    job, urgent = asleep(world)
    world.rms.priorities.shares |= {"nobody": 0.1, "daemon": 0.9}
    other = full(world, user="daemon", uid=1)
    world.tick()
    end(world, urgent)
    world.until(other, S.RUNNING, ticks=200)
    assert world.state(job) is S.SLEEPING


def test_nice_of_a_sleeping_job_counts(world: World) -> None:
    job, urgent = asleep(world)
    newer = full(world)
    world.rms.set_nice(job, 50_000)
    world.tick()
    end(world, urgent)
    world.until(newer, S.RUNNING, ticks=200)
    assert world.state(job) is S.SLEEPING


def test_a_priority_that_was_set_while_it_ran_counts_in_sleep(world: World) -> None:
    """Slurm forgets it when it suspends the job."""
    job = running(world)
    world.tick()
    world.rms.set_priority(job, 900_000)
    world.tick()
    world.pass_time(LONG_S)
    world.tick()
    urgent = full(world, partition="urgent")
    world.until(urgent, S.RUNNING, ticks=200)
    assert world.state(job) is S.SLEEPING
    assert world.rms.job(job).priority == 0
    assert abs(priority(world, job) - 900_000) < 10_000
    assert any(event.kind == "priority-changed" for event in world.context.ledger.events(vjob=str(job)))


def test_the_priority_of_a_sleeping_job_can_be_set_once_it_is_released(world: World) -> None:
    job, _ = asleep(world)
    with pytest.raises(RefusedError, match="held state"):
        world.rms.set_priority(job, 5)
    before = priority(world, job)
    world.rms.release(job)
    world.tick()
    assert world.rms.job(job).state is JobState.SUSPENDED
    assert abs(priority(world, job) - before) < 1000
    world.rms.set_priority(job, 5)
    world.tick()
    assert 5 <= priority(world, job) < 1000


def test_a_resume_does_not_count_as_set_by_hand(world: World) -> None:
    job, urgent = asleep(world)
    world.pass_time(LONG_S)
    end(world, urgent)
    world.until(job, S.RUNNING, ticks=200)
    for _ in range(3):
        world.tick()
    assert not any(event.kind == "priority-changed" for event in world.context.ledger.events(limit=1000))


def test_a_priority_that_was_set_before_the_start_stays(world: World) -> None:
    job = full(world)
    world.rms.set_priority(job, 777)
    world.until(job, S.RUNNING)
    world.pass_time(LONG_S)
    world.tick()
    assert priority(world, job) == 777


def test_without_factors_the_priority_is_as_it_was(world: World) -> None:
    world.rms.priorities.weights = None
    job = full(world, priority=1000)
    world.until(job, S.RUNNING)
    world.pass_time(LONG_S)
    world.tick()
    assert priority(world, job) == 1000
    world.rms.set_nice(job, 100)
    world.tick()
    assert priority(world, job) == 900
