"""Outages of those that the engine asks are events: when one began, why, when it ended, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import NODES, World

from rmsplugin.engine.ledger.rows import Event, OperationKind
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory)
    yield world
    assert world.hypervisor.violations == []


def ticks(world: World, count: int, seconds: float = 1.0) -> None:
    for _ in range(count):
        world.tick(seconds)


def event_of(world: World, kind: str) -> Event:
    """The one event of this kind; stores are looked at beside cycles, so it may take some of them."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := [each for each in world.context.ledger.events() if each.kind == kind]):
        assert time.monotonic() < deadline, f"no {kind}: {world.events()[-5:]}"
        time.sleep(0.01)
        world.tick()
    assert len(found) == 1
    return found[0]


def test_slurmctld_is_silent_once_and_answers_once(world: World) -> None:
    world.tick()
    for _ in range(3):
        world.rms.fail_next("snapshot", UnavailableError("slurmctld: connection refused"))
        world.tick(10.0)
    assert world.events("slurmctld-silent") == ["slurmctld does not answer: slurmctld: connection refused"]
    assert world.events("slurmctld-answers") == []
    ticks(world, 2)
    [ended] = world.events("slurmctld-answers")
    assert ended.startswith("slurmctld answers again, after ") and ended.endswith(" s")


def test_a_node_whose_platform_is_silent_is_named(world: World) -> None:
    world.tick()
    world.hypervisor.set_reachable("n2", False)
    ticks(world, 3)
    [event] = [each for each in world.context.ledger.events() if each.kind == "node-silent"]
    assert event.node == "n2" and event.message.startswith("n2 does not answer: ")
    world.hypervisor.set_reachable("n2", True)
    ticks(world, 2)
    assert [each.node for each in world.context.ledger.events() if each.kind == "node-answers"] == ["n2"]


def test_an_outage_that_an_engine_did_not_see_end_is_taken_up_by_the_next_one(world: World) -> None:
    world.tick()
    world.hypervisor.set_reachable("n2", False)
    world.tick()
    world.start_engine()
    ticks(world, 2)
    assert len(world.events("node-silent")) == 1
    world.start_engine()
    world.hypervisor.set_reachable("n2", True)
    world.tick()
    assert len(world.events("node-answers")) == 1


def test_accounting_is_asked_again_until_it_answers(world: World) -> None:
    job = world.running()
    world.rms.forget(job)
    world.rms.fail_next("ended", UnavailableError("slurmdbd: connection refused"))
    ticks(world, 2)
    assert world.events("slurmdbd-silent") == ["slurmdbd does not answer: slurmdbd: connection refused"]
    ticks(world, 3, 20.0)
    [ended] = world.events("slurmdbd-answers")
    assert ended.startswith("slurmdbd answers again, after ")


def test_a_store_is_missing_from_the_first_save_that_failed_until_it_is_seen_again(directory: Path) -> None:
    world = World(directory, shared=True)
    job = world.sleeping()
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    node = world.host(job)
    world.files.mount(node, False)
    world.ask(job, K.SUSPEND)
    event = event_of(world, "store-missing")
    assert event.node == node and "is it mounted?" in event.message
    world.files.mount(node, True)
    assert event_of(world, "store-back").node == node


def test_a_store_is_looked_at_where_a_resume_has_failed(directory: Path) -> None:
    world = World(directory, shared=True)
    job = world.sleeping()
    for node in NODES:
        world.files.mount(node, False)
    world.ask(job, K.RESUME)
    assert "is it mounted?" in event_of(world, "store-missing").message
