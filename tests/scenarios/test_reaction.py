"""A vjob that needs CPUs waits for nothing else: neither for Slurm nor for what is cleaned up. Counted in cycles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.test_pauses import end, pausing, powers, rows, served
from scenarios.test_slowdown import HOUR_S, full, one, pass_time, short, ticks_until, whole
from scenarios.world import World

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.execute import task
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.serve.requests import Requests
from rmsplugin.errors import RefusedError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    with pausing(directory) as world:
        yield world


def script_ends(world: World, job: int) -> int:
    """The wrapper says so; Slurm and the VM go on for now. Returns how often the engine was woken for it."""
    woken: list[int] = []
    requests = Requests(world.context, world.executor, world.placing, world.cycle, lambda: woken.append(job))
    requests.finished(0, str(job), 0, 0)
    return len(woken)


def begins(world: World, job: int) -> None:
    world.context.ledger.update_vjob(job, script_started=True)


def test_a_start_does_not_wait_until_slurm_is_told_of_the_pause_that_makes_room_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    longs = full(world)
    job = short(world)
    told, suspend = [], world.rms.suspend

    def tell(job_id: int) -> None:
        up = threading.Event()
        # Slurm answers only when the short one runs: whoever waits for that answer waits for ever.
        for _ in range(int(PATIENCE_S * 100)):
            if world.state(job) is S.RUNNING:
                up.set()
                break
            up.wait(0.01)
        told.append((job_id, up.is_set(), powers(world, job_id)))
        suspend(job_id)

    monkeypatch.setattr(world.rms, "suspend", tell)
    ticks_until(world, job, 400)
    [paused] = [each for each in longs if world.state(each) is S.PAUSED]
    assert told == [(paused, True, [VMPower.PAUSED])]
    assert world.rms.job(paused).state is JobState.SUSPENDED
    end(world, job)
    world.until(paused, S.RUNNING)
    whole(world, paused, job)


def test_whoever_keeps_its_memory_goes_on_in_the_cycle_after_the_end_of_a_script_before_anything_is_cleaned(
    world: World,
) -> None:
    _, paused, job = served(world)
    begins(world, job)
    pass_time(world, 100)
    assert script_ends(world, job) == 1
    world.tick()
    assert (world.state(paused), powers(world, paused)) == (S.RUNNING, [VMPower.RUNNING])
    assert (world.state(job), world.rms.job(job).state) == (S.RUNNING, JobState.RUNNING), "it is not cleaned up yet"
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    whole(world, paused, job)


def test_it_goes_on_although_the_vm_of_what_has_ended_cannot_be_ended_yet(world: World) -> None:
    _, paused, job = served(world)
    begins(world, job)
    world.hypervisor.fail_next("stop", RefusedError("not now"), vm=f"vjob{job}-0")
    assert script_ends(world, job) == 1
    world.rms.finish(job)
    world.tick()
    world.until(paused, S.RUNNING, ticks=2)
    world.until(job, S.TERMINATED)
    whole(world, paused, job)


def test_the_end_of_a_script_wakes_nobody_where_nobody_is_paused(world: World) -> None:
    [job, *_] = full(world)
    assert script_ends(world, job) == 0


def test_by_hand_it_goes_on_once_the_script_beside_it_has_ended(world: World) -> None:
    _, paused, job = served(world)
    begins(world, job)
    script_ends(world, job)
    seen = world.cycle.seen
    assert seen is not None
    world.placing.unpause(seen, world.context.ledger.vjob(paused), "asked", "root")
    world.until(paused, S.RUNNING)
    whole(world, paused)


def test_who_says_that_its_script_has_ended_and_goes_on_has_gained_nothing(world: World) -> None:
    """Its CPUs were given to another for a while; then a decision makes room again, and all are whole."""
    longs, paused, job = served(world, time_limit_s=HOUR_S)
    begins(world, job)
    script_ends(world, job)
    world.tick()
    assert world.state(paused) is S.RUNNING
    for _ in range(30):
        world.tick(20)
    states = {each: world.state(each) for each in (*longs, job)}
    assert sorted(states.values()) == [S.PAUSED, *[S.RUNNING] * 3], states
    [waits] = [each for each in states if states[each] is S.PAUSED]
    running = [vm.host for each in states if each != waits for vm in rows(world, each)]
    assert sorted(running) == sorted(world.sizes), "each has its CPUs for itself again"
    world.rms.finish(next(each for each in longs if each != waits))
    world.until(waits, S.RUNNING)
    whole(world, *longs, job)


def test_if_slurm_refuses_to_suspend_it_runs_on_and_the_next_decision_makes_room_again(world: World) -> None:
    longs = full(world)
    job = short(world)
    world.rms.fail_next("suspend", RefusedError("not this one"))
    ticks_until(world, job, 400)
    for _ in range(6):
        world.tick(10)
    states: list[Any] = [world.state(each) for each in (*longs, job)]
    assert states.count(S.PAUSED) == 1, states
    for each in (*longs, job):
        assert powers(world, each) == [VMPower.PAUSED if world.state(each) is S.PAUSED else VMPower.RUNNING]
    whole(world, *longs, job)


def test_slurm_hears_that_one_goes_on_before_its_guests_are_asked_for_anything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, paused, job = served(world)
    begins(world, job)
    seen, set_clock = [], world.guests.set_clock

    def look(*arguments: Any, **options: Any) -> None:
        seen.append((world.rms.job(paused).state, powers(world, paused)))
        set_clock(*arguments, **options)

    monkeypatch.setattr(world.guests, "set_clock", look)
    end(world, job)
    world.until(paused, S.RUNNING)
    assert seen == [(JobState.RUNNING, [VMPower.RUNNING])]


def test_all_vms_of_a_gang_are_ready_before_the_first_of_them_is_paused_and_the_spread_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And before the first one goes on again."""
    monkeypatch.setattr(task, "_MEET_S", PATIENCE_S)
    gang = one(world, vms=3)
    world.until(gang, S.RUNNING)
    begun: dict[str, list[int]] = {"pause": [], "unpause": []}

    def counting(method: str) -> Callable[..., None]:
        act = getattr(world.hypervisor, method)

        def call(*arguments: Any, ready: Callable[[], None], **options: Any) -> None:
            def counted() -> None:
                ready()
                rows = world.context.ledger._rows("select count(*) as number from actions where kind = ?", [method])
                begun[method].append(rows[0]["number"])

            act(*arguments, ready=counted, **options)

        return call

    for method in begun:
        monkeypatch.setattr(world.hypervisor, method, counting(method))
    world.ask(gang, K.PAUSE)
    world.until(gang, S.PAUSED)
    world.ask(gang, K.UNPAUSE)
    world.until(gang, S.RUNNING)
    assert begun == {"pause": [3, 3, 3], "unpause": [3, 3, 3]}
    told = [event.message for event in world.context.ledger.events() if event.kind.endswith("paused-together")]
    assert told == ["3 VMs stand still, all within 0 ms", "3 VMs go on, all within 0 ms"]


# -- nodes that have VMs that stand still and no others ---------------------------------------------------------------


@pytest.mark.parametrize("room_elsewhere", [True, False], ids=["to where there is memory", "to disk"])
def test_a_node_with_paused_vms_only_is_given_back_to_a_native_job_that_waits_for_it(
    world: World, room_elsewhere: bool
) -> None:
    memory_mib = 256 if room_elsewhere else 400
    gang = one(world, vms=3, time_limit_s=100 * HOUR_S, memory_mib=memory_mib)
    world.until(gang, S.RUNNING)
    begins(world, gang)
    pass_time(world, HOUR_S)
    job = one(world, time_limit_s=HOUR_S)
    ticks_until(world, job, 400)
    assert world.state(gang) is S.PAUSED
    [beside] = [vm.host for vm in rows(world, job)]
    node = min({vm.host for vm in rows(world, gang)} - {beside})
    native = world.rms.submit(partition="plain", node=node, cpus=2, memory_mib=1024, time_limit_s=HOUR_S)
    for _ in range(60):
        world.tick()
    assert world.rms.job(native).state is JobState.RUNNING
    assert world.ended_by_epilog == []
    assert world.state(gang) is (S.PAUSED if room_elsewhere else S.SLEEPING)
    assert node not in {vm.host for vm in rows(world, gang)}
    assert (world.state(job), world.rms.job(gang).state) == (S.RUNNING, JobState.SUSPENDED)
    world.rms.finish(native)
    end(world, job)
    world.until(gang, S.RUNNING)
    whole(world, gang, job)


def test_a_node_with_paused_vms_only_keeps_its_room_while_nobody_waits_for_it(directory: Path) -> None:
    with pausing(directory, rooms="elastic", room_idle_s=10) as world:
        gang = one(world, vms=3, time_limit_s=100 * HOUR_S)
        world.until(gang, S.RUNNING)
        begins(world, gang)
        pass_time(world, HOUR_S)
        job = one(world, time_limit_s=HOUR_S)
        ticks_until(world, job, 400)
        assert world.state(gang) is S.PAUSED
        before = [vm.host for vm in rows(world, gang)]
        for _ in range(20):
            world.tick(20)
        assert (world.state(gang), [vm.host for vm in rows(world, gang)]) == (S.PAUSED, before)
        end(world, job)
        world.until(gang, S.RUNNING)
        whole(world, gang, job)
