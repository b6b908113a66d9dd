"""Durations that were measured are those by which the engine decides, estimates and plans."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.engine.context.durations import MeasuredDuration
from rmsplugin.engine.decide.parameters import proposal_parameters
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.model.vjob import VJobState


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory)
    yield world
    assert world.hypervisor.violations == []


def test_an_operation_by_hand_is_expected_to_take_as_long_as_was_measured(world: World) -> None:
    job = world.running()
    values = {"suspend_s": 77.0, "suspend_s_per_mib": 0.0}
    world.context.durations.measured = {"suspend": MeasuredDuration("suspend", values, 12, world.time)}
    world.ask(job, OperationKind.SUSPEND)
    world.until(job, VJobState.SLEEPING)
    assert world.context.ledger.plans.plans(1)[-1].estimate_s == 77.0


def test_decisions_weigh_with_them(world: World) -> None:
    world.tick()
    seen = world.cycle.seen
    assert seen is not None
    given: list[float] = []
    proposes = world.cycle.deciding._proposes

    class Noting:
        def __getattr__(self, name: str) -> object:
            return getattr(proposes, name)

        def propose(self, *words: object, **options: object) -> object:
            given.extend(each.durations.suspend.constant_s for each in words if hasattr(each, "durations"))
            return proposes.propose(*words, **options)  # type: ignore[arg-type]

    world.cycle.deciding._proposes = Noting()  # type: ignore[assignment]
    values = {"suspend_s": 77.0, "suspend_s_per_mib": 0.0}
    world.context.durations.measured = {"suspend": MeasuredDuration("suspend", values, 12, world.time)}
    world.running()
    assert given and set(given) == {77.0}
    assert proposal_parameters(world.settings, seen.rms).durations.suspend.constant_s != 77.0


def test_the_engine_measures_beside_its_cycles(directory: Path) -> None:
    world = World(directory)
    planning = world.settings.planning.model_copy(update={"measured_durations": True})
    world.settings = world.settings.model_copy(update={"planning": planning})
    world.start_engine()
    job = world.running()
    for _ in range(10):
        world.ask(job, OperationKind.SUSPEND)
        world.until(job, VJobState.SLEEPING)
        world.ask(job, OperationKind.RESUME)
        world.until(job, VJobState.RUNNING)
    world.pass_time(86400)
    deadline = time.monotonic() + PATIENCE_S
    while "resume" not in world.context.durations.measured:
        assert time.monotonic() < deadline
        world.tick()
        time.sleep(0.01)
    assert world.events("durations-measured")
