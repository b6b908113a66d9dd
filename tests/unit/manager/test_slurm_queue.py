"""The vjobs of Slurm's queue, as the leader of managers sees them."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenarios.world import World

from rmsplugin.groups.choosing import Shape
from rmsplugin.groups.giving import Live
from rmsplugin.manager.queue import SlurmQueue
from rmsplugin.model.rules import admit


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def read(world: World, queue: SlurmQueue | None = None) -> tuple[list[Live], frozenset[int]]:
    queue = queue or SlurmQueue(world.context.settings, world.rms)
    return queue.read(world.rms.snapshot())


def test_vjobs_come_in_the_order_of_their_priority_with_what_they_demand(world: World) -> None:
    low = world.submit(vms=1, priority=10)
    high = world.submit(vms=3, cpus=2, memory_mib=512, priority=20)
    found, ended = read(world)
    assert [each.job_id for each in found] == [high, low]
    assert ended == frozenset()
    ((demand, count),) = found[0].shape.vms
    assert (demand.cpus, count) == (2, 3)
    assert demand.memory_mib > 512, "with the image and the hypervisor's share"
    assert found[0].shape.rules == ()


def test_a_constraint_becomes_a_rule_of_hosts(world: World) -> None:
    world.submit(constraints={"nodes": "n2"})
    ((vjob,), _) = read(world)
    assert [admit(vjob.shape.rules, node) for node in ("n1", "n2")] == [False, True]


def test_one_that_is_held_is_not_eligible_and_one_that_was_not_wrapped_has_no_shape(world: World) -> None:
    held = world.submit(vms=1)
    world.rms.hold(held)
    plain = world.submit(script="#!/bin/sh\ntrue\n")
    found = {each.job_id: each for each in read(world)[0]}
    assert not found[held].eligible
    assert found[plain].shape == Shape.of((), ())


def test_an_ended_job_is_told_as_long_as_slurm_knows_it(world: World) -> None:
    job = world.submit(vms=1)
    world.rms.cancel(job)
    assert read(world) == ([], frozenset({job}))


def test_the_script_of_a_job_is_asked_for_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.submit(vms=1)
    queue = SlurmQueue(world.context.settings, world.rms)
    first = read(world, queue)
    monkeypatch.setattr(world.rms, "batch_script", lambda job: pytest.fail("asked again"))
    assert read(world, queue) == first


def test_the_elements_of_an_array_are_one(world: World) -> None:
    array = world.submit(vms=1, array=[1, 2, 3])
    assert [(each.job_id, each.eligible) for each in read(world)[0]] == [(array, True)]
