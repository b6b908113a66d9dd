"""What is switched off and on is shown beside the context switch of the next cycle, and beside those of the past."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scenarios.test_nodes_emptied import saving_world, together, two_halves
from scenarios.test_nodes_switched_off import all_off, is_off, make_world, states, tick_until
from scenarios.world import NODES, World

from rmsplugin.adapters.rms.base import RmsReservation
from rmsplugin.cli.plan.live import lines
from rmsplugin.engine.ledger.power_book import SwitchState
from rmsplugin.engine.serve.plan_views import cycle_view, cycles_view, preview_view
from rmsplugin.errors import SilentError
from rmsplugin.manager.merging import merged
from rmsplugin.model.vjob import VJobState

S = VJobState


@pytest.fixture
def world(directory: Path) -> World:
    return make_world(directory)


def preview(world: World) -> dict[str, Any]:
    return preview_view(world.cycle.preview(), world.time, world.context.ledger.plans.pause, dot=True)


def powers(world: World) -> list[tuple[str, str, str, list[str]]]:
    return [(each["action"], each["node"], each["state"], each["needed_by"]) for each in preview(world)["powers"]]


def test_idle_nodes_that_the_next_cycle_switches_off_are_shown_before(world: World) -> None:
    world.tick()
    assert powers(world) == [], "they are idle for a moment only"
    world.pass_time(141.0)
    before = world.context.ledger.events(limit=1000)
    shown = preview(world)
    assert [(each["action"], each["node"], each["state"]) for each in shown["powers"]] == [
        ("power-off", node, "planned") for node in NODES
    ]
    assert {each["takes_s"] for each in shown["powers"]} == {30.0}
    assert all(each["reason"].startswith("nobody has used it for 14") for each in shown["powers"])
    assert [each["needs"] for each in shown["powers"]] == [[]] * 3
    assert states(world) == {}
    assert world.context.ledger.events(limit=1000) == before, "a preview changes nothing"
    world.tick()
    assert set(states(world)) == {*NODES}, "the cycle does what was shown"
    assert powers(world) == [("power-off", node, "running", []) for node in NODES]


def test_no_more_than_at_once_are_shown(directory: Path) -> None:
    world = make_world(directory, at_once=2)
    world.tick()
    world.pass_time(141.0)
    assert [node for _, node, _, _ in powers(world)] == ["n1", "n2"]


def test_a_start_that_needs_a_node_on_is_shown_with_it(world: World) -> None:
    all_off(world)
    job = world.submit(vms=1)
    world.tick()
    assert preview(world)["steps"] == []
    assert powers(world) == [("power-on", "n1", "running", [str(job)])]
    assert 0 < preview(world)["powers"][0]["takes_s"] < 120
    printed = [line.split() for line in lines(preview(world)) if line.startswith("power-on")]
    assert [words[:3] for words in printed] == [["power-on", "n1", "running"]]
    assert printed[0][4:] == ["-", str(job), *["a", "vjob", "needs", "it"]]
    assert '"power-on node n1" [label="power-on", shape=plaintext];' in preview(world)["dot"]
    assert '"node n1" -> "power-on node n1" [style=dotted, arrowhead=none];' in preview(world)["dot"]
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    assert powers(world) == []


def test_a_node_that_the_next_cycle_switches_on_is_shown_before(world: World) -> None:
    all_off(world)
    begins = int(world.time) + 200
    world.rms.reservations["maint"] = RmsReservation("maint", begins, begins + 600, ("n2",), {}, ("somebody",), ())
    assert powers(world) == [("power-on", "n2", "planned", [])]
    (shown,) = preview(world)["powers"]
    assert (shown["takes_s"], shown["reason"]) == (120.0, "a reservation needs it")
    assert set(states(world).values()) == {SwitchState.OFF}
    world.tick()
    assert powers(world) == [("power-on", "n2", "running", [])]


def test_a_node_that_failed_and_is_not_due_is_not_shown(world: World) -> None:
    all_off(world)
    world.power.bmcs["n1"].boots = False
    world.submit(vms=1)
    tick_until(world, lambda: states(world).get("n1") is SwitchState.FAILED, ticks=200)
    assert "n1" not in {node for _, node, _, _ in powers(world)}
    world.pass_time(61.0)
    assert ("power-on", "n1", "planned") in {shown[:3] for shown in powers(world)}, "it is due"


def test_a_node_that_is_emptied_goes_off_after_the_steps_that_empty_it(directory: Path) -> None:
    world = saving_world(directory)
    jobs = two_halves(world)
    world.context.ledger.plans.set_pause("root")
    tick_until(world, lambda: world.cycle.preview().emptied is not None, seconds=1.0)
    shown = preview(world)
    found = world.cycle.preview().emptied
    assert found is not None
    (goes,) = [each for each in shown["powers"] if each["node"] == found.node]
    assert (goes["action"], goes["state"]) == ("power-off", "planned")
    assert goes["needs"] == [step["id"] for step in shown["steps"]]
    assert goes["needs"]
    assert f'"node {found.node}" -> "power-off node {found.node}"' in shown["dot"]
    both = merged("plan", {"a": shown, "b": shown}, 0)
    assert [each["needs"] for each in both["powers"] if each["node"] == found.node] == [[0], [1]]
    world.context.ledger.plans.clear_pause()
    tick_until(world, lambda: together(world, *jobs))
    tick_until(world, lambda: is_off(world, found.node))
    ledger = world.context.ledger
    cycle = cycles_view(ledger, world.context.clock, 1)[0]
    steps = cycle_view(ledger, world.context.clock, cycle["number"])["steps"]
    (act,) = [each for each in cycle["powers"] if each["node"] == found.node]
    assert (act["action"], act["state"], act["needs"]) == ("power-off", "done", [step["number"] for step in steps])
    assert act["ended"] > act["began"]


def test_cycles_have_the_switches_that_came_after_them(world: World) -> None:
    first = world.running(cpus=2)
    world.power.fail_next("reading", SilentError("the BMC of n2 does not answer"), node="n2")
    tick_until(world, lambda: is_off(world, "n2", "n3"), ticks=200)
    second = world.submit(vms=1, cpus=2)
    tick_until(world, lambda: world.state(second) is S.RUNNING)
    ledger, clock = world.context.ledger, world.context.clock
    older, newer = cycles_view(ledger, clock, 10)
    assert [(act["action"], act["node"], act["state"]) for act in older["powers"]] == [
        *(("power-off", "n2", "failed"), ("power-off", "n3", "done"), ("power-off", "n2", "done")),
        ("power-on", "n2", "done"),
    ]
    assert older["powers"][0]["error"].endswith("does not answer")
    assert newer["powers"] == []
    assert cycle_view(ledger, clock, older["number"])["cycle"] == older
    assert {world.host(job) for job in (first, second)} == {"n1", "n2"}
    world.rms.finish(second)
    tick_until(world, lambda: is_off(world, "n2", "n3"), ticks=200)
    assert cycles_view(ledger, clock, 10)[0]["powers"] == older["powers"]
    assert [(act["action"], act["node"]) for act in cycles_view(ledger, clock, 1)[0]["powers"]] == [("power-off", "n2")]
