"""A wrapper never stands still for long while its job runs: slurmd may do a resume too early, or never hear it.

Slurm refuses a stopped job's signals, and its output stands still: no requeue is to be waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scenarios.test_operations import events
from scenarios.world import FRONTS, World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import NoSpaceError, UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


def goes_on(world: World, job: int) -> bool:
    """Whether it runs, with its wrapper."""
    runs = world.state(job) is S.RUNNING and world.rms.job(job).state is JobState.RUNNING
    return runs and not world.rms.is_stopped(job)


def until(world: World, condition: Callable[[], bool], ticks: int) -> None:
    for _ in range(ticks):
        if condition():
            return
        world.tick()
    raise AssertionError(f"not within {ticks} s: {world.cycle.report}\n{events(world)}")


def test_the_wrapper_goes_on_after_a_save_that_fails_at_once(world: World) -> None:
    job = world.running(vms=2)
    world.hypervisor.fail_next("save", NoSpaceError("no space left"), vm=f"vjob{job}-1")
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert goes_on(world, job)


def test_the_wrapper_goes_on_after_a_pause_that_fails_or_ends_at_once(world: World) -> None:
    job = world.running(vms=2)
    world.ask(job, K.PAUSE)
    while world.state(job) is not S.PAUSED:
        world.cycle_beside(0.01)
    world.ask(job, K.UNPAUSE)
    world.until(job, S.RUNNING)
    assert goes_on(world, job)


def test_a_long_suspend_that_fails_is_no_silence_of_the_wrapper(world: World) -> None:
    job = world.running(vms=1)

    def fail(*_: object, **__: object) -> None:
        world.pass_time(200)
        raise NoSpaceError("no space left")

    world.hypervisor.save = fail  # type: ignore[method-assign]
    world.wrappers_answer = False
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING, ticks=3)
    world.tick()
    assert world.rms.job(job).state is JobState.RUNNING
    assert world.rms.job(job).restarts == 0


def test_a_resume_that_never_reached_the_front_is_told_once_more(world: World) -> None:
    job = world.sleeping(vms=2)
    world.rms.resumes_lost = 2
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert world.rms.is_stopped(job)
    until(world, lambda: goes_on(world, job), 25)
    assert world.rms.job(job).restarts == 0
    assert events(world).count("stands-still") == 2
    for _ in range(40):
        world.tick()
    assert (events(world).count("stands-still"), world.rms.job(job).restarts) == (2, 0)


def test_a_wrapper_that_never_goes_on_is_missed_as_any_other(world: World) -> None:
    job = world.sleeping(vms=1)
    world.rms.resumes_lost = 1000
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    until(world, lambda: world.rms.job(job).restarts == 1, 45)
    until(world, lambda: goes_on(world, job), 20)
    assert "has been silent" in events(world)


@pytest.mark.parametrize("failing", ["suspend", "resume"])
def test_slurm_that_does_not_answer_meanwhile_leaves_no_job_suspended(world: World, failing: str) -> None:
    job = world.sleeping(vms=1)
    world.rms.resumes_lost = 1
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    world.rms.fail_next(failing, UnavailableError("slurmctld does not answer"))
    until(world, lambda: goes_on(world, job), 40)
    assert events(world).count("vjob-sleeping") == 1
    assert world.context.ledger.vjob(job).reason.startswith("all its VMs are seen running")


def test_a_front_that_is_lost_while_its_wrapper_is_let_go_on_leaves_no_hold(world: World) -> None:
    job = world.sleeping(vms=1)
    world.rms.resumes_lost = 1
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    front, suspend = world.rms.job(job).batch_host, world.rms.suspend
    assert front in FRONTS

    def lose(job_id: int) -> None:
        suspend(job_id)
        world.rms.lose_node(front)

    world.rms.suspend = lose  # type: ignore[method-assign]
    until(world, lambda: "stands-still" in events(world), 10)
    world.rms.suspend = suspend  # type: ignore[method-assign]
    until(world, lambda: goes_on(world, job), 200)
    assert world.context.ledger.vjob(job).losses == 0
    assert "held" not in events(world)


def live(world: World, kill_at: int | None) -> int:
    """A resume that is lost; from then on the engine is killed at some instant. Returns how many there were."""
    job = world.sleeping(vms=1)
    world.rms.resumes_lost = 1
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    before = world.life.instants
    world.life._kill_at = before + kill_at if kill_at else None
    until(world, lambda: goes_on(world, job), 100)
    instants = world.life.instants - before
    for _ in range(3):
        world.tick()
    assert goes_on(world, job), (kill_at, events(world))
    assert world.context.ledger.vjob(job).losses == 0
    world.close()
    return instants


def test_an_engine_that_is_killed_at_any_instant_leaves_the_job_running(directory: Path) -> None:
    for number in range(live(world_in(directory, 0), None)):
        live(world_in(directory, number + 1), number + 1)


def world_in(directory: Path, number: int) -> World:
    (directory / str(number)).mkdir()
    return World(directory / str(number))
