"""The contract of ``adapters.rms.base.Rms``: rooms, and what takes them away again; see rms_worlds."""

from __future__ import annotations

from typing import Any

import pytest
from contract.rms_worlds import World

from rmsplugin.adapters.rms.base import ROOM_NAME, JobState
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.errors import RefusedError


def state_of(world: World, node: str) -> str:
    return world.rms.snapshot().nodes[node].state


def test_room_has_the_whole_node_until_it_is_cancelled(world: World) -> None:
    room = world.room("n1", time_limit_s=3600)
    job = world.wait_for(room, JobState.RUNNING)
    assert (job.name, job.user, job.partition, job.nodes) == (ROOM_NAME, "slurm", "vmhosts", ("n1",))
    # Slurm starts it shorter, down to the least time, where its backfill sees other plans for the node.
    assert 600 <= job.time_limit_s <= 3600
    # Slurm counts the time limit from when it has started the job's steps, which may be some seconds later.
    assert 0 <= job.end_time - job.start_time - job.time_limit_s <= 10
    assert job.preempt_time == 0
    assert "ALLOC" in state_of(world, "n1")
    world.rms.cancel(room)
    world.wait("the node", lambda: state_of(world, "n1") == "IDLE")


def test_room_waits_for_a_busy_node(world: World) -> None:
    native = world.submit("--nodelist=n1", gated=False)
    world.wait_for(native, JobState.RUNNING)
    room = world.room("n1")
    assert world.stays(lambda: world.rms.job(room).state is JobState.PENDING)
    assert world.rms.job(room).nodes == ("n1",)
    world.rms.cancel(native)
    world.wait_for(room, JobState.RUNNING)


@pytest.mark.e2e
@pytest.mark.parametrize("world", ["cli"], indirect=True)
def test_a_node_that_a_snapshot_shows_as_busy_has_its_job_in_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a room that starts while jobs and nodes are read would seem to be overtaken by another job."""
    commands = world.rms
    assert isinstance(commands, SlurmCli)
    run, rooms = commands._run, []

    def room_starts_after_first_look(*words: str, **options: Any) -> str:
        text = run(*words, **options)
        if not rooms and (words[0] == "squeue" or "show node" in options.get("text", "")):
            rooms.append(0)
            rooms[0] = world.room("n1")
            world.wait_for(rooms[0], JobState.RUNNING)
        return text

    monkeypatch.setattr(commands, "_run", room_starts_after_first_look)
    snapshot = commands.snapshot()
    running = [job.job_id for job in snapshot.jobs if job.state is JobState.RUNNING]
    assert rooms[0] in running or "ALLOC" not in snapshot.nodes["n1"].state


def test_no_room_on_no_node(world: World) -> None:
    for node, partition in (("nowhere", "vmhosts"), ("n1", "nothing")):
        with pytest.raises(RefusedError):
            world.rms.request_room(node, partition, time_limit_s=3600, time_min_s=600)


def test_extend(world: World) -> None:
    room = world.room("n1", time_limit_s=3600)
    start = world.wait_for(room, JobState.RUNNING).start_time
    for _ in range(2):
        world.rms.extend_room(room, 7230)
    job = world.rms.job(room)
    assert (job.time_limit_s // 60, (job.end_time - start) // 60) == (120, 120)


def preempted(world: World, room: int) -> tuple[int, int]:
    """A room that has to leave, and the native job for which."""
    world.wait_for(room, JobState.RUNNING)
    before = world.now()
    native = world.submit("--nodelist=n1", "--ntasks=2", gated=False)
    world.wait("the preemption", lambda: world.rms.job(room).preempt_time > 0)
    assert before - 1 <= world.rms.job(room).preempt_time <= world.now()
    return room, native


def test_native_job_preempts_the_room_which_is_given_back(world: World) -> None:
    grace_s = world.rms.snapshot().partitions["vmhosts"].grace_time_s
    room, native = preempted(world, world.room("n1"))
    job = world.rms.job(room)
    assert (job.state, job.completing) == (JobState.RUNNING, False)
    assert abs(job.end_time - job.preempt_time - grace_s) <= 1
    assert world.rms.job(native).state is JobState.PENDING
    with pytest.raises(RefusedError):
        world.rms.extend_room(room, 7200)
    world.rms.cancel(room)
    assert world.wait_for(native, JobState.RUNNING).nodes == ("n1",)
    assert world.rms.job(room).detail == "CANCELLED"


def test_room_that_is_not_given_back_ends_after_its_grace_time(world: World) -> None:
    grace_s = world.rms.snapshot().partitions["vmhosts"].grace_time_s
    room, native = preempted(world, world.room("n1"))
    since = world.rms.job(room).preempt_time
    job = world.wait_for(room, JobState.ENDED, seconds=grace_s + 30)
    assert job.detail == "PREEMPTED"
    assert job.end_time - since >= grace_s - 1
    world.wait_for(native, JobState.RUNNING)


def test_only_the_room_on_the_node_that_is_needed_is_preempted(world: World) -> None:
    other = world.room("n2")
    world.wait_for(other, JobState.RUNNING)
    preempted(world, world.room("n1"))
    assert world.stays(lambda: not world.rms.job(other).preempt_time)


def test_room_is_as_short_as_a_reservation_ahead_demands(world: World) -> None:
    name = world.reserve("n1", in_s=1800, for_s=3600)
    reservation = world.rms.snapshot().reservations[name]
    assert (reservation.nodes, reservation.end_time - reservation.start_time) == (("n1",), 3600)
    assert abs(reservation.start_time - world.now() - 1800) <= 60
    too_long = world.room("n1", time_limit_s=7200, time_min_s=3600)
    assert world.stays(lambda: world.rms.job(too_long).state is JobState.PENDING)
    world.rms.cancel(too_long)
    room = world.room("n1", time_limit_s=7200, time_min_s=600)
    job = world.wait_for(room, JobState.RUNNING)
    assert 600 <= job.time_limit_s <= 1800
    assert job.end_time <= reservation.start_time


def test_drain(world: World) -> None:
    room = world.room("n1")
    world.wait_for(room, JobState.RUNNING)
    world.drain("n1", "disk [x] State=DOWN")
    node = world.rms.snapshot().nodes["n1"]
    assert (node.up, node.draining, node.reason) == (True, True, "disk [x] State=DOWN")
    assert "ALLOC" in node.state
    assert world.stays(lambda: world.rms.job(room).state is JobState.RUNNING)
    world.rms.cancel(room)
    world.wait("the drain", lambda: state_of(world, "n1") == "IDLE+DRAIN")
    again = world.room("n1")
    assert world.stays(lambda: world.rms.job(again).state is JobState.PENDING)
