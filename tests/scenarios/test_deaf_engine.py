"""An engine that cannot hear takes nobody for silent: it requeues no job and fences no node for it, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.test_absence import ticks
from scenarios.test_fencing import calls, running, with_fence
from scenarios.test_operations import events
from scenarios.world import World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
MUNGE = "munged does not answer"


def requeued(world: World, *jobs: int) -> list[bool]:
    return [world.rms.job(job).restarts > 0 for job in jobs]


def deaf(world: World, seconds: float) -> None:
    """No sign of life can be checked for so long; an engine whose test of itself fails each 10 s says so."""
    world.wrappers_answer = False
    until = world.time + seconds
    while world.time < until:
        world.context.hearing.note_deaf(MUNGE, world.context.clock.now())
        world.tick(10.0)


def test_wrappers_are_not_silent_while_the_engine_is_deaf_nor_right_after_it(world: World) -> None:
    jobs = [world.running(memory_mib=64) for _ in range(3)]
    orphan_s = world.settings.engine.orphan_s
    deaf(world, orphan_s + 60)
    world.tick(orphan_s - 15)  # as long as a wrapper may take to say something again
    world.tick()
    assert requeued(world, *jobs) == [False] * 3
    world.wrappers_answer = True
    ticks(world, 5)
    assert requeued(world, *jobs) == [False] * 3


def test_a_wrapper_that_says_nothing_to_an_engine_that_hears_again_is_missed(world: World) -> None:
    job = world.running()
    deaf(world, 60)
    world.tick(world.settings.engine.orphan_s)
    world.tick()
    assert requeued(world, job) == [True]
    assert "has been silent" in events(world)


def test_a_site_of_little_patience_waits_for_wrappers_as_long_after_deafness(world: World) -> None:
    """Even if it waits for less time than any wrapper may take to say something again."""
    engine = world.settings.engine.model_copy(update={"orphan_s": 12.0})
    world.settings = world.settings.model_copy(update={"engine": engine})
    world.start_engine()
    job = world.running()
    world.wrappers_answer = False
    world.tick(8.0)
    world.context.hearing.note_deaf(MUNGE, world.context.clock.now())
    world.tick(8.0)  # 16 s, of which the engine could have heard for 8
    world.tick()
    assert requeued(world, job) == [False]
    world.tick(4.0)
    world.tick()
    assert requeued(world, job) == [True]


def test_a_process_that_stood_still_is_no_silence_of_wrappers(world: World) -> None:
    """The cycle may be the first to run after SIGCONT."""
    jobs = [world.running(memory_mib=64) for _ in range(3)]
    world.context.hearing.test_begins(world.context.clock.now())
    world.context.hearing.test_ends(world.context.clock.now())
    world.wrappers_answer = False
    world.pass_time(600)
    ticks(world, 2)
    assert requeued(world, *jobs) == [False] * 3
    world.context.hearing.test_begins(world.context.clock.now())
    world.context.hearing.test_ends(world.context.clock.now())
    world.wrappers_answer = True
    ticks(world, 3)
    assert requeued(world, *jobs) == [False] * 3


def test_an_engine_that_is_deaf_for_long_says_so_and_requeues_nothing(world: World) -> None:
    job = world.running()
    deaf(world, 3600)
    assert requeued(world, job) == [False]
    [said] = [each for each in world.cycle.report.problems if "cannot hear" in each]
    assert MUNGE in said
    world.wrappers_answer = True
    for _ in range(3):
        world.tick(10.0)
    assert not [each for each in world.cycle.report.problems if "cannot hear" in each]


def test_a_wrapper_that_is_to_go_on_is_not_overdue_while_the_engine_is_deaf(world: World) -> None:
    """Slurm would be told to suspend and resume a job whose wrapper goes on."""
    job = world.sleeping(vms=1)
    world.wrappers_answer = False
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    for _ in range(20):
        world.context.hearing.note_deaf(MUNGE, world.context.clock.now())
        world.tick()
    assert "stands-still" not in events(world)
    world.tick(8.0)
    world.tick()
    assert "stands-still" in events(world)


def test_an_engine_whose_looks_fail_could_not_let_wrappers_in(world: World) -> None:
    """Slurm says where a wrapper's job runs; without its word the wrapper is refused."""
    job = world.running()
    world.wrappers_answer = False
    snapshot = world.rms.snapshot

    def silent() -> None:
        raise UnavailableError("slurmctld does not answer")

    world.rms.snapshot = silent  # type: ignore[assignment, method-assign]
    for _ in range(6):
        world.tick(10.0)
    world.rms.snapshot = snapshot  # type: ignore[method-assign]
    world.tick()
    assert requeued(world, job) == [False]
    world.tick(world.settings.engine.orphan_s + 10)
    world.tick()
    assert requeued(world, job) == [True]


@pytest.mark.parametrize("was_deaf", [True, False])
def test_a_node_is_not_fenced_by_an_engine_that_could_not_hear(world: World, directory: Path, was_deaf: bool) -> None:
    with_fence(world, directory, fence_after_s=120.0)
    _, node = running(world)
    world.kill_node(node)
    world.tick()
    world.pass_time(200)
    if was_deaf:
        world.context.hearing.note_deaf("its process stood still", world.context.clock.now())
    ticks(world, 3)
    assert bool(calls(directory)) is not was_deaf
