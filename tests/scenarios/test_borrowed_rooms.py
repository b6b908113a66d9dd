"""Nodes are borrowed from Slurm and given back with nothing lost, also when the engine is killed meanwhile."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import GRACE_S, NODES, World, spread

from rmsplugin.adapters.nodes.base import RoomEnd
from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, RmsJob, RmsReservation
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import OperationFailedError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.model.vjob import VJobState

S = VJobState
#: Of the instants of acquiring and giving back CI tries so many.
SAMPLE = 18


@pytest.fixture
def elastic(directory: Path) -> World:
    return World(directory, rooms="elastic", room_idle_s=10)


@pytest.fixture
def dedicated(directory: Path) -> World:
    """A world whose engine decides by `mixed`: by the order of the queue, and by patience."""
    return World(directory, policy="mixed")


def rooms(world: World) -> dict[str, RmsJob]:
    """Jobs of rooms that have not ended, by node."""
    jobs = [job for job in world.rms.snapshot().jobs if job.name == ROOM_NAME and job.state is not JobState.ENDED]
    found = {job.nodes[0]: job for job in jobs}
    assert len(found) == len(jobs), "one room for each node"
    return found


def tick_until(world: World, condition: object, ticks: int = 60) -> None:
    for _ in range(ticks):
        world.tick()
        if not world.life.dead and condition():  # type: ignore[operator]
            return
    raise AssertionError(f"never: {world.cycle.report}")


def native(world: World, *nodes: str, duration_s: float = 3600) -> list[int]:
    """Whole-node jobs of a partition of a higher tier."""
    return [
        world.rms.submit(partition="plain", node=node, cpus=2, memory_mib=1024, time_limit_s=duration_s)
        for node in nodes
    ]


def unharmed(world: World, *jobs: int) -> None:
    """No VM was ended under way, nothing ran twice, nothing began again."""
    assert world.hypervisor.violations == []
    assert world.ended_by_epilog == []
    for job in jobs:
        vjob = world.context.ledger.vjob(job)
        assert (vjob.losses, vjob.script_started) == (0, True)


def test_dedicated_hosts_are_held_from_the_beginning(dedicated: World) -> None:
    tick_until(dedicated, lambda: set(rooms(dedicated)) == set(NODES))


def test_an_elastic_partition_borrows_what_vjobs_need_and_gives_it_back(elastic: World) -> None:
    for _ in range(3):
        elastic.tick()
    assert rooms(elastic) == {}
    job = elastic.running()
    assert set(rooms(elastic)) == {elastic.host(job)}
    elastic.rms.finish(job)
    elastic.until(job, S.TERMINATED)
    assert len(rooms(elastic)) == 1, "for a while another vjob may use it"
    tick_until(elastic, lambda: rooms(elastic) == {})


def idle_room(world: World) -> RmsJob:
    """A room that nobody needs any more, and that is still held."""
    job = world.running()
    [room] = rooms(world).values()
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert rooms(world) == {room.nodes[0]: room}
    return room


def given_back(world: World) -> list[str]:
    return [event.message for event in world.context.ledger.events() if event.kind == "room-given-back"]


def test_a_room_is_ended_by_its_node_and_has_completed(elastic: World) -> None:
    room = idle_room(elastic)
    tick_until(elastic, lambda: rooms(elastic) == {})
    assert elastic.rms.job(room.job_id).detail == "COMPLETED"
    assert given_back(elastic) == [f"room {room.job_id} on {room.nodes[0]}: nothing runs there"]


@pytest.mark.parametrize("error", [OperationFailedError("not a command"), UnavailableError("silent")])
def test_a_room_whose_node_cannot_end_it_is_ended_by_slurm(elastic: World, error: RmspluginError) -> None:
    room = idle_room(elastic)
    elastic.nodes.fail_next("end_room", error)
    tick_until(elastic, lambda: rooms(elastic) == {})
    assert elastic.rms.job(room.job_id).detail == "CANCELLED"
    assert given_back(elastic) == [f"room {room.job_id} on {room.nodes[0]}: nothing runs there (by scancel: {error})"]


def test_a_room_of_an_older_release_is_ended_by_slurm(elastic: World) -> None:
    room = idle_room(elastic)
    elastic.nodes.end_script = lambda job_id: False
    tick_until(elastic, lambda: rooms(elastic) == {})
    assert elastic.rms.job(room.job_id).detail == "CANCELLED"


def test_an_engine_whose_turn_is_over_ends_no_room_in_any_way(elastic: World) -> None:
    room = idle_room(elastic)
    elastic.nodes.of_epoch(7).obey(room.nodes[0])
    tick_until(elastic, lambda: ("end_room", room.nodes[0], str(room.job_id)) in elastic.nodes.calls)
    for _ in range(3):
        elastic.tick()
    assert rooms(elastic) == {room.nodes[0]: room} and given_back(elastic) == []


def test_a_room_where_its_node_sees_a_vm_is_ended_in_no_way(elastic: World, monkeypatch: pytest.MonkeyPatch) -> None:
    room, asked = idle_room(elastic), list[int]()

    def end_room(node: str, job_id: int) -> RoomEnd:
        asked.append(job_id)
        return RoomEnd(False, ("vjob9-0",))

    monkeypatch.setattr(elastic.nodes, "end_room", end_room)
    tick_until(elastic, lambda: asked == [room.job_id])
    assert rooms(elastic) == {room.nodes[0]: room} and given_back(elastic) == []
    assert f"room {room.job_id} on {room.nodes[0]} is not given back: vjob9-0 is there" in elastic.cycle.report.begun


class HungAgent:
    """A node whose agent does not answer that it should end a room, until it is let go on; other nodes do."""

    def __init__(self, world: World, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._node, self._end_room = node, world.nodes.end_room
        self._goes_on = threading.Event()
        self.error: RmspluginError | None = None
        self.asked: list[str] = []
        monkeypatch.setattr(world.nodes, "end_room", self.end_room)

    def end_room(self, node: str, job_id: int) -> RoomEnd:
        self.asked.append(node)
        if node == self._node:
            assert self._goes_on.wait(PATIENCE_S)
            if self.error is not None:
                raise self.error
        return self._end_room(node, job_id)

    def go_on(self, world: World, error: RmspluginError | None = None) -> None:
        """Answer, and wait until the engine may hear it."""
        self.error = error
        self._goes_on.set()
        for thread in threading.enumerate():
            if thread.name.startswith("end room"):
                thread.join(PATIENCE_S)


def idle_rooms(world: World) -> dict[str, RmsJob]:
    """Two rooms that nobody needs any more, and that are still held."""
    jobs = [world.running(cpus=2), world.running(cpus=2)]
    found = rooms(world)
    for job in jobs:
        world.rms.finish(job)
    for job in jobs:
        world.until(job, S.TERMINATED)
    assert len(found) == 2 and rooms(world) == found
    return found


def test_no_cycle_waits_for_a_node_that_does_not_answer_that_it_ends_a_room(
    elastic: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hung, room), (other, _) = sorted(idle_rooms(elastic).items())
    agent = HungAgent(elastic, hung, monkeypatch)
    tick_until(elastic, lambda: set(rooms(elastic)) == {hung})
    assert sorted(agent.asked) == [hung, other], "the other one was not kept waiting"
    assert f"{hung} has not answered yet whether it ends room {room.job_id}" in elastic.cycle.report.begun
    job = elastic.running()
    assert elastic.host(job) != hung, "its room may end at any time"
    agent.go_on(elastic)
    tick_until(elastic, lambda: hung not in rooms(elastic))
    assert agent.asked.count(hung) == 1
    assert given_back(elastic).count(f"room {room.job_id} on {hung}: nothing runs there") == 1
    assert "room-gone" not in [event.kind for event in elastic.context.ledger.events()]
    unharmed(elastic, job)


def test_a_room_whose_node_has_not_answered_in_time_is_ended_by_slurm_in_a_later_cycle(
    elastic: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (hung, room), _ = sorted(idle_rooms(elastic).items())
    agent = HungAgent(elastic, hung, monkeypatch)
    tick_until(elastic, lambda: set(rooms(elastic)) == {hung})
    refusals = [RefusedError("not now")] * 3
    cancel = elastic.rms.cancel

    def refused(job_id: int) -> None:
        if refusals:
            raise refusals.pop()
        cancel(job_id)

    monkeypatch.setattr(elastic.rms, "cancel", refused)
    agent.go_on(elastic, UnavailableError("silent"))
    tick_until(elastic, lambda: rooms(elastic) == {})
    assert agent.asked.count(hung) == 1, "a node that did not answer is left alone for a while"
    assert elastic.rms.job(room.job_id).detail == "CANCELLED"
    assert f"room {room.job_id} on {hung}: nothing runs there (by scancel: silent)" in given_back(elastic)


def test_a_node_that_could_not_end_a_room_is_asked_again_less_and_less_often(
    elastic: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, asked = idle_room(elastic), list[float]()

    def end_room(node: str, job_id: int) -> RoomEnd:
        asked.append(elastic.time)
        raise UnavailableError("silent")

    def cancel(job_id: int) -> None:
        raise UnavailableError("silent, too")

    monkeypatch.setattr(elastic.nodes, "end_room", end_room)
    monkeypatch.setattr(elastic.rms, "cancel", cancel)
    for _ in range(300):
        elastic.tick()
    assert rooms(elastic) == {room.nodes[0]: room}
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert len(pauses) >= 2 and pauses[0] >= 60 and all(b >= 1.5 * a for a, b in pairwise(pauses))


@pytest.mark.parametrize(("pending_s", "boot_s"), [(0.1, 40.0), (40.0, 0.0), (20.0, 20.0)])
def test_a_room_that_comes_later_than_an_idle_one_is_given_back_serves_the_vjob_that_waits_for_it(
    elastic: World, monkeypatch: pytest.MonkeyPatch, pending_s: float, boot_s: float
) -> None:
    monkeypatch.setattr(elastic.rms, "_boot_s", boot_s)
    monkeypatch.setattr(elastic.rms, "_start_delay_s", pending_s)
    job = elastic.running()
    assert set(rooms(elastic)) == {elastic.host(job)}
    kinds = [event.kind for event in elastic.context.ledger.events()]
    assert kinds.count("room-requested") == 1
    assert "room-given-back" not in kinds


@pytest.mark.parametrize(("pending_s", "boot_s"), [(0.1, 40.0), (40.0, 0.0)])
def test_the_idle_time_of_a_room_counts_from_when_it_is_held(
    elastic: World, monkeypatch: pytest.MonkeyPatch, pending_s: float, boot_s: float
) -> None:
    monkeypatch.setattr(elastic.rms, "_boot_s", boot_s)
    monkeypatch.setattr(elastic.rms, "_start_delay_s", pending_s)
    job = elastic.submit(vms=1)
    tick_until(elastic, lambda: rooms(elastic) != {})
    elastic.rms.cancel(job)
    tick_until(elastic, lambda: [room.state for room in rooms(elastic).values()] == [JobState.RUNNING])
    for _ in range(8):
        elastic.tick()
        assert len(rooms(elastic)) == 1, "another vjob may use what took so long to have"
    tick_until(elastic, lambda: rooms(elastic) == {})


def test_no_vm_starts_on_a_node_without_a_room(elastic: World) -> None:
    blockers = native(elastic, *NODES)
    job = elastic.submit(vms=1)
    for _ in range(10):
        elastic.tick()
    assert elastic.state(job) is S.WAITING
    assert "no node that it may use takes VMs now" in elastic.context.ledger.vjob(job).reason
    assert rooms(elastic) == {}, "a room on a busy node would wait for it while others fall idle"
    elastic.rms.finish(blockers[1])
    elastic.until(job, S.RUNNING)
    assert elastic.host(job) == "n2"


def test_a_native_job_has_its_node_and_the_vm_goes_on_elsewhere(elastic: World) -> None:
    job = elastic.running()
    home = elastic.host(job)
    other = elastic.running(cpus=2)  # has a node of its own
    elastic.rms.finish(other)
    [taken] = native(elastic, home)
    asked = elastic.time
    tick_until(elastic, lambda: elastic.rms.job(taken).state is JobState.RUNNING)
    assert elastic.time - asked < GRACE_S
    assert elastic.host(job) not in ("", home)
    assert elastic.state(job) is S.RUNNING
    unharmed(elastic, job)


def test_where_there_is_no_room_elsewhere_the_vjob_sleeps_and_is_resumed_by_itself(dedicated: World) -> None:
    jobs = [dedicated.running(cpus=2) for _ in NODES]
    home = dedicated.host(jobs[0])
    [taken] = native(dedicated, home)
    asked = dedicated.time
    tick_until(dedicated, lambda: dedicated.rms.job(taken).state is JobState.RUNNING)
    assert dedicated.time - asked < GRACE_S
    assert [dedicated.state(job) for job in jobs] == [S.SLEEPING, S.RUNNING, S.RUNNING]
    assert dedicated.rms.job(jobs[0]).state is JobState.SUSPENDED
    for _ in range(20):
        dedicated.tick()
    assert dedicated.state(jobs[0]) is S.SLEEPING
    dedicated.rms.finish(taken)
    dedicated.until(jobs[0], S.RUNNING)
    unharmed(dedicated, *jobs)


def test_a_vjob_that_sleeps_because_of_its_owner_is_not_resumed_by_the_engine(dedicated: World) -> None:
    job = dedicated.running()
    dedicated.rms.suspend(job)
    dedicated.until(job, S.SLEEPING)
    for _ in range(10):
        dedicated.tick()
    assert dedicated.state(job) is S.SLEEPING


@pytest.mark.parametrize("by", ["rmsplugin", "scontrol"])
def test_what_is_resumed_by_hand_where_all_rooms_were_given_back_has_a_node_borrowed_for_it(
    elastic: World, by: str
) -> None:
    job = elastic.running()
    elastic.ask(job, OperationKind.SUSPEND)
    elastic.until(job, S.SLEEPING)
    tick_until(elastic, lambda: rooms(elastic) == {})
    for _ in range(5):
        elastic.tick()
    assert rooms(elastic) == {}, "nobody borrows a node for it before it is asked for"
    if by == "scontrol":
        elastic.rms.resume(job)
    else:
        elastic.ask(job, OperationKind.RESUME)
    elastic.until(job, S.RUNNING)
    unharmed(elastic, job)


def test_a_start_that_is_overtaken_begins_again_elsewhere_and_is_no_loss(dedicated: World) -> None:
    tick_until(dedicated, lambda: len(rooms(dedicated)) == 3)
    job = dedicated.submit(vms=1)
    boots, goes_on = threading.Event(), threading.Event()

    def boot() -> None:
        boots.set()
        assert goes_on.wait(PATIENCE_S)

    dedicated.hypervisor.hook_next("boot", Point.DURING, boot)
    for _ in range(2):
        dedicated.alive(dedicated.cycle.run)
        dedicated.pass_time(1)
    assert boots.wait(PATIENCE_S)
    home = dedicated.host(job)
    native(dedicated, home)
    for _ in range(3):
        dedicated.alive(dedicated.cycle.run)
        dedicated.pass_time(1)
    assert dedicated.state(job) is S.STARTING
    goes_on.set()
    dedicated.until(job, S.RUNNING)
    assert dedicated.host(job) not in ("", home)
    assert dedicated.context.ledger.vjob(job).losses == 0
    assert dedicated.hypervisor.violations == []


@pytest.mark.parametrize("rooms_are", ["hold", "elastic"])
def test_a_drained_node_is_evacuated_and_given_back_and_borrowed_again_later(directory: Path, rooms_are: str) -> None:
    world = World(directory, rooms=rooms_are, room_idle_s=10)
    job = world.running()
    home = world.host(job)
    world.rms.set_node(home, draining=True, reason="new disk")
    tick_until(world, lambda: home not in rooms(world))
    assert "IDLE+DRAIN" in world.rms.snapshot().nodes[home].state
    world.until(job, S.RUNNING)
    assert world.host(job) not in ("", home)
    for _ in range(20):
        world.tick()
    assert home not in rooms(world)
    world.rms.set_node(home, draining=False, reason="")
    if rooms_are == "hold":
        tick_until(world, lambda: home in rooms(world))
    unharmed(world, job)


def test_a_vjob_whose_script_was_said_to_have_ended_long_ago_leaves_a_drained_node_all_the_same(
    dedicated: World,
) -> None:
    job = dedicated.running()
    home = dedicated.host(job)
    dedicated.requests().finished(65534, str(job), 0, 0)
    dedicated.rms.set_node(home, draining=True, reason="new disk")
    dedicated.tick(60)
    assert dedicated.host(job) == home, "its job is about to end"
    dedicated.tick(60)
    tick_until(dedicated, lambda: home not in rooms(dedicated))
    assert dedicated.host(job) not in ("", home)
    unharmed(dedicated, job)


def test_a_reservation_has_its_node_free_in_time(dedicated: World) -> None:
    job = dedicated.running()
    home = dedicated.host(job)
    start = int(dedicated.time) + 400
    dedicated.rms.reservations["upgrade"] = RmsReservation(
        "upgrade", start, start + 600, (home,), {}, ("root-admin",), ("MAINT", "IGNORE_JOBS")
    )
    for _ in range(60):
        dedicated.tick()
    assert home in rooms(dedicated), "there is time"
    dedicated.pass_time(60)
    tick_until(dedicated, lambda: dedicated.host(job) not in ("", home))
    tick_until(dedicated, lambda: home not in rooms(dedicated) or rooms(dedicated)[home].state is JobState.PENDING)
    assert dedicated.time < start
    unharmed(dedicated, job)


def test_a_room_is_extended_before_its_time_is_up(directory: Path) -> None:
    world = World(directory, room_time_limit="20")
    job = world.running()
    for _ in range(60):
        world.pass_time(60)
        world.tick()
    assert world.state(job) is S.RUNNING
    assert rooms(world)[world.host(job)].restarts == 0
    unharmed(world, job)


def test_a_room_that_slurm_does_not_extend_is_left_before_it_ends(directory: Path) -> None:
    world = World(directory, room_time_limit="20")
    job = world.running()
    home = world.host(job)
    first = rooms(world)[home].job_id
    world.rms.extend_room = lambda *words: (_ for _ in ()).throw(RefusedError("no"))  # type: ignore[method-assign]
    for _ in range(30):
        world.pass_time(60)
        for _ in range(5):
            world.tick()
    assert rooms(world).get(home, rooms(world)[world.host(job)]).job_id != first
    unharmed(world, job)


def test_no_room_is_so_short_that_vms_would_have_to_leave_at_once(directory: Path) -> None:
    """Slurm makes a room as short as its least time where that lets it start earlier."""
    world = World(directory, grace_s=900)
    start = int(world.time) + 1200
    world.rms.reservations["upgrade"] = RmsReservation(
        "upgrade", start, start + 600, ("n1",), {}, ("root-admin",), ("MAINT", "IGNORE_JOBS")
    )
    for _ in range(20):
        world.tick()
    assert {room.nodes[0] for room in rooms(world).values() if room.state is JobState.RUNNING} == {*NODES} - {"n1"}
    assert rooms(world)["n1"].state is JobState.PENDING


def test_saved_states_do_not_stay_on_a_node_whose_store_keeps_nothing(directory: Path) -> None:
    world = World(directory, store_survives=False)
    jobs = [world.running(cpus=2) for _ in NODES]
    home = world.host(jobs[0])
    [taken] = native(world, home)
    tick_until(world, lambda: world.rms.job(taken).state is JobState.RUNNING)
    [vm] = world.context.ledger.vms(jobs[0])
    assert vm.image_node not in ("", home)
    assert world.files.paths(home) == []
    world.rms.finish(taken)
    world.until(jobs[0], S.RUNNING)
    unharmed(world, *jobs)


def test_jobs_of_ours_that_hold_no_host_are_ended(dedicated: World) -> None:
    tick_until(dedicated, lambda: len(rooms(dedicated)) == 3)
    strange = dedicated.rms.submit(
        partition="plain", name=ROOM_NAME, user="root", uid=0, node="n1", cpus=1, memory_mib=1
    )
    tick_until(dedicated, lambda: dedicated.rms.job(strange).state is JobState.ENDED)


def test_a_node_that_hangs_is_asked_once_to_end_a_job_of_ours_that_holds_no_host(
    elastic: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = HungAgent(elastic, "n1", monkeypatch)
    strange = elastic.rms.submit(partition="plain", name=ROOM_NAME, user="root", uid=0, node="n1", cpus=1, memory_mib=1)
    while elastic.rms.job(strange).state is not JobState.RUNNING:
        elastic.pass_time(1)
    tick_until(elastic, lambda: agent.asked)
    for _ in range(3):
        elastic.tick()
    assert agent.asked == ["n1"]
    agent.go_on(elastic)
    tick_until(elastic, lambda: elastic.rms.job(strange).state is JobState.ENDED)


def test_a_room_that_ends_at_once_is_requested_again_less_and_less_often(dedicated: World) -> None:
    for _ in range(300):
        dedicated.tick()
        if (room := rooms(dedicated).get("n1")) is not None and room.state is JobState.RUNNING:
            dedicated.rms.finish(room.job_id, "FAILED")
    requests = [argument for name, argument in dedicated.rms.calls if name == "request_room"]
    assert 3 <= sum("n1" in str(argument) for argument in requests) <= 8


def test_vjobs_start_in_slurms_order_not_in_that_of_submission(dedicated: World) -> None:
    blockers = [dedicated.running(cpus=2) for _ in NODES]
    low, high, held, middle = (dedicated.submit(vms=1, cpus=2, priority=priority) for priority in (10, 30, 90, 20))
    dedicated.rms.user_hold(held)
    started: list[int] = []
    for blocker in blockers:
        dedicated.tick()
        dedicated.rms.finish(blocker)
        dedicated.until(blocker, S.TERMINATED)
        dedicated.tick()
        started += [j for j in (low, high, middle) if dedicated.state(j) is not S.WAITING and j not in started]
    assert started == [high, middle, low]
    assert dedicated.state(held) is S.WAITING


def switch_off(world: World) -> None:
    """PreemptMode=OFF on the vjob partition."""
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")


def test_small_vjobs_do_not_overtake_a_large_one_for_ever(dedicated: World) -> None:
    switch_off(dedicated)
    first = dedicated.running(cpus=1, time_limit_s=600)
    large = dedicated.submit(vms=3, cpus=2, memory_mib=128, time_limit_s=600)
    smalls = [dedicated.submit(vms=1, cpus=1, memory_mib=128, time_limit_s=3600) for _ in range(12)]
    short = dedicated.submit(vms=1, cpus=1, memory_mib=128, time_limit_s=60)
    for _ in range(5):
        dedicated.tick()
    assert [dedicated.state(job) for job in smalls] == [S.WAITING] * 12
    assert f"leaves no room for {large} to start in" in dedicated.context.ledger.vjob(smalls[0]).reason
    assert dedicated.state(short) is S.RUNNING, "it is over before the large one can start"
    dedicated.rms.finish(short)
    dedicated.rms.finish(first)
    dedicated.until(large, S.RUNNING)


def test_small_vjobs_fill_a_hole_and_sleep_when_the_turn_of_the_large_one_comes(dedicated: World) -> None:
    first = dedicated.running(cpus=1, time_limit_s=3600)
    large = dedicated.submit(vms=3, cpus=2, memory_mib=128, time_limit_s=600)
    smalls = [dedicated.submit(vms=1, cpus=1, memory_mib=128, time_limit_s=7200) for _ in range(12)]
    for _ in range(5):
        dedicated.tick()
    assert [dedicated.state(job) for job in smalls] == [S.RUNNING] * 5 + [S.WAITING] * 7
    dedicated.rms.finish(first)
    patience_s, waited_s = 3600.0, 0.0
    while dedicated.state(large) is S.WAITING:
        dedicated.tick(60)
        waited_s += 60
    assert patience_s - 120 <= waited_s <= patience_s + 120, "it takes the room of those behind it by its patience"
    dedicated.until(large, S.RUNNING)
    assert {dedicated.state(job) for job in smalls} == {S.SLEEPING, S.WAITING}
    dedicated.rms.finish(large)
    for job in smalls[:5]:
        dedicated.until(job, S.RUNNING)
    assert dedicated.context.ledger.vjob(smalls[0]).losses == 0


def test_a_job_whose_gate_another_hand_opened_is_sent_back(dedicated: World) -> None:
    blockers = [dedicated.running(cpus=2) for _ in NODES]
    job = dedicated.submit(vms=1, cpus=2)
    dedicated.tick()
    dedicated.rms.ungate(job)
    for _ in range(6):
        dedicated.tick()
    assert (dedicated.rms.job(job).state, dedicated.rms.job(job).gated) == (JobState.PENDING, True)
    assert dedicated.state(job) is S.WAITING
    for blocker in blockers:
        dedicated.rms.finish(blocker)
    dedicated.until(job, S.RUNNING, ticks=200)


def test_constraints_choose_the_hosts(dedicated: World) -> None:
    dedicated.rms.set_node("n3", features=("fast",))
    assert dedicated.host(dedicated.running(constraints={"features": "fast|huge"})) == "n3"
    assert dedicated.host(dedicated.running(constraints={"nodes": "n2"})) == "n2"
    assert dedicated.host(dedicated.running(constraints={"exclude": "n[1-2]"})) == "n3"


def test_a_vjob_that_can_never_run_here_is_told_why_and_blocks_nobody(dedicated: World) -> None:
    job = dedicated.submit(vms=1, constraints={"nodes": "n9"})
    assert dedicated.running()
    assert dedicated.state(job) is S.WAITING
    assert "n9" in dedicated.context.ledger.vjob(job).reason


def test_the_loss_of_a_front_loses_no_work(dedicated: World) -> None:
    job = dedicated.running()
    boots = len([call for call in dedicated.hypervisor.calls if call[0] == "boot"])
    dedicated.rms.lose_node(dedicated.rms.job(job).batch_host)
    tick_until(dedicated, lambda: dedicated.rms.job(job).state is JobState.RUNNING)
    assert dedicated.rms.job(job).batch_host == "front2"
    assert len([call for call in dedicated.hypervisor.calls if call[0] == "boot"]) == boots
    unharmed(dedicated, job)


# -- killed meanwhile --------------------------------------------------------------------------------------------------


def borrow_and_give_back(world: World, kill_at: int | None) -> int:
    """Acquire rooms, lose one to a native job, another to a drain, give all back; killed once on the way."""
    world.start_engine(kill_at)
    first = world.life
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    while not world.context.ledger.vjob(job).script_started:
        world.alive(lambda: world.context.ledger.update_vjob(job, script_started=True))
        world.tick()
    [taken] = native(world, world.host(job))
    asked = world.time
    tick_until(world, lambda: world.rms.job(taken).state is JobState.RUNNING)
    assert world.time - asked < GRACE_S
    world.until(job, S.RUNNING, S.SLEEPING)
    check_rooms(world)
    if home := world.host(job):
        world.rms.set_node(home, draining=True, reason="new disk")
        tick_until(world, lambda: "IDLE" in world.rms.snapshot().nodes[home].state)
        world.rms.set_node(home, draining=False)
    world.rms.finish(taken)
    world.until(job, S.RUNNING, ticks=120)
    check_rooms(world)
    unharmed(world, job)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    tick_until(world, lambda: rooms(world) == {}, ticks=120)
    assert world.leftovers() == []
    return first.instants


def check_rooms(world: World) -> None:
    """Every VM is on a node with a room of ours."""
    for node in NODES:
        if world.hypervisor.list_vms(node):
            assert rooms(world)[node].state is JobState.RUNNING


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_acquiring_and_giving_back(directory: Path, whole: bool) -> None:
    def world(name: str) -> World:
        (directory / name).mkdir()
        return World(directory / name, rooms="elastic", room_idle_s=3)

    total = borrow_and_give_back(world("0"), None)
    assert total > 100
    for instant in spread(total, total if whole else SAMPLE):
        try:
            borrow_and_give_back(world(str(instant)), instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error
