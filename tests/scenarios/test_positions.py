"""The position of a vjob in the queue is told from its own key, and is the one that all keys together give."""

from __future__ import annotations

import random
import re

from scenarios.world import CPUS, World

from rmsplugin.engine.assess.queue import queue_key
from rmsplugin.engine.decide.telling import differ_in_amounts
from rmsplugin.model.vjob import VJobState as S


def told(world: World, job: int) -> dict[str, object]:
    row = world.context.ledger.vjob(job)
    return world.requests().standings.of(row, world.context.ledger.vms(job))


def by_all_keys(world: World) -> list[int]:
    """The waiting vjobs, sorted by the keys of all of them."""
    seen, keys = world.cycle.seen, []
    assert seen is not None
    for vjob in world.context.ledger.vjobs():
        job = seen.jobs[vjob.job_id]
        if vjob.state is S.WAITING and job.eligible:
            keys.append((queue_key(seen, vjob, job.priority, vjob.submitted), vjob.job_id))
    return [job for _, job in sorted(keys)]


def test_positions_are_those_of_the_whole_queue(world: World) -> None:
    world.running(cpus=CPUS, time_limit_s=86400.0, vms=len(world.sizes))
    chance = random.Random(7)
    jobs = [world.submit(vms=1, cpus=CPUS, priority=chance.randrange(1, 5)) for _ in range(12)]
    world.tick()
    queue = by_all_keys(world)
    assert sorted(queue) == jobs
    assert queue != jobs, "priorities are not in the order of submission"
    assert [told(world, job)["position"] for job in queue] == [*range(1, 13)]
    assert [told(world, job)["priority"] for job in queue] == sorted((p for p in priorities(world, jobs)), reverse=True)


def priorities(world: World, jobs: list[int]) -> list[int]:
    return [world.rms.job(job).priority for job in jobs]


def test_one_that_runs_or_is_held_or_came_since_the_look_has_no_position(world: World) -> None:
    runs = world.running(cpus=CPUS, time_limit_s=86400.0, vms=len(world.sizes))
    waits, held = world.submit(vms=1), world.submit(vms=1)
    world.tick()
    world.rms.hold(held)
    world.tick()
    assert [told(world, job)["position"] for job in (runs, waits, held)] == [None, 1, None]
    late = world.submit(vms=1)
    assert world.requests().standings.of_job(world.rms.job(late))["position"] is None


def test_amounts_are_told_as_last_decided_though_the_ledger_has_older_ones(world: World) -> None:
    world.running(cpus=CPUS, time_limit_s=86400.0, vms=len(world.sizes))
    job = world.submit(vms=1)
    for _ in range(2):
        world.tick()
    recorded = world.context.ledger.vjob(job).reason
    newest = world.cycle.deciding.told[str(job)]
    older = re.sub(r"(\d+) MiB", r"7\1 MiB", recorded)
    assert differ_in_amounts(older, newest.sentence)
    world.context.ledger.update_vjob(job, reason=older)
    assert told(world, job)["reason"] == newest.sentence
    world.context.ledger.update_vjob(job, reason="its start failed: no disk")
    assert told(world, job)["reason"] == "its start failed: no disk", "what is no older decision is told as it is"
