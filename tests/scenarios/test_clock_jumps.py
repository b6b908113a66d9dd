"""The controller's clock is set forward or back by hours: no time limit, back-off or silence is over because of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenarios.test_fencing import calls, ticks_until, with_fence
from scenarios.test_node_gone import ticks
from scenarios.world import NODES, World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.ledger import Ledger
from rmsplugin.engine.ledger.rows import OperationKind, RoomReport
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
HOURS_S = 6 * 3600.0

pytestmark = pytest.mark.parametrize("jump_s", [HOURS_S, -HOURS_S], ids=["forward", "back"])


@pytest.fixture(autouse=True)
def no_negative_duration(world: World) -> Iterator[None]:
    """Whatever happened, it ended after it began."""
    yield
    ledger: Ledger = world.context.ledger
    rows: list[Any] = ledger._rows("select created, ended from operations where ended is not null")
    rows += ledger._rows("select created, ended from actions where ended is not null")
    rows += ledger._rows("select time as created, ended from plans where ended is not null")
    assert rows
    assert [row for row in rows if not row["created"] <= row["ended"] <= row["created"] + HOURS_S / 2] == []
    times = [event.time for event in ledger.events()]
    assert times == sorted(times) or times == sorted(times, reverse=True)


def asked_of_slurm(world: World, what: str) -> int:
    return sum(call[0] == what for call in world.rms.calls)


def test_vjobs_run_sleep_and_wait_on_and_it_is_told(world: World, jump_s: float) -> None:
    runs, sleeps = [world.running(memory_mib=64) for _ in range(2)], world.sleeping()
    requeues = asked_of_slurm(world, "requeue")
    world.wrappers_answer = False  # none has given a sign of life since then
    world.jumped_s += jump_s
    world.tick(1.0)
    assert any("the clock of this host was set" in problem for problem in world.cycle.report.problems)
    world.wrappers_answer = True
    ticks(world, 5)
    assert asked_of_slurm(world, "requeue") == requeues
    assert [world.state(job) for job in runs] == [S.RUNNING, S.RUNNING]
    assert world.state(sleeps) is S.SLEEPING
    assert not world.cycle.brake.held


def test_what_happens_after_it_is_noticed_in_time(world: World, jump_s: float) -> None:
    ends, dies = world.running(), world.running()
    world.jumped_s += jump_s
    world.rms.cancel(ends)
    world.hypervisor.kill_vm(f"vjob{dies}-0")
    ticks(world, 6)
    assert world.state(ends) is S.TERMINATED
    assert (world.state(dies), world.context.ledger.vjob(dies).losses) == (S.RUNNING, 1)
    later = world.submit(vms=1, memory_mib=64)
    ticks(world, 2)
    assert world.state(later) is S.RUNNING


def test_a_node_that_has_just_fallen_silent_is_not_fenced(world: World, directory: Path, jump_s: float) -> None:
    with_fence(world, directory, fence_after_s=120.0)
    node = world.host(world.running())
    world.kill_node(node)
    world.tick(5.0)
    world.jumped_s += jump_s
    assert not ticks_until(world, lambda: bool(calls(directory)), ticks=4)
    assert ticks_until(world, lambda: node in world.context.ledger.nodes.gone(), ticks=4)


def test_a_start_that_is_under_way_is_not_given_up(world: World, jump_s: float) -> None:
    def jump() -> None:
        world.jumped_s += jump_s

    job = world.submit(vms=1, memory_mib=64)
    world.hypervisor.hook_next("boot", Point.DURING, jump)
    ticks(world, 2)
    assert world.state(job) is S.RUNNING
    assert world.context.ledger.vjob(job).losses == 0


def test_a_job_that_slurm_has_not_started_yet_keeps_its_time(world: World, jump_s: float) -> None:
    open_gate = world.rms.open_gate

    def jump(job: int) -> None:
        world.jumped_s += jump_s
        open_gate(job)

    world.rms.open_gate = jump  # type: ignore[method-assign]
    job = world.submit(vms=1, memory_mib=64)
    ticks(world, 2)
    assert world.state(job) is S.RUNNING
    assert world.rms.job(job).state is JobState.RUNNING


def test_what_failed_is_tried_again_when_it_would_have_been(world: World, jump_s: float) -> None:
    job = world.running()
    for _ in range(3):
        world.hypervisor.fail_next("save", OperationFailedError("the disk is slow"))
        world.ask(job, K.SUSPEND)
        ticks(world, 1)
    failed = world.context.ledger.failures.of_vjob(job, K.SUSPEND)
    assert failed is not None
    wait_s = failed.not_before - world.context.clock.now()
    world.jumped_s += jump_s
    assert failed.not_before - world.context.clock.now() == wait_s
    assert world.context.ledger.failures.resting()["suspend"] == {world.host(job)}
    for _ in range(10):
        world.tick(60.0)
    assert world.context.ledger.failures.resting() == {}
    assert failed.not_before < world.context.clock.now()


def test_an_engine_that_is_started_after_it_goes_on(world: World, jump_s: float) -> None:
    runs, sleeps = world.running(), world.sleeping()
    before = world.context.clock.now()
    world.jumped_s += jump_s
    world.start_engine()
    assert world.context.clock.now() >= before - 60
    ticks(world, 3)
    assert (world.state(runs), world.state(sleeps)) == (S.RUNNING, S.SLEEPING)
    world.ask(sleeps, K.RESUME)
    world.rms.cancel(runs)
    ticks(world, 3)
    assert (world.state(runs), world.state(sleeps)) == (S.TERMINATED, S.RUNNING)


def test_an_epilog_of_before_the_vm_came_proves_nothing(world: World, jump_s: float) -> None:
    job = world.running()
    node = world.host(job)
    clock = world.context.clock
    world.context.ledger.room_reports.add(RoomReport(clock.now(), 1, node, "epilog", "", ()))
    world.jumped_s += jump_s
    other = next(name for name in NODES if name != node)
    world.ask(job, K.MIGRATE, other)
    ticks(world, 1)
    world.context.ledger.room_reports.add(RoomReport(clock.now(), 1, node, "epilog", "", ()))
    world.ask(job, K.MIGRATE, node)
    ticks(world, 1)
    world.hypervisor.set_reachable(node, False)
    ticks(world, 20)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 0)


def test_rooms_are_kept(world: World, jump_s: float) -> None:
    world.running()
    rooms = {node: room.job_id for node, room in world.cycle.seen.rooms.by_node.items()}  # type: ignore[union-attr]
    world.jumped_s += jump_s
    ticks(world, 5)
    job = world.submit(vms=1, memory_mib=64)
    ticks(world, 2)
    assert world.state(job) is S.RUNNING
    assert {node: room.job_id for node, room in world.cycle.seen.rooms.by_node.items()} == rooms  # type: ignore[union-attr]
