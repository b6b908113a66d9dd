"""A bound on the watts of all nodes: no vjob begins, and no node comes on, that could exceed it."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.test_nodes_switched_off import WATTS, is_off, make_world, states, tick_until, unharmed
from scenarios.world import NODES, World

from rmsplugin.engine.serve.views import node_views, power_sentence
from rmsplugin.model.vjob import VJobState

S = VJobState


def most_w(world: World) -> float:
    """The watts that all nodes may take, as their BMCs have them, and as VMs are there."""
    used = {world.host(vjob.job_id) for vjob in world.context.ledger.vjobs() if vjob.state is S.RUNNING}
    on = {node for node in NODES if world.power.bmcs[node].on}
    return sum(WATTS["busy_w"] if each in used else WATTS["idle_w"] if each in on else WATTS["off_w"] for each in NODES)


def test_no_vjob_begins_on_a_node_that_could_exceed_the_bound(directory: Path) -> None:
    """Three nodes that are on take 300 W, and each that computes takes 100 W more."""
    world = make_world(directory, cap_w=450.0, switch=False)
    first, second = (world.submit(vms=1, cpus=2) for _ in range(2))
    tick_until(world, lambda: world.state(first) is S.RUNNING)
    for _ in range(30):
        world.tick(10.0)
        assert world.state(second) is S.WAITING
        assert most_w(world) <= 450
    found = node_views(world.context.ledger, world.capacities(), world.cycle.seen, {})
    views = {view["name"]: view["reason"] for view in found}
    told = "nodes may take 400 W as they are used, of 450 W in all (power.cap_w)"
    why = f"VMs there could exceed the site's bound: {told}"
    assert [views[node] for node in NODES if node != world.host(first)] == [why] * 2
    assert f"nodes that take no VM: n2, n3: {why}" in str(power_sentence(world.context.ledger, world.cycle.seen))
    assert world.cycle._borrowing.lendable(world.cycle.seen) == set(), "no room is of use there"
    world.rms.finish(first)
    tick_until(world, lambda: world.state(second) is S.RUNNING)
    unharmed(world, second)


def test_two_small_vjobs_are_on_the_node_that_may_be_used(directory: Path) -> None:
    world = make_world(directory, cap_w=450.0, switch=False)
    jobs = [world.submit(vms=1) for _ in range(2)]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 2)
    assert len({world.host(job) for job in jobs}) == 1


def test_a_node_comes_on_only_within_the_bound(directory: Path) -> None:
    """With two nodes on, and one off, 405 W may be taken; the third one would make 600 W of them."""
    world = make_world(directory, cap_w=450.0, reserve=3)
    jobs = [world.submit(vms=1, cpus=2, time_limit_s=100_000) for _ in range(3)]
    tick_until(world, lambda: world.state(jobs[0]) is S.RUNNING)
    world.settings = world.settings.model_copy(update={"power": world.settings.power.model_copy(update={"reserve": 0})})
    world.start_engine()
    tick_until(world, lambda: world.state(jobs[1]) is S.RUNNING)
    for _ in range(60):
        world.tick(10.0)
        assert most_w(world) <= 450
        assert world.states(*jobs).count(S.RUNNING) <= 2, "the policy may have each of them run in turn"
    assert is_off(world, "n3")
    unharmed(world, *jobs)


def test_the_reserve_and_begin_times_switch_no_node_on_beyond_the_bound(directory: Path) -> None:
    world = make_world(directory, cap_w=450.0)
    job = world.running(cpus=2, time_limit_s=100_000)
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    world.settings = world.settings.model_copy(update={"power": world.settings.power.model_copy(update={"reserve": 2})})
    world.start_engine()
    world.submit(vms=2, cpus=2, begin=world.time + 300)
    for _ in range(60):
        world.tick(10.0)
        assert most_w(world) <= 450
    assert "n3" in states(world)
    unharmed(world, job)


def test_a_bound_that_is_exceeded_already_stops_nobody_and_is_told(directory: Path) -> None:
    world = make_world(directory)
    jobs = [world.running(cpus=2) for _ in range(2)]
    power = world.settings.power.model_copy(update={"cap_w": 300.0})
    world.settings = world.settings.model_copy(update={"power": power})
    world.start_engine()
    waits = world.submit(vms=1, cpus=2)
    for _ in range(10):
        world.tick(10.0)
    assert world.states(*jobs, waits) == [S.RUNNING, S.RUNNING, S.WAITING]
    (told,) = [each for each in world.cycle.report.problems if "power.cap_w" in each]
    assert told.endswith(": vjobs that run go on, and none begins on another node")
    unharmed(world, *jobs)


@pytest.mark.parametrize("cap_w", [None, 10_000.0])
def test_a_bound_that_is_far_away_changes_nothing(directory: Path, cap_w: float | None) -> None:
    world = make_world(directory, cap_w=cap_w, switch=False)
    jobs = [world.submit(vms=1, cpus=2) for _ in range(3)]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3)
