"""An operator prefers that vjobs run, or that they do not: the engine obeys in its next cycles, until they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fresh_ledger import in_memory
from scenarios.world import CPUS, NODES, World

from rmsplugin.errors import ForbiddenError, NotFoundError, RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState

S = VJobState
ROOT, USER = 0, 65534


def prefer(world: World, job: object, state: str, uid: int = ROOT) -> dict[str, Any]:
    return world.requests().prefer(uid, str(job), state)


def some(world: World, ticks: int = 20) -> None:
    for _ in range(ticks):
        world.tick()


def full(world: World) -> list[int]:
    """A vjob on each node, started long ago."""
    jobs = [world.running(cpus=CPUS) for _ in NODES]
    world.pass_time(3600)
    world._give_signs_of_life()
    return jobs


def test_a_vjob_that_should_not_run_is_suspended_and_goes_on_when_that_is_taken_back(world: World) -> None:
    job = world.running()
    assert prefer(world, job, "sleeping") == {"vjobs": [str(job)], "refused": {}}
    world.until(job, S.SLEEPING)
    some(world)
    shown = world.requests().vjob(ROOT, str(job))
    assert (shown["state"], shown["preference"], shown["position"]) == ("sleeping", "sleeping", None)
    assert shown["reason"].startswith("an administrator prefers that it does not run; it stays so")
    prefer(world, job, "auto")
    world.until(job, S.RUNNING)
    assert world.requests().vjob(ROOT, str(job))["preference"] == ""
    assert world.events("preferred") == [
        "root prefers that it does not run",
        "root leaves it to the policy again",
    ]


def test_a_waiting_vjob_that_should_not_run_waits_beside_nodes_that_are_free_again(world: World) -> None:
    jobs = full(world)
    last = world.submit(vms=1, cpus=CPUS)
    some(world, 3)
    prefer(world, last, "sleeping")
    world.rms.finish(jobs[0])
    world.until(jobs[0], S.TERMINATED)
    some(world)
    assert world.state(last) is S.WAITING
    assert "prefers that it does not run" in world.requests().vjob(ROOT, str(last))["reason"]
    prefer(world, last, "auto")
    world.until(last, S.RUNNING)


def test_no_room_is_asked_for_a_vjob_that_should_not_run() -> None:
    """On nodes that the engine takes from Slurm only while vjobs need them."""
    with in_memory() as directory:
        world = World(directory, rooms="elastic")
        job = world.submit(vms=1)
        world.until(job, S.RUNNING, ticks=200)
        prefer(world, job, "sleeping")
        world.until(job, S.SLEEPING)
        some(world, 400)
        seen = world.cycle.seen
        assert seen is not None and not seen.rooms.by_node, "all rooms are given back"
        prefer(world, job, "auto")
        world.until(job, S.RUNNING, ticks=200)
        world.close()


def test_others_make_way_for_a_waiting_vjob_that_should_run(world: World) -> None:
    jobs = full(world)
    last = world.submit(vms=1, cpus=CPUS, priority=0)
    some(world)
    assert world.state(last) is S.WAITING
    prefer(world, last, "running")
    world.until(last, S.RUNNING)
    assert sorted(world.states(*jobs)) == [S.RUNNING, S.RUNNING, S.SLEEPING]
    some(world, 100)
    assert world.state(last) is S.RUNNING, "and it makes way for none of them"


def test_a_vjob_suspended_by_hand_is_resumed_when_it_should_run(world: World) -> None:
    job = world.running()
    world.requests().suspend(ROOT, str(job))
    world.until(job, S.SLEEPING)
    some(world)
    assert world.state(job) is S.SLEEPING, "nobody resumes it"
    prefer(world, job, "running")
    world.until(job, S.RUNNING)


def test_a_preference_ends_with_the_vjob(world: World) -> None:
    job = world.running()
    prefer(world, job, "running")
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.context.ledger.vjob(job).preference == ""
    with pytest.raises(RefusedError, match="has ended"):
        prefer(world, job, "sleeping")


def test_a_preference_outlives_a_restart_of_the_engine(world: World) -> None:
    job = world.running()
    prefer(world, job, "sleeping")
    world.start_engine()
    world.until(job, S.SLEEPING)


def test_an_arrays_id_means_its_elements_and_those_that_slurm_has_not_split_off_are_named(world: World) -> None:
    array = world.submit(vms=1, array=[1, 2, 3], array_limit=2)
    for _ in range(60):
        world.tick()
        rows = {row.display_id for row in world.context.ledger.vjobs() if row.state is S.RUNNING}
        if len(rows) == 2:
            break
    (left,) = {f"{array}_{index}" for index in (1, 2, 3)} - rows
    answer = prefer(world, array, "running")
    assert set(answer["vjobs"]) == rows
    assert list(answer["refused"]) == [left] and "not split off" in answer["refused"][left]
    assert prefer(world, f"{array}_[1-2]", "auto")["refused"].keys() <= {left}
    with pytest.raises(RefusedError, match="not split off"):
        prefer(world, left, "running")


def test_a_vjob_that_runs_in_a_partition_where_none_is_suspended_is_refused(world: World) -> None:
    job = world.running()
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")
    world.tick()
    with pytest.raises(RefusedError, match="PreemptMode=OFF"):
        prefer(world, job, "sleeping")
    assert prefer(world, job, "running")["vjobs"] == [str(job)]


def test_only_operators_prefer(world: World) -> None:
    job = world.running()
    with pytest.raises(ForbiddenError, match="only operators"):
        prefer(world, job, "sleeping", USER)
    assert world.context.ledger.vjob(job).preference == ""


def test_what_is_no_vjob_is_refused_with_a_sentence(world: World) -> None:
    world.tick()
    other = world.rms.submit(user="nobody", uid=USER, partition="plain", cpus=1, memory_mib=1)
    world.tick()
    with pytest.raises(NotFoundError, match="which has no vjobs"):
        prefer(world, other, "running")
    with pytest.raises(NotFoundError, match="no vjob 4711"):
        prefer(world, 4711, "running")
    new = world.submit(vms=1)
    with pytest.raises(UnavailableError, match="has not met its job yet"):
        prefer(world, new, "running")
