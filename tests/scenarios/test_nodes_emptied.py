"""With objective "energy" a node that is little used is emptied by live migrations, goes off, and comes on again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios.test_nodes_switched_off import is_off, make_world, states, tick_until, unharmed
from scenarios.world import NODES, World, spread

from rmsplugin.adapters.rms.power_saving import KeptOn
from rmsplugin.engine.decide.emptying import ENERGY
from rmsplugin.engine.ledger.rows import OperationKind, Plan, PlanState, Step
from rmsplugin.engine.power.emptying import Emptier
from rmsplugin.engine.serve.plan_views import preview_view
from rmsplugin.engine.serve.views import power_sentence
from rmsplugin.errors import UnavailableError
from rmsplugin.model.configuration import Configuration
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.groups import Group

S = VJobState
SAMPLE = 24


def saving_world(directory: Path, **power: Any) -> World:
    """A world whose engine switches nodes, and empties those that are used by half at most."""
    world = make_world(directory, **{"underload": 0.5, **power})
    planning = world.settings.planning.model_copy(update={"objective": "energy"})
    world.settings = world.settings.model_copy(update={"planning": planning})
    world.start_engine()
    return world


@pytest.fixture
def world(directory: Path) -> World:
    return saving_world(directory)


def two_halves(world: World, age_s: float = 3000.0, **options: Any) -> tuple[int, int]:
    """Two vjobs, each on a node of its own that is used by half, that have run for a time."""
    first, beside = world.running(**options), world.running()
    second, last = world.running(**options), world.running()
    assert len({world.host(job) for job in (first, second)}) == 2
    assert (world.host(beside), world.host(last)) == (world.host(first), world.host(second))
    began = world.time
    while world.time - began < age_s:
        world.tick(min(100.0, age_s))
    assert world.host(first) != world.host(second)
    for job in (beside, last):
        world.rms.finish(job)
    return first, second


def together(world: World, *jobs: int) -> bool:
    return len({world.host(job) for job in jobs}) == 1 and not world.executor.busy()


def all_steps(world: World, plan: Plan) -> list[Step]:
    return world.context.ledger.plans.steps(plan.id)


def test_a_node_that_is_little_used_is_emptied_live_goes_off_and_comes_on_for_a_vjob(world: World) -> None:
    jobs = two_halves(world)
    tick_until(world, lambda: together(world, *jobs))
    (node,) = {world.host(job) for job in jobs}
    assert world.states(*jobs) == [S.RUNNING] * 2
    kinds = {step.kind for plan in world.context.ledger.plans.plans(100) for step in all_steps(world, plan)}
    assert kinds == {OperationKind.START, OperationKind.MIGRATE}
    left = next(name for name in ("n1", "n2") if name != node)
    tick_until(world, lambda: is_off(world, left, "n3"))
    assert node not in states(world)
    new = world.submit(cpus=2, vms=1)
    tick_until(world, lambda: world.state(new) is S.RUNNING)
    unharmed(world, *jobs, new)
    for job in (*jobs, new):
        world.rms.finish(job)
    tick_until(world, lambda: is_off(world, *NODES))
    assert [world.files.paths(name) for name in NODES] == [[]] * 3
    assert world.context.ledger.nodes.left_behind() == {}


def test_why_a_node_is_emptied_is_told(world: World) -> None:
    jobs = two_halves(world)
    world.context.ledger.plans.set_pause("root")
    tick_until(world, lambda: world.cycle.preview().emptied is not None, seconds=1.0)
    found = world.cycle.preview()
    assert found.emptied is not None
    node, why = found.emptied.node, found.emptied.why
    assert why.startswith(f"{node} is emptied, so that it can be switched off: 50 % of its CPUs and ")
    view = preview_view(found, world.time, None, dot=True)
    assert view["summary"].startswith(why)
    assert [step["kind"] for step in view["steps"]] == ["migrate"]
    assert not together(world, *jobs)
    ledger = world.context.ledger
    ledger.plans.clear_pause()
    world.alive(world.cycle.run)
    assert world.events("node-emptied") == [why]
    plan = ledger.plans.plans(1)[0]
    assert (plan.policy, plan.sentence.startswith(why)) == (ENERGY, True)
    if plan.state is PlanState.RUNNING:
        assert power_sentence(ledger) is not None and why in str(power_sentence(ledger))
    tick_until(world, lambda: together(world, *jobs))
    moved = next(job for job in jobs if [row for row in ledger.plans.decisions(str(job)) if row.code == "emptied"])
    assert next(row for row in ledger.plans.decisions(str(moved)) if row.code == "emptied").sentence == why
    assert why not in str(power_sentence(ledger)), "it is done"


@pytest.mark.parametrize("why", ["objective", "young", "too much used", "reserve", "quiet", "saved state", "kept on"])
def test_no_node_is_emptied(directory: Path, why: str) -> None:
    power: dict[str, Any] = {"reserve": 2} if why == "reserve" else {"underload": 0.2} if why == "too much used" else {}
    world = saving_world(directory, **power)
    if why == "objective":
        planning = world.settings.planning.model_copy(update={"objective": "cost"})
        world.settings = world.settings.model_copy(update={"planning": planning})
        world.start_engine()
    if why == "kept on":
        world.rms.powering.saving = replace(world.rms.powering.saving, nodes=(KeptOn(frozenset(NODES)),))
    if why == "saved state":
        blocker = (world.sleeping(cpus=2), world.running(cpus=2))[1]
        assert world.context.ledger.vms(world.sleeping(cpus=2))[0].image_node == "n2"
        world.rms.finish(blocker)
        world.until(blocker, S.TERMINATED)
    jobs = two_halves(world, age_s=10.0 if why == "young" else 3000.0)
    if why == "quiet":
        world.context.ledger.plans.set_pause("root")
    for _ in range(8):
        world.tick(10.0)
    assert not together(world, *jobs)
    assert world.events("node-emptied") == []


def test_nothing_of_its_vms_is_left_on_a_node_that_goes_off(world: World) -> None:
    """Its agent did not answer when their files there were to be removed after the migration."""
    jobs = two_halves(world)
    halves = [world.host(job) for job in jobs]
    world.context.ledger.plans.set_pause("root")
    tick_until(world, lambda: world.cycle.preview().emptied is not None, seconds=1.0)
    world.context.ledger.plans.clear_pause()
    world.nodes.fail_next("drop_config", UnavailableError("the agent does not answer"))
    tick_until(world, lambda: together(world, *jobs))
    assert tuple(sorted(halves)) == ("n1", "n2")
    (left,) = {*halves} - {world.host(job) for job in jobs}
    tick_until(world, lambda: is_off(world, left))
    assert world.nodes.configs(left) == []
    assert all(left not in vm.touched for job in jobs for vm in world.context.ledger.vms(job))


@pytest.mark.parametrize("hosts", [("n1", "n[2-3]"), ("n[1-2]", "n3")])
def test_vms_stay_in_their_group(directory: Path, hosts: tuple[str, str]) -> None:
    world = saving_world(directory, underload=0.1)
    jobs = two_halves(world)
    groups = {name: Group(hosts=each) for name, each in zip("ab", hosts, strict=True)}
    power = world.settings.power.model_copy(update={"underload": 0.5})
    world.settings = world.settings.model_copy(update={"group": groups, "power": power})
    world.start_engine()
    for _ in range(30):
        world.tick(20.0)
    assert together(world, *jobs) == (hosts[0] == "n[1-2]")
    unharmed(world, *jobs)


def test_one_node_at_a_time_and_none_while_a_vjob_waits(world: World) -> None:
    jobs = two_halves(world)
    tall = world.submit(vms=3, cpus=2)  # never fits beside them
    for _ in range(8):
        world.tick(10.0)
    assert not together(world, *jobs)
    world.rms.cancel(tall)
    tick_until(world, lambda: together(world, *jobs))
    assert len(world.events("node-emptied")) == 1


def test_after_a_look_in_vain_the_next_comes_later_and_at_once_when_vjobs_change(world: World) -> None:
    world.running()
    looks: list[float] = []
    find = Emptier._busy

    def note(emptier: Emptier) -> set[str]:
        looks.append(world.time)
        return find(emptier)

    world.cycle.deciding._empties._busy = note.__get__(world.cycle.deciding._empties)  # type: ignore[attr-defined]
    for _ in range(100):
        world.tick(10.0)
    assert 3 <= len(looks) <= 8
    job = world.running()
    looks.clear()
    world.tick(1.0)
    assert len(looks) <= 1
    world.rms.finish(job)
    for _ in range(3):
        world.tick(1.0)
    assert looks


def test_one_group_after_the_other_is_asked_for_a_plan(directory: Path) -> None:
    world = saving_world(directory, underload=0.1)
    two_halves(world)
    for _ in range(3):
        world.tick(1.0)
    groups = {"a": Group(hosts="n1"), "b": Group(hosts="n[2-3]")}
    power = world.settings.power.model_copy(update={"underload": 0.5})
    world.settings = world.settings.model_copy(update={"group": groups, "power": power})
    world.start_engine()
    asked: list[list[str]] = []

    def note(source: Configuration, prepared: Any, part: Configuration, terms: Any) -> None:
        asked.append([node.name for node in part.nodes])

    world.cycle.deciding._empties._in_part = note  # type: ignore[attr-defined]
    tick_until(world, lambda: len(asked) == 1, seconds=1.0)
    assert world.cycle.preview().emptied is None, "a preview is nobody's turn"
    world.tick(1.0)
    assert asked == [["n1"], ["n2", "n3"], ["n2", "n3"]]
    for _ in range(10):
        world.tick(1.0)
    assert len(asked) == 3, "after all were asked in vain the next look comes later"


# -- killed at any instant -------------------------------------------------------------------------------------------


def emptied_and_back(world: World, kill_at: int | None) -> int:
    jobs = two_halves(world)
    world.start_engine(kill_at)
    first = world.life
    tick_until(world, lambda: together(world, *jobs), ticks=200)
    (node,) = {world.host(job) for job in jobs}
    left = next(name for name in ("n1", "n2") if name != node)
    tick_until(world, lambda: is_off(world, left, "n3"), ticks=300)
    new = world.submit(cpus=2, vms=1)
    tick_until(world, lambda: world.state(new) is S.RUNNING, ticks=300)
    unharmed(world, *jobs, new)
    return first.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_being_emptied(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    total = emptied_and_back(saving_world(directory / "0"), None)
    assert total > 40
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            emptied_and_back(saving_world(where), instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error
