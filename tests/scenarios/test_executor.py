"""Operations beside cycles, as the daemon runs them: none hinders another, and no end or error of one gets lost."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.execute.task import CancelledError, Task
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import OperationFailedError, RmspluginError
from rmsplugin.model.vjob import IllegalTransitionError, VJobState

S, K = VJobState, OperationKind


class Slow:
    """Something that lasts until it is let go."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self) -> None:
        self.began.set()
        assert self.goes_on.wait(PATIENCE_S)


def test_an_operation_that_begins_while_the_one_before_it_ends_is_known_as_under_way(world: World) -> None:
    job = world.running(vms=1)
    slow, record_end = Slow(), world.executor._record_end

    def record_end_and_begin(task: Task, error: RmspluginError | None) -> None:
        record_end(task, error)
        world.executor._record_end = record_end  # type: ignore[method-assign]
        world.hypervisor.hook_next("migrate", Point.DURING, slow)
        world.ask(job, K.MIGRATE)

    world.executor._record_end = record_end_and_begin  # type: ignore[method-assign]
    world.ask(job, K.MIGRATE)
    assert slow.began.wait(PATIENCE_S)
    time.sleep(0.05)  # the end of the first one has time to do harm
    assert world.executor.busy() == {job}
    slow.goes_on.set()
    world.as_daemon(lambda: not world.executor.busy())


def test_an_end_that_cannot_be_recorded_is_recorded_later(world: World) -> None:
    job = world.running(vms=1)
    ledger = world.context.ledger
    end_operation, failures = ledger.end_operation, iter(range(3))

    def full(operation_id: int, *words: object, **options: object) -> None:
        if next(failures, None) is not None:
            raise sqlite3.OperationalError("database or disk is full")
        end_operation(operation_id, *words, **options)  # type: ignore[arg-type]

    ledger.end_operation = full  # type: ignore[method-assign]
    world.ask(job, K.SUSPEND)
    world.as_daemon(lambda: not world.executor.busy() and not ledger.running_operations())
    assert world.state(job) is S.SLEEPING
    world.ask(job, K.RESUME)
    world.as_daemon(lambda: world.state(job) is S.RUNNING)


def test_aborting_what_is_pointless_does_not_hold_up_the_cycle(world: World) -> None:
    job = world.running(vms=2)
    slow = Slow()
    aborts, goes_on = threading.Barrier(2, timeout=PATIENCE_S), threading.Event()

    def abort(node: str, vm: str) -> None:
        aborts.wait()  # of both VMs at the same time
        assert goes_on.wait(PATIENCE_S)

    world.hypervisor.abort_job = abort  # type: ignore[method-assign]
    world.hypervisor.hook_next("save", Point.DURING, slow, vm=f"vjob{job}-0")
    world.ask(job, K.SUSPEND)
    assert slow.began.wait(PATIENCE_S)
    world.rms.cancel(job)
    began = time.monotonic()
    for _ in range(3):
        world.cycle_beside()
    assert time.monotonic() - began < PATIENCE_S, "cycles go on while nodes are slow to abort"
    goes_on.set()
    slow.goes_on.set()
    world.as_daemon(lambda: world.state(job) is S.TERMINATED)
    assert world.leftovers() == []


@pytest.mark.parametrize("waits_for", ["wait_ready", "configure"])
def test_a_start_notices_at_once_that_its_job_is_cancelled(world: World, waits_for: str) -> None:
    began, gave_up = threading.Event(), threading.Event()

    def never(*words: object, timeout_s: float, check: Callable[[], None]) -> None:
        began.set()
        for _ in range(4000):
            try:
                check()
            except CancelledError:
                gave_up.set()
                raise
            time.sleep(0.005)

    setattr(world.guests, waits_for, never)
    job = world.submit(vms=2)
    world.as_daemon(began.is_set)
    world.rms.cancel(job)
    world.as_daemon(lambda: world.state(job) is S.TERMINATED)
    assert gave_up.is_set()
    assert world.leftovers() == []


def test_slow_starts_and_slow_saves_delay_no_stop(directory: Path) -> None:
    world = World(directory, workers=2)
    jobs = [world.running(vms=1, memory_mib=64) for _ in range(3)]
    slow = [Slow() for _ in range(4)]
    for job, each in zip(jobs, slow[:2], strict=False):
        world.hypervisor.hook_next("save", Point.DURING, each, vm=f"vjob{job}-0")
        world.ask(job, K.SUSPEND)
    boots = [world.submit(vms=1, memory_mib=64) for _ in range(2)]
    for job, each in zip(boots, slow[2:], strict=True):
        world.hypervisor.hook_next("boot", Point.DURING, each, vm=f"vjob{job}-0")
    world.as_daemon(lambda: all(each.began.is_set() for each in slow))
    world.rms.finish(jobs[2])
    world.as_daemon(lambda: world.state(jobs[2]) is S.TERMINATED)
    for each in slow:
        each.goes_on.set()
    world.as_daemon(lambda: not world.executor.busy())
    world.close()


def test_an_illegal_move_is_an_error_that_everybody_sees(world: World) -> None:
    assert issubclass(IllegalTransitionError, RmspluginError)
    job = world.running(vms=1)
    with pytest.raises(RmspluginError, match="cannot become"):
        world.context.ledger.transition(job, S.WAITING.STARTING, "")


def test_an_error_of_our_own_in_one_vm_is_told_with_those_of_the_others(world: World) -> None:
    job = world.running(vms=3, memory_mib=128)
    world.hypervisor.fail_next("save", ValueError("no such enum member"), vm=f"vjob{job}-0")
    world.hypervisor.fail_next("save", OperationFailedError("the store is read-only"), vm=f"vjob{job}-2")
    world.ask(job, K.SUSPEND)
    world.as_daemon(lambda: not world.executor.busy() and world.state(job) is S.RUNNING)
    [told] = [event.message for event in world.context.ledger.events() if event.kind == "suspend-failed"]
    assert f"vjob{job}-0: internal error: ValueError('no such enum member')" in told
    assert f"vjob{job}-2: the store is read-only" in told
    assert {vm.name: world.hypervisor.where(vm.name) for vm in world.context.ledger.vms(job)} == {
        vm.name: [vm.host] for vm in world.context.ledger.vms(job)
    }


def test_what_an_engine_concluded_before_it_was_killed_is_not_done_again(world: World) -> None:
    """Killed between the vjob's last move and the record of the operation's end."""
    job = world.submit(vms=1)
    world.hypervisor.fail_next("boot", OperationFailedError("no such kernel"))
    ledger = world.context.ledger
    ended = threading.Event()

    def killed(*words: object, **options: object) -> None:
        ended.set()
        world.life.dead = True
        world.life.step()

    ledger.end_operation = killed  # type: ignore[method-assign]
    world.as_daemon(lambda: ended.is_set() or world.life.dead)
    opened = [name for name, _ in world.rms.calls].count("open_gate")
    world.start_engine()
    while world.executor.busy():
        time.sleep(0.001)
    assert world.state(job) is S.WAITING
    assert [name for name, _ in world.rms.calls].count("open_gate") == opened
    world.until(job, S.RUNNING, ticks=120)
