"""Outages of those that the engine asks are events: when one began, why, when it ended, and how long it took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.world import NODES, World

from rmsplugin.adapters.nodes.base import Space
from rmsplugin.engine.ledger.rows import Event, OperationKind
from rmsplugin.errors import TimedOutError, UnavailableError
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
    world.pass_time(30)
    assert event_of(world, "slurmdbd-answers").message.startswith("slurmdbd answers again, after ")


def test_accounting_that_nobody_needs_is_looked_at_now_and_then(world: World) -> None:
    world.tick()
    world.rms.fail_next("ended", UnavailableError("slurmdbd: connection refused"))
    ticks(world, 5)
    assert ("ended", "") not in world.rms.calls, "not at once"
    world.pass_time(300)
    told = event_of(world, "slurmdbd-silent").message
    assert told == "slurmdbd does not answer: slurmdbd: connection refused"
    world.pass_time(30)
    event_of(world, "slurmdbd-answers")
    asked = world.rms.calls.count(("ended", ""))
    ticks(world, 5)
    assert world.rms.calls.count(("ended", "")) == asked, "now and then"


def test_a_site_without_accounting_has_no_outage_of_it(world: World) -> None:
    world.rms.accounting = False
    world.tick()
    world.pass_time(300)
    deadline = time.monotonic() + PATIENCE_S
    while ("ended", "") not in world.rms.calls:
        assert time.monotonic() < deadline
        world.tick()
        time.sleep(0.01)
    ticks(world, 2)
    assert world.events("slurmdbd-silent") == []


def nodes_of(world: World, kind: str, wanted: set[str]) -> None:
    """Wait until these nodes have events of this kind, and no others have."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := {each.node for each in world.context.ledger.events() if each.kind == kind}) != wanted:
        assert time.monotonic() < deadline and found <= wanted, world.events()[-5:]
        world.tick()
        time.sleep(0.01)


def test_a_store_that_nobody_uses_is_looked_at_now_and_then(directory: Path) -> None:
    world = World(directory, shared=True)
    world.sleeping()
    for node in NODES:
        world.files.mount(node, False)
    ticks(world, 3)
    assert world.events("store-missing") == [], "not at once"
    world.pass_time(600)
    nodes_of(world, "store-missing", {*NODES})
    for node in NODES:
        world.files.mount(node, True)
    nodes_of(world, "store-back", {*NODES})


def test_a_store_that_was_never_used_is_not_set_up_by_a_look(world: World) -> None:
    job = world.sleeping()
    [node] = {vm.image_node for vm in world.context.ledger.vms(job)}
    asked: list[str] = []
    stores = world.context.stores
    require = stores.require
    stores.require = lambda node: (asked.append(node), require(node))[1]  # type: ignore[method-assign]
    world.pass_time(600)
    deadline = time.monotonic() + PATIENCE_S
    while not asked:
        assert time.monotonic() < deadline
        world.tick()
        time.sleep(0.01)
    ticks(world, 3)
    assert asked == [node], "each has a store of its own, and the others have none yet"


def test_a_store_that_hangs_keeps_no_cycle_waiting_and_delays_looks_but_leaves_none_out(directory: Path) -> None:
    world = World(directory, shared=True)
    world.sleeping()
    hangs, goes_on = threading.Event(), threading.Event()
    space = world.context.nodes.space

    looks: list[str] = []

    def hang(*words: Any, **options: Any) -> Space:
        looks.append(words[0])
        hangs.set()
        goes_on.wait(PATIENCE_S)
        return space(*words, **options)

    world.context.stores._nodes = SimpleNamespace(space=hang)  # type: ignore[assignment]
    world.pass_time(600)
    deadline = time.monotonic() + PATIENCE_S
    while not hangs.is_set():
        assert time.monotonic() < deadline
        world.tick()
    before = world.cycle.number
    ticks(world, 3)
    assert world.cycle.number == before + 3
    world.pass_time(600)
    world.tick()
    goes_on.set()
    rest(world)
    looks.clear()
    passed(world, 0)
    assert sorted(looks) == sorted(NODES)


def rest(world: World) -> None:
    """Wait until nothing is done beside cycles."""
    deadline = time.monotonic() + PATIENCE_S
    while not world.executor.chores_ended:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def passed(world: World, seconds: float) -> int:
    """Have time pass, and a cycle; returns how often stores were looked at in it."""
    before = len(world.nodes.calls)
    world.pass_time(seconds)
    world.tick()
    rest(world)
    return [call[0] for call in world.nodes.calls[before:]].count("space")


def test_a_store_that_hangs_is_silent_until_it_answers_and_is_looked_at_less_and_less(world: World) -> None:
    job = world.sleeping()
    [node] = {vm.image_node for vm in world.context.ledger.vms(job)}
    world.nodes.set_hanging(node, True)
    assert passed(world, 3) == 0
    assert passed(world, 600) == 1
    world.tick()
    event = event_of(world, "store-silent")
    assert event.node == node
    assert event.message == f"the store of saved states on {node} does not answer: space on {node} did not end in time"

    assert [passed(world, seconds) for seconds in (50, 20, 100, 30)] == [0, 1, 0, 1]
    world.nodes.set_hanging(node, False)
    world.pass_time(600)
    assert event_of(world, "store-answers").message.startswith(f"the store of saved states on {node} answers again, ")
    assert len(world.events("store-silent")) == 1
    assert world.events("store-missing") == world.events("store-back") == []


def test_a_store_hangs_from_the_first_save_that_did_not_end_and_may_be_missing_then(world: World) -> None:
    job = world.sleeping()
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    node = world.host(job)
    world.nodes.set_hanging(node, True)
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert not world.rms.is_stopped(job), "what is left of the save is no reason to keep the job still"
    assert event_of(world, "store-silent").node == node
    world.nodes.set_hanging(node, False)
    world.files.wipe(node, "/store")
    world.pass_time(60)
    event_of(world, "store-answers")
    assert "is it mounted?" in event_of(world, "store-missing").message


def test_a_store_that_hangs_is_looked_at_until_it_answers_also_when_nobody_uses_its_node(world: World) -> None:
    job = world.sleeping()
    [node] = {vm.image_node for vm in world.context.ledger.vms(job)}
    stores = world.context.stores
    world.nodes.set_hanging(node, True)
    with pytest.raises(TimedOutError):
        stores.require(node)
    now = world.context.clock.now()
    assert stores.to_look_at((), (), now) == []
    assert stores.to_look_at((), {node}, now + 60) == [], "it answers nothing at all"
    assert stores.to_look_at((), (), now + 60) == [node]
    world.nodes.set_hanging(node, False)
    stores.look_again([node])
    assert stores.silent == {}
    assert stores.to_look_at((), (), now + 2000) == []


def test_a_store_that_was_never_set_up_has_no_outage(world: World) -> None:
    world.nodes.set_hanging("n1", True)
    with pytest.raises(TimedOutError):
        world.context.stores.require("n1")
    ticks(world, 2)
    assert world.events("store-silent") == []


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
