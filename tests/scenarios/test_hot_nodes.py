"""A node that is too hot takes no VM, and its VMs leave it: live, or saved where there is no room; until it is cool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scenarios.test_nodes_switched_off import is_off, make_world, states, tick_until, unharmed
from scenarios.world import NODES, World, spread

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.serve.views import node_views, power_sentence
from rmsplugin.errors import SilentError
from rmsplugin.model.vjob import VJobState

S = VJobState
SAMPLE = 24


def hot_world(directory: Path, **power: Any) -> World:
    """A world whose engine reads sensors, and switches nothing off by itself."""
    world = make_world(directory, **{"switch": False, "sense_s": 10.0, "hot_c": 45.0, "cool_c": 40.0, **power})
    world.tick()
    return world


@pytest.fixture
def world(directory: Path) -> World:
    return hot_world(directory)


def hot(world: World) -> set[str]:
    return {*world.context.ledger.sensors.hot()}


def heat(world: World, node: str, celsius: float | None) -> None:
    world.power.bmcs[node].temperature_c = celsius


def kinds(world: World) -> list[OperationKind]:
    plans = world.context.ledger.plans
    return [step.kind for plan in plans.plans(100) for step in plans.steps(plan.id)]


def test_the_vms_of_a_hot_node_leave_it_live_and_come_back_when_it_has_cooled(world: World) -> None:
    job = world.running()
    node = world.host(job)
    heat(world, node, 47.0)
    tick_until(world, lambda: world.host(job) != node and not world.executor.busy())
    assert world.state(job) is S.RUNNING
    assert kinds(world) == [OperationKind.START, OperationKind.MIGRATE]
    assert world.events("node-hot") == [f"{node} is hot: 47 °C, and 45 °C is too much; its VMs leave it"]
    others = [world.submit(vms=1, cpus=2) for _ in NODES]
    for _ in range(30):
        world.tick(10.0)
    assert node not in {world.host(each) for each in others if world.state(each) is S.RUNNING}
    heat(world, node, 41.0)
    for _ in range(6):
        world.tick(10.0)
    assert hot(world) == {node}, "it is below the threshold, and not cool yet"
    heat(world, node, 40.0)
    tick_until(world, lambda: node in {world.host(each) for each in others if world.state(each) is S.RUNNING})
    assert world.events("node-cool") == [f"{node} is hot no more: 40 °C, and it may be 40 °C"]
    unharmed(world, job)


def test_without_room_elsewhere_they_are_saved_and_go_on_where_there_is_some(world: World) -> None:
    jobs = [world.running(cpus=2) for _ in NODES]
    node = world.host(jobs[0])
    heat(world, node, 60.0)
    tick_until(world, lambda: world.state(jobs[0]) is S.SLEEPING)
    assert world.states(*jobs[1:]) == [S.RUNNING] * 2
    assert f"leaves {node}: it is hot since" in world.context.ledger.vjob(jobs[0]).reason
    world.rms.finish(jobs[1])
    tick_until(world, lambda: world.state(jobs[0]) is S.RUNNING)
    assert world.host(jobs[0]) != node
    unharmed(world, jobs[0], jobs[2])


def test_no_room_is_requested_on_another_hot_node(world: World) -> None:
    job = world.running()
    assert world.host(job) == "n1"
    heat(world, "n2", 50.0)
    tick_until(world, lambda: hot(world) == {"n2"})
    heat(world, "n1", 50.0)
    tick_until(world, lambda: world.host(job) == "n3")
    assert world.state(job) is S.RUNNING
    assert ("request_room", "n2") not in world.rms.calls


def test_a_vjob_that_starts_there_starts_elsewhere(world: World) -> None:
    for node in NODES[1:]:
        heat(world, node, 50.0)
    tick_until(world, lambda: hot(world) == {"n2", "n3"})
    jobs = [world.submit(vms=1, cpus=2) for _ in range(2)]
    for _ in range(6):
        world.tick(10.0)
    assert sorted(world.states(*jobs)) == [S.RUNNING, S.WAITING]
    assert {world.host(job) for job in jobs if world.state(job) is S.RUNNING} == {"n1"}
    assert not [call for call in world.rms.calls if call[0] == "request_room" and call[1] != "n1"]


@pytest.mark.parametrize("lie", ["once", "silent between", "no sensor", "just below"])
def test_a_sensor_that_lies_once_or_is_silent_proves_nothing(world: World, lie: str) -> None:
    readings = {
        "once": [25.0, 255.0, 25.0, 25.0, 99.0, 25.0],
        "silent between": [25.0, 50.0, None, 50.0, None, 50.0],
        "no sensor": [None] * 6,
        "just below": [44.9] * 6,
    }[lie]
    job = world.running()
    node = world.host(job)
    for celsius in readings:
        heat(world, node, celsius)
        world.tick(10.0)
    heat(world, node, 25.0)
    for _ in range(3):
        world.tick(10.0)
    assert hot(world) == set()
    assert world.host(job) == node
    assert world.events("node-hot") == []


def test_a_hot_node_whose_bmc_falls_silent_stays_hot_and_that_is_told(world: World) -> None:
    heat(world, "n2", 50.0)
    tick_until(world, lambda: hot(world) == {"n2"})
    world.power.bmcs["n2"].silent = True
    for _ in range(6):
        world.tick(10.0)
    assert hot(world) == {"n2"}
    (problem,) = [each for each in world.cycle.report.problems if each.startswith("n2")]
    assert problem.endswith("50 °C, and 45 °C is too much; its sensor tells nothing now")
    world.power.bmcs["n2"].silent = False
    heat(world, "n2", 20.0)
    tick_until(world, lambda: hot(world) == set())


def test_the_next_engine_knows_which_nodes_are_hot(world: World) -> None:
    heat(world, "n1", 50.0)
    tick_until(world, lambda: hot(world) == {"n1"})
    world.start_engine()
    job = world.running()
    assert world.host(job) != "n1"
    assert len(world.events("node-hot")) == 1


def test_where_the_threshold_is_taken_back_no_node_is_hot(world: World) -> None:
    heat(world, "n1", 50.0)
    tick_until(world, lambda: hot(world) == {"n1"})
    power = world.settings.power.model_copy(update={"hot_c": None, "cool_c": None})
    world.settings = world.settings.model_copy(update={"power": power})
    world.start_engine()
    tick_until(world, lambda: hot(world) == set())
    assert world.events("node-cool") == ["n1 is hot no more: nobody watches its temperature"]


def test_a_class_has_thresholds_of_its_own(directory: Path) -> None:
    world = hot_world(directory, watts={"hot_c": 60.0})
    heat(world, "n1", 59.0)
    heat(world, "n2", 60.0)
    tick_until(world, lambda: hot(world) == {"n2"})
    heat(world, "n2", 56.0)
    for _ in range(6):
        world.tick(10.0)
    assert hot(world) == {"n2"}
    heat(world, "n2", 55.0)
    tick_until(world, lambda: hot(world) == set())


def test_what_sensors_show_is_shown_and_kept(world: World) -> None:
    for node, watts in (("n1", 100.0), ("n2", 150.4), ("n3", None)):
        world.power.bmcs[node].watts = watts
    heat(world, "n3", None)
    for _ in range(3):
        world.tick(10.0)
    heat(world, "n1", 47.5)
    tick_until(world, lambda: hot(world) == {"n1"})
    world.tick(10.0)
    views = {view["name"]: view for view in node_views(world.context.ledger, world.capacities(), world.cycle.seen, {})}
    shown = {name: (view["watts"], view["temperature_c"], view["hot"]) for name, view in views.items()}
    assert shown == {"n1": (100, 48, True), "n2": (150, 25, False), "n3": (None, None, False)}
    assert views["n1"]["reason"].startswith("it is hot since ")
    assert views["n1"]["reason"].endswith(": 47.5 °C, and 45 °C is too much")
    assert "nodes that are hot: n1 (47.5 °C)" in str(power_sentence(world.context.ledger))
    samples = world.context.ledger.sensors.samples("n1")
    assert [(each.watts, each.celsius) for each in samples] == [(100.0, 25.0), (100.0, 47.5)]
    assert world.context.ledger.sensors.samples("n3") == []
    for _ in range(10):
        world.tick(10.0)
    assert len(world.context.ledger.sensors.samples("n1")) == 2, "what does not change is not recorded"
    world.power.bmcs["n2"].silent = True
    for _ in range(3):
        world.tick(10.0)
    assert node_views(world.context.ledger, world.capacities(), world.cycle.seen, {})[1]["temperature_c"] is None


def test_bmcs_are_asked_at_a_modest_pace(directory: Path) -> None:
    world = hot_world(directory, sense_s=60.0)
    world.power.calls.clear()
    for _ in range(60):
        world.tick(5.0)
    assert 4 <= world.power.calls.count(("reading", "n1")) <= 6
    world.power.fail_next("reading", SilentError("the BMC of n1 does not answer"), node="n1")
    world.power.fail_next("reading", ValueError("a bug"), node="n2")
    for _ in range(30):
        world.tick(5.0)
        assert world.cycle.report.problems == []
    world.power.calls.clear()
    for _ in range(30):
        world.tick(5.0)
    assert {node for _, node in world.power.calls} == {*NODES}, "a fault with one of them does not end that"


def test_a_site_that_sets_nothing_asks_no_sensor(directory: Path) -> None:
    world = hot_world(directory, sense_s=0.0, hot_c=None, cool_c=None)
    for _ in range(20):
        world.tick(20.0)
    assert world.power.calls == []


# -- off as the last -------------------------------------------------------------------------------------------------


def test_a_hot_node_is_switched_off_only_if_that_is_set(directory: Path) -> None:
    world = hot_world(directory, switch=True, hot_off=True, reserve=3)
    job = world.running()
    node = world.host(job)
    heat(world, node, 50.0)
    tick_until(world, lambda: is_off(world, node))
    assert world.state(job) is S.RUNNING
    assert set(states(world)) == {node}, "no other one is off"
    assert any(event.startswith(f"{node} goes off: it is hot since") for event in world.events("power-intended"))
    full = [world.submit(vms=1, cpus=2) for _ in NODES]
    for _ in range(10):
        world.tick(10.0)
    assert set(states(world)) == {node}, "it is not switched on while it is hot"
    heat(world, node, 20.0)
    tick_until(world, lambda: node in {world.host(each) for each in full if world.state(each) is S.RUNNING}, ticks=200)
    assert any(event.startswith(f"{node} is hot no more: it has been off for ") for event in world.events("node-cool"))
    unharmed(world, job)


def test_otherwise_a_hot_node_stays_on(directory: Path) -> None:
    world = hot_world(directory, switch=True, reserve=3)
    heat(world, "n1", 50.0)
    tick_until(world, lambda: hot(world) == {"n1"})
    for _ in range(30):
        world.tick(20.0)
    assert states(world) == {}


def test_a_hot_node_is_none_of_the_reserve(directory: Path) -> None:
    """No vjob can have it, so another one comes on."""
    world = hot_world(directory, switch=True, reserve=1)
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    heat(world, "n1", 50.0)
    tick_until(world, lambda: "n2" not in states(world))
    for _ in range(30):
        world.tick(20.0)
        assert "n2" not in states(world) and is_off(world, "n3")


# -- killed at any instant -------------------------------------------------------------------------------------------


def hot_and_cool(world: World, kill_at: int | None) -> int:
    jobs = [world.running(), world.running(cpus=2)]
    world.start_engine(kill_at)
    first = world.life
    node = world.host(jobs[0])
    heat(world, node, 47.0)
    tick_until(world, lambda: world.host(jobs[0]) != node and not world.executor.busy(), ticks=200)
    heat(world, node, 30.0)
    tick_until(world, lambda: hot(world) == set(), ticks=200)
    new = world.submit(cpus=2, vms=1)
    tick_until(world, lambda: world.state(new) is S.RUNNING, ticks=200)
    assert world.host(new) == node
    unharmed(world, *jobs, new)
    assert len(world.events("node-hot")) == len(world.events("node-cool")) == 1
    return first.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_being_hot(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    total = hot_and_cool(hot_world(directory / "0"), None)
    assert total > 30
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            hot_and_cool(hot_world(where), instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error
