"""Quiet hours in the engine: nobody makes way, users are told until when; what is forced, or asked for, is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scenarios.test_slowdown import HOUR_S, full, one, reason, short, ticks_until
from scenarios.world import World

from rmsplugin.engine.serve.plan_views import preview_view
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.schedule import Schedule

S = VJobState
UNTIL = "quiet hours until 18:00"


@contextmanager
def quiet(directory: Path, **window: Any) -> Iterator[World]:
    """A world whose quiet hours, of UTC, begin with it or have begun; its time is 13:46."""
    world = World(directory, urgent=True)
    hours = {"timezone": "UTC", "quiet": [{"begins": "0 14 * * *", "ends": "0 18 * * *", **window}]}
    schedule = Schedule.model_validate(hours)
    world.settings = world.settings.model_copy(update={"schedule": schedule})
    world.start_engine()
    yield world
    assert world.hypervisor.violations == []
    world.close()


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    with quiet(directory) as world:
        yield world


def test_nobody_makes_way_until_they_end(world: World) -> None:
    longs = full(world)
    job = short(world)
    while world.time < 1_000_000 + 4 * HOUR_S:
        world.tick(300.0)
        assert world.states(*longs, job) == [S.RUNNING] * 3 + [S.WAITING]
    assert reason(world, job).endswith(f"; {UNTIL}: nobody makes way")
    ticks_until(world, job, 1200.0)
    assert world.states(*longs).count(S.SLEEPING) == 1
    told = [event.message for event in world.context.ledger.events() if event.kind == "quiet-hours"]
    assert told == [f"{UNTIL}: no vjob that runs makes way or moves, unless it has to", "quiet hours have ended"]


def test_a_preview_tells_of_them_and_changes_nothing(world: World) -> None:
    longs = full(world)
    job = short(world)
    world.tick()
    events = len(world.context.ledger.events())
    view = preview_view(world.cycle.preview(), world.time, None, dot=False)
    assert view["steps"] == [] and UNTIL in view["decision"][str(job)]["reason"]
    assert view["decision"][str(longs[0])]["reason"] == f"{UNTIL}: it runs, and stays where it is"
    assert len(world.context.ledger.events()) == events


def test_vjobs_start_where_there_is_room(world: World) -> None:
    longs, job = full(world), one(world)
    world.tick(60.0)
    assert world.state(job) is S.WAITING
    world.rms.finish(longs[0])
    ticks_until(world, job, 60.0)


def test_none_starts_where_the_window_says_so(directory: Path) -> None:
    with quiet(directory, starts=False) as world:
        world.pass_time(HOUR_S)
        job = one(world)
        for _ in range(5):
            world.tick(30.0)
            assert (world.state(job), reason(world, job)) == (S.WAITING, f"{UNTIL}: no vjob starts, or is resumed")
        world.pass_time(4 * HOUR_S)
        ticks_until(world, job, 60.0)


def test_who_has_to_leave_a_node_leaves_it(world: World) -> None:
    world.pass_time(HOUR_S)
    job = one(world, cpus=1)
    world.until(job, S.RUNNING)
    [vm] = world.context.ledger.vms(job)
    world.rms.set_node(vm.host, draining=True, reason="new disk")
    for _ in range(20):
        world.tick(5.0)
    [moved] = world.context.ledger.vms(job)
    assert moved.host != vm.host and world.state(job) is S.RUNNING


def test_what_is_asked_for_by_hand_is_done(world: World) -> None:
    [job, *_] = full(world)
    world.placing.suspend(world.context.ledger.vjob(job), "asked for by root", resumes=False)
    world.until(job, S.SLEEPING)


@pytest.mark.parametrize("jump_s", [6 * HOUR_S, -6 * HOUR_S], ids=["forward", "back"])
def test_they_are_times_of_the_hosts_clock(world: World, jump_s: float) -> None:
    full(world)
    job = short(world)
    world.tick(30.0)
    assert UNTIL in reason(world, job)
    world.jumped_s += jump_s
    world.tick(30.0)
    world.tick(30.0)
    assert "quiet hours" not in reason(world, job)
