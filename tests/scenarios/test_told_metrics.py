"""Metrics change as vjobs run, wait, sleep, are paused and are lost, and say of the engine what its cycles did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios.world import CPUS, MEMORY_MIB, NODES, World
from unit.told_metrics import metrics_of, tick, value, values

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.observe.dead_nodes import record_gone
from rmsplugin.model.vjob import VJobState

MIB = 1 << 20


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    world = World(directory)
    yield world
    world.close()


def test_values_follow_vjobs_that_wait_run_are_paused_and_sleep(world: World) -> None:
    metrics = metrics_of(world)
    text = tick(world, metrics)
    assert value(text, "vjobs", "vjob", "running") == 0
    job = world.running(memory_mib=256)
    text = tick(world, metrics)
    assert value(text, "vjobs", "vjob", "running") == 1
    assert value(text, "capacity_cpus") == CPUS * len(NODES)
    assert value(text, "booked_cpus") == 1
    assert value(text, "booked_memory_bytes") >= 256 * MIB
    assert value(text, "action_duration_seconds_count", "run", "done") == 1
    assert value(text, "operation_duration_seconds_count", "start", "done") == 1
    world.ask(job, OperationKind.PAUSE)
    world.until(job, VJobState.PAUSED)
    metrics.cycle_ended()  # the next cycle lets it go on
    text = metrics.text()
    assert (value(text, "vjobs", "vjob", "paused"), value(text, "vjob_pauses_total", "vjob")) == (1, 1)
    assert value(text, "vjob_sleeps_total", "vjob") == 0
    world.ask(job, OperationKind.SUSPEND)
    world.until(job, VJobState.SLEEPING)
    world.context.ledger.update_vjob(job, submitted=world.time - 5000)  # its sleep counts, not its wait
    world.pass_time(600)
    text = tick(world, metrics)
    assert (value(text, "vjobs", "vjob", "sleeping"), value(text, "vjob_sleeps_total", "vjob")) == (1, 1)
    assert 600 <= value(text, "oldest_sleeping_seconds", "vjob") < 700
    assert value(text, "saved_state_bytes") == sum(vm.image_bytes for vm in world.context.ledger.vms(job)) > 0
    assert value(text, "booked_cpus") == 0


def test_values_follow_vjobs_that_wait_by_reason(world: World) -> None:
    metrics = metrics_of(world)
    for _ in NODES:
        world.running(cpus=CPUS)
    world.submit(vms=1, cpus=CPUS)
    tick(world, metrics)
    world.pass_time(300)
    text = tick(world, metrics)
    assert value(text, "vjobs", "vjob", "waiting") == 1
    assert 300 <= value(text, "oldest_waiting_seconds", "vjob") < 400
    waits = {labels: count for (name, labels), count in values(text).items() if name == "waits"}
    assert sum(waits.values()) == 1 and frozenset({"not-decided"}) not in waits
    world.context.ledger.plans.set_pause("root")
    text = tick(world, metrics)
    assert (value(text, "paused"), value(text, "waits", "engine-paused")) == (1, 1)


def test_values_follow_a_node_that_dies_and_what_was_lost_with_it(world: World) -> None:
    metrics = metrics_of(world)
    job = world.running()
    node = world.host(job)
    world.kill_node(node)
    text = tick(world, metrics)
    assert value(text, "nodes", "unreachable") == 1
    assert value(text, "vjob_losses_total", "vjob") == 0  # silence proves nothing
    record_gone(world.settings, world.context.ledger, node, "root")
    for _ in range(20):
        text = tick(world, metrics)
    assert value(text, "nodes", "gone") == 1
    assert value(text, "vjob_losses_total", "vjob") == world.context.ledger.vjob(job).losses == 1


def test_values_of_the_engine_itself(world: World) -> None:
    metrics = metrics_of(world)
    world.pass_time(50)
    assert value(metrics.text(), "cycle_age_seconds") == 50  # none has run since it began
    for _ in range(3):
        text = tick(world, metrics)
    assert value(text, "cycles_total", "done") == 3
    assert value(text, "cycle_age_seconds") == 1
    assert {name for (kind, name) in values(text) if kind == "cycle_phase_seconds_total"} == {
        frozenset({phase}) for phase in ("look", "follow", "decide", "care")
    }
    assert value(text, "ledger_bytes") > 0
    world.pass_time(100)
    text = metrics.text()
    assert value(text, "cycle_age_seconds") == 101


def test_capacity_is_that_of_the_hosts(world: World) -> None:
    text = tick(world, metrics_of(world))
    assert 0 < value(text, "capacity_memory_bytes") <= MEMORY_MIB * MIB * len(NODES)
