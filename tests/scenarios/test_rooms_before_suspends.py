"""Nobody makes way for a vjob that an idle node would take: a room on it is awaited first, for a bounded time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.adapters.rms.base import ROOM_NAME
from rmsplugin.engine.assess.assess import Assessment
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState

S = VJobState
HOUR_S = 3600.0
WAIT_S = 30.0


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    """One whose nodes are borrowed; a vjob has run on one of them for an hour, and two are idle."""
    world = World(directory, urgent=True, rooms="elastic", room_wait_s=WAIT_S)
    yield world
    assert world.hypervisor.violations == []
    world.close()


def decides_by(world: World, policy: str) -> None:
    changed = world.settings.decision.model_copy(update={"policy": policy})
    world.settings = world.settings.model_copy(update={"decision": changed})
    world.start_engine()


def whole_node(world: World, limit_s: float = 100 * HOUR_S, partition: str = "vjob") -> int:
    return world.submit(vms=1, cpus=2, memory_mib=256, time_limit_s=limit_s, partition=partition)


def long_one(world: World) -> int:
    job = whole_node(world)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    world.pass_time(HOUR_S)
    world._give_signs_of_life()
    return job


def suspends(world: World) -> list[str]:
    return [plan.sentence for plan in world.context.ledger.plans.plans(200) if "suspend" in plan.sentence]


def seconds_until_it_runs(world: World, job: int) -> float:
    began = world.time
    world.until(job, S.RUNNING)
    return world.time - began


@pytest.mark.parametrize("policy", ["slowdown", "rjsp", "mixed"])
def test_a_short_vjob_has_the_idle_node_and_nobody_makes_way(world: World, policy: str) -> None:
    decides_by(world, policy)
    long = long_one(world)
    urgent = whole_node(world, limit_s=60, partition="urgent")
    world.tick()
    assert "waits for a room on n" in world.context.ledger.vjob(urgent).reason
    assert OperationKind.SUSPEND not in {step.kind for step in world.cycle.preview().prepared.steps}
    assert seconds_until_it_runs(world, urgent) < WAIT_S
    assert world.state(long) is S.RUNNING
    assert suspends(world) == []


def test_others_make_way_when_slurm_does_not_lend_the_node_in_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decides_by(world, "slowdown")
    long = long_one(world)
    monkeypatch.setattr(world.rms, "_boot_s", HOUR_S)
    urgent = whole_node(world, limit_s=60, partition="urgent")
    waited = seconds_until_it_runs(world, urgent)
    assert waited >= WAIT_S
    assert world.state(long) is S.SLEEPING
    later = whole_node(world, limit_s=60, partition="urgent")
    world.rms.finish(urgent)
    assert seconds_until_it_runs(world, later) < waited, "that room is not waited for again"


def test_a_node_that_is_freed_while_a_cycle_decides_goes_to_the_higher_tier(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decides_by(world, "slowdown")
    long = long_one(world)
    monkeypatch.setattr(world.rms, "_boot_s", HOUR_S)
    urgent = whole_node(world, limit_s=60, partition="urgent")
    world.until(urgent, S.RUNNING)
    assert world.state(long) is S.SLEEPING
    later = whole_node(world, limit_s=60, partition="urgent")
    world.rms.finish(urgent)
    end_of_stop_waits_for_assessment(world, monkeypatch)
    world.until(urgent, S.TERMINATED)
    assert world.state(long) is S.SLEEPING
    assert seconds_until_it_runs(world, later) < WAIT_S


def end_of_stop_waits_for_assessment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A VM that is stopped has ended when somebody assesses what can be decided, and not before."""
    stop, assess, assesses = world.hypervisor.stop, world.switch.assess, threading.Event()

    def slow_stop(*arguments: Any, **options: Any) -> None:
        assert assesses.wait(PATIENCE_S)
        stop(*arguments, **options)

    def late_assess(*arguments: Any) -> Assessment:
        if world.executor.busy():
            assesses.set()
        deadline = time.monotonic() + PATIENCE_S
        while world.executor.busy() and time.monotonic() < deadline:
            time.sleep(0.001)
        return assess(*arguments)

    monkeypatch.setattr(world.hypervisor, "stop", slow_stop)
    monkeypatch.setattr(world.switch, "assess", late_assess)


def test_others_make_way_at_once_where_no_further_room_may_be_had(directory: Path) -> None:
    world = World(directory, urgent=True, rooms="elastic", rooms_max=1)
    decides_by(world, "slowdown")
    long = long_one(world)
    urgent = whole_node(world, limit_s=60, partition="urgent")
    world.tick()
    world.tick()
    assert world.state(long) in (S.SUSPENDING, S.SLEEPING)
    world.until(urgent, S.RUNNING)
    assert [job.nodes for job in world.rms.snapshot().jobs if job.name == ROOM_NAME] == [("n1",)]
    world.close()


def test_a_vjob_with_a_place_among_what_is_held_does_not_wait_for_a_room(world: World) -> None:
    decides_by(world, "slowdown")
    first = world.submit(vms=1, cpus=1, memory_mib=256, time_limit_s=HOUR_S)
    world.until(first, S.RUNNING)
    second = world.submit(vms=1, cpus=1, memory_mib=256, time_limit_s=HOUR_S)
    world.until(second, S.RUNNING)
    assert {vm.host for vm in world.context.ledger.vms()} == {"n1"}


def test_a_paused_vjob_goes_on_where_it_is_and_waits_for_no_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = world.settings.decision.model_copy(update={"pause_limit_s": 10 * HOUR_S})
    world.settings = world.settings.model_copy(update={"decision": decision})
    decides_by(world, "slowdown")
    long = world.submit(vms=1, cpus=2, memory_mib=500, time_limit_s=100 * HOUR_S, partition="vjob")
    world.until(long, S.RUNNING)
    world.context.ledger.update_vjob(long, script_started=True)
    world.pass_time(HOUR_S)
    world._give_signs_of_life()
    monkeypatch.setattr(world.rms, "_boot_s", HOUR_S)
    urgent = whole_node(world, limit_s=60, partition="urgent")
    world.until(urgent, S.RUNNING, ticks=100)
    assert world.state(long) is S.PAUSED
    world.rms.cancel(next(job.job_id for job in world.rms.snapshot().jobs if job.nodes == ("n2",)))
    world.pass_time(HOUR_S)
    world._give_signs_of_life()
    world.rms.finish(urgent)
    world.until(urgent, S.TERMINATED)
    world.until(long, S.RUNNING, ticks=4)
    assert [vm.host for vm in world.context.ledger.vms(long)] == ["n1"]
    assert suspends(world) == []
