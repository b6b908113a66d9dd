"""Vjobs that make way keep their memory: paused at once, saved when that is needed, and nothing is lost by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.invariants import Watch
from scenarios.test_slowdown import (
    EXEMPT_S,
    HOUR_S,
    SHORT_S,
    full,
    one,
    pass_time,
    reason,
    short,
    ticks_until,
    whole,
)
from scenarios.world import KilledError, World, spread

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind, VMRow
from rmsplugin.engine.observe.dead_nodes import record_gone
from rmsplugin.errors import OperationFailedError, RefusedError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
#: Of the instants of a life in which everything fails CI tries so many.
SAMPLE = 12


@contextmanager
def pausing(directory: Path, limit_s: float = 10 * HOUR_S, policy: str = "slowdown", **options: Any) -> Iterator[World]:
    """A world whose engine pauses vjobs that make way, for this time at most."""
    world = World(directory, urgent=True, **options)
    set_limit(world, limit_s, policy)
    watch = Watch(world)
    yield world
    watch.look()
    world.close()


def set_limit(world: World, limit_s: float, policy: str = "slowdown") -> None:
    """Start an engine with another limit."""
    changed = world.settings.decision.model_copy(update={"policy": policy, "pause_limit_s": limit_s})
    world.settings = world.settings.model_copy(update={"decision": changed})
    world.start_engine()


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    with pausing(directory) as world:
        yield world


def powers(world: World, job: int) -> list[VMPower]:
    """How the VMs of a vjob are, each where the ledger says."""
    return [world.hypervisor.list_vms(vm.host)[vm.name].power for vm in rows(world, job)]


def rows(world: World, job: int) -> list[VMRow]:
    return world.context.ledger.vms(job)


def calls(world: World, method: str, job: int) -> int:
    """How often a VM of a vjob was asked for that."""
    return sum(call[0] == method and f"vjob{job}-0" in call for call in world.hypervisor.calls)


def served(world: World, **options: Any) -> tuple[list[int], int, int]:
    """A full cluster, and a short vjob that runs there now: all long ones, who made way, and the short one."""
    longs = full(world)
    job = short(world) if not options else one(world, **options)
    ticks_until(world, job, 400)
    [paused] = [each for each in longs if world.state(each) is S.PAUSED]
    return longs, paused, job


def end(world: World, job: int) -> None:
    world.context.ledger.update_vjob(job, script_started=True)
    pass_time(world, SHORT_S)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)


# -- who makes way ----------------------------------------------------------------------------------------------------


def test_short_ones_are_served_while_long_ones_keep_their_memory_and_nothing_is_ever_saved(world: World) -> None:
    longs, shorts = full(world), []
    for _ in range(8):
        shorts.append(short(world))
        ticks_until(world, shorts[-1], 400)
        [paused] = [each for each in longs if world.state(each) is S.PAUSED]
        assert powers(world, paused) == [VMPower.PAUSED]
        assert world.rms.job(paused).state is JobState.SUSPENDED
        assert "keeps its memory" in reason(world, paused)
        end(world, shorts[-1])
        world.until(paused, S.RUNNING, ticks=3)
        assert world.rms.job(paused).state is JobState.RUNNING
    assert [call[0] for call in world.hypervisor.calls if call[0] in ("save", "restore", "migrate")] == []
    for job in longs:
        end(world, job)
    whole(world, *longs, *shorts)
    world.tick()
    assert world.leftovers() == []


def test_all_vms_of_a_vjob_are_paused_and_go_on_where_they_are(world: World) -> None:
    gang = one(world, vms=3, time_limit_s=100 * HOUR_S)
    world.until(gang, S.RUNNING)
    world.context.ledger.update_vjob(gang, script_started=True)
    pass_time(world, HOUR_S)
    before = [vm.host for vm in rows(world, gang)]
    job = short(world)
    ticks_until(world, job, 400)
    assert (world.state(gang), powers(world, gang)) == (S.PAUSED, [VMPower.PAUSED] * 3)
    end(world, job)
    world.until(gang, S.RUNNING)
    assert (powers(world, gang), [vm.host for vm in rows(world, gang)]) == ([VMPower.RUNNING] * 3, before)
    whole(world, gang, job)


def test_the_time_in_a_pause_is_no_run(world: World) -> None:
    _, paused, job = served(world)
    ran_s = world.context.ledger.vjob(paused).ran_s
    pass_time(world, 500)
    end(world, job)
    world.until(paused, S.RUNNING)
    assert world.context.ledger.vjob(paused).ran_s == ran_s > HOUR_S


def test_who_needs_the_memory_of_one_that_is_paused_has_it_saved_or_moved(world: World) -> None:
    longs, _, job = served(world, time_limit_s=HOUR_S)
    pass_time(world, EXEMPT_S)
    large = [one(world, time_limit_s=HOUR_S, memory_mib=700, partition="urgent") for _ in world.sizes]
    for each in large:
        ticks_until(world, each, 400)
    assert world.states(*longs, job) == [S.SLEEPING] * 4
    for each in large:
        world.rms.finish(each)
    for each in longs:
        world.until(each, S.RUNNING, S.SLEEPING)
    world.until(job, S.RUNNING, ticks=300)
    whole(world, job, *large, *longs)


def test_memory_that_is_free_elsewhere_takes_one_that_is_paused(world: World) -> None:
    longs, _, _ = served(world)
    large = one(world, time_limit_s=HOUR_S, memory_mib=600, partition="urgent")
    ticks_until(world, large, 400)
    assert world.states(*longs).count(S.PAUSED) == 2
    assert [call[0] for call in world.hypervisor.calls if call[0] == "save"] == []


def test_one_that_was_paused_for_long_enough_is_saved_as_it_stands(directory: Path) -> None:
    with pausing(directory, 300.0) as world:
        _, paused, job = served(world, time_limit_s=HOUR_S)
        [host] = {vm.host for vm in rows(world, paused)}
        world.tick(400)
        world.until(job, S.RUNNING)
        assert world.state(paused) is S.SLEEPING
        assert (calls(world, "save", paused), calls(world, "unpause", paused)) == (1, 0)
        assert {vm.image_node for vm in rows(world, paused)} == {host}
        assert world.rms.job(paused).state is JobState.SUSPENDED
        end(world, job)
        world.until(paused, S.RUNNING)
        whole(world, paused, job)


def test_with_a_limit_of_0_nobody_is_paused_and_whoever_was_is_saved_or_goes_on(world: World) -> None:
    _, paused, job = served(world)
    set_limit(world, 0.0)
    world.until(paused, S.SLEEPING)
    end(world, job)
    world.until(paused, S.RUNNING)
    other = short(world)
    for _ in range(60):
        world.tick(20)
        assert all(vjob.state is not S.PAUSED for vjob in world.context.ledger.vjobs())
    whole(world, paused, job, other)


def test_where_memory_is_observed_nobody_is_paused(directory: Path) -> None:
    with pausing(directory, memory="observed") as world:
        longs = full(world)
        job = short(world)
        ticks_until(world, job, 1000)
        assert world.states(*longs).count(S.SLEEPING) == 1


# -- what others do meanwhile -----------------------------------------------------------------------------------------


def test_a_vm_that_somebody_lets_run_is_held_again(world: World) -> None:
    _, paused, _ = served(world)
    [vm] = rows(world, paused)
    world.hypervisor.unpause(vm.host, vm.name, timeout_s=10)
    world.until(paused, S.PAUSED)
    assert powers(world, paused) == [VMPower.PAUSED]
    assert "was seen running" in reason(world, paused) or world.state(paused) is S.PAUSED


def test_resumed_with_scontrol_it_goes_on_if_its_cpus_are_free_and_stands_still_if_not(world: World) -> None:
    _, paused, job = served(world)
    world.rms.resume(paused)
    world.tick()
    world.tick()
    assert (world.state(paused), world.rms.job(paused).state) == (S.PAUSED, JobState.SUSPENDED)
    end(world, job)
    world.until(paused, S.RUNNING)
    whole(world, paused)


@pytest.mark.parametrize("how", ["requeue", "hold", "cancel"])
def test_slurms_orders_for_a_paused_job_are_followed(world: World, how: str) -> None:
    _, paused, job = served(world)
    if how == "cancel":
        world.rms.cancel(paused)
        world.until(paused, S.TERMINATED)
        assert world.hypervisor.where(f"vjob{paused}-0") == []
        assert calls(world, "unpause", paused) == 1, "it is asked what it has used, which it says only if it runs"
        return
    world.rms.requeue(paused)
    if how == "hold":
        world.rms.hold(paused)
    for _ in range(4):
        world.tick()
    assert world.state(paused) is (S.SLEEPING if how == "hold" else S.PAUSED)
    end(world, job)
    if how == "hold":
        world.tick()
        assert world.state(paused) is S.SLEEPING
        world.rms.release(paused)
    world.until(paused, S.RUNNING)
    assert world.context.ledger.vjob(paused).losses == 0


def test_saved_by_hand_it_sleeps_until_it_is_resumed(world: World) -> None:
    _, paused, job = served(world)
    world.ask(paused, K.SUSPEND)
    world.until(paused, S.SLEEPING)
    end(world, job)
    world.tick()
    world.tick()
    assert world.state(paused) is S.SLEEPING
    world.ask(paused, K.RESUME)
    world.until(paused, S.RUNNING)
    whole(world, paused, job)


def test_by_hand_it_goes_on_where_its_cpus_are_free_and_is_refused_where_not(world: World) -> None:
    _, paused, job = served(world)
    vjob, seen = world.context.ledger.vjob(paused), world.cycle.seen
    assert seen is not None
    with pytest.raises(RefusedError, match="0 CPUs are free there, 2 are needed; it goes on when its turn comes"):
        world.placing.unpause(seen, vjob, "asked", "root")
    assert world.state(job) is S.RUNNING


def test_a_node_that_is_drained_is_left_by_one_that_is_paused_there(world: World) -> None:
    _, paused, job = served(world)
    [node] = {vm.host for vm in rows(world, paused)}
    world.rms.set_node(node, draining=True, state="IDLE+DRAIN")
    for _ in range(8):
        world.tick()
    assert {vm.host for vm in rows(world, paused)} <= {"", *set(world.sizes) - {node}}
    assert calls(world, "unpause", paused) == 0
    end(world, job)
    world.rms.set_node(node, draining=False, state="IDLE")
    world.until(paused, S.RUNNING)
    whole(world, paused)


def test_a_node_that_dies_takes_a_paused_vm_like_one_that_runs(world: World) -> None:
    _, paused, _ = served(world)
    [node] = {vm.host for vm in rows(world, paused)}
    world.kill_node(node)
    for _ in range(5):
        world.tick(30)
    assert world.state(paused) is S.PAUSED, "silence proves nothing"
    record_gone(world.context.settings, world.context.ledger, node, "root")
    world.until(paused, S.RUNNING, S.WAITING)
    vjob = world.context.ledger.vjob(paused)
    assert vjob.losses == 1
    assert rows(world, paused) == [] or all(vm.host != node for vm in rows(world, paused))


def test_a_paused_vm_that_dies_is_lost_and_its_vjob_begins_anew(world: World) -> None:
    _, paused, _ = served(world)
    world.hypervisor.kill_vm(f"vjob{paused}-0")
    for _ in range(10):
        world.tick(6)
    vjob = world.context.ledger.vjob(paused)
    assert (vjob.losses, vjob.state in (S.WAITING, S.STARTING, S.RUNNING)) == (1, True)


# -- failures, and an engine that is killed ---------------------------------------------------------------------------


def test_a_pause_that_fails_leaves_all_of_it_running(world: World) -> None:
    gang = one(world, vms=2)
    world.until(gang, S.RUNNING)
    world.hypervisor.fail_next("pause", OperationFailedError("no pause"), vm=f"vjob{gang}-1")
    world.ask(gang, K.PAUSE)
    world.until(gang, S.RUNNING)
    assert powers(world, gang) == [VMPower.RUNNING] * 2
    assert world.rms.job(gang).state is JobState.RUNNING
    assert "no pause" in reason(world, gang)


def test_a_save_that_fails_leaves_a_paused_one_as_it_was(world: World) -> None:
    _, paused, _ = served(world)
    world.hypervisor.fail_next("save", OperationFailedError("disk full"), vm=f"vjob{paused}-0")
    world.ask(paused, K.SUSPEND)
    world.until(paused, S.PAUSED)
    assert powers(world, paused) == [VMPower.PAUSED]
    assert world.rms.job(paused).state is JobState.SUSPENDED
    assert calls(world, "unpause", paused) == 0


def live(world: World, kill_at: int | None, *, failing: bool = False) -> int:
    """Run, pause, be saved, resume, pause, go on, end; killed once on the way. Returns the instants of the first life.

    With ``failing``, each of these fails once for one of the VMs.
    """
    world.start_engine(kill_at)
    first = world.life
    job = world.submit(vms=2)
    for method in ("pause", "save", "restore", "unpause") if failing else ():
        world.hypervisor.fail_next(method, OperationFailedError(f"{method} fails"), vm=f"vjob{job}-1")
    world.until(job, S.RUNNING)
    while not world.context.ledger.vjob(job).script_started:
        world.alive(lambda: world.context.ledger.update_vjob(job, script_started=True))
        world.tick()
    come_to(world, job, {S.RUNNING: K.PAUSE, S.PAUSED: K.SUSPEND}, S.SLEEPING)
    come_to(world, job, {S.SLEEPING: K.RESUME}, S.RUNNING)
    come_to(world, job, {S.RUNNING: K.PAUSE}, S.PAUSED)
    come_to(world, job, {S.PAUSED: K.UNPAUSE}, S.RUNNING)
    for vm in rows(world, job):
        assert world.hypervisor.where(vm.name) == [vm.host], "one VM, where the ledger says (I1)"
    assert powers(world, job) == [VMPower.RUNNING] * 2
    assert first.dead or not world.hypervisor.faults.failures, "all that was to fail did"
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []
    assert world.hypervisor.violations == []
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.paused) == (0, False), "a killed engine loses nothing"
    return first.instants


def come_to(world: World, job: int, orders: dict[VJobState, OperationKind], state: VJobState) -> None:
    """Give each order while the vjob is in the state for it, until it is in the wanted one with nothing under way."""
    for _ in range(60):
        if world.state(job) is state and job not in world.executor.busy() and not world.life.dead:
            return
        if world.state(job) in orders and not world.life.dead:
            world.ask(job, orders[world.state(job)])
            operations_end(world, job)
            continue
        world.tick()
    raise AssertionError(f"vjob {job} is {world.state(job)}, not {state}")


def operations_end(world: World, job: int) -> None:
    """What was begun ends, before a cycle lets it go on again; a killed engine is started again."""
    while job in world.executor.busy() and not world.life.dead:
        time.sleep(0.0005)
    if world.life.dead:
        world.tick()
    else:
        pass_time(world, 60)  # what has failed may be tried again


@pytest.mark.timeout(600)
@pytest.mark.parametrize("failing", [False, True], ids=["", "and everything fails once"])
def test_killed_at_any_instant_of_a_life_with_pauses(directory: Path, whole: bool, failing: bool) -> None:
    (directory / "0").mkdir()
    total = live(World(directory / "0"), None, failing=failing)
    assert total > 80
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            live(World(where), instant, failing=failing)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error


@pytest.mark.parametrize("succeeds", [True, False], ids=["which then succeeds", "which then fails"])
@pytest.mark.parametrize("method", ["pause", "unpause", "save"])
def test_killed_in_the_middle_of_what_the_hypervisor_does(directory: Path, method: str, succeeds: bool) -> None:
    world = World(directory)
    job = world.submit(vms=2)
    world.until(job, S.RUNNING)
    if method != "pause":
        come_to(world, job, {S.RUNNING: K.PAUSE}, S.PAUSED)

    def killed() -> None:
        world.life.dead = True
        raise KilledError

    world.hypervisor.hook_next(method, Point.DURING, killed, vm=f"vjob{job}-0")
    world.ask(job, {"pause": K.PAUSE, "unpause": K.UNPAUSE, "save": K.SUSPEND}[method])
    deadline = time.monotonic() + PATIENCE_S
    while not world.life.dead:
        assert time.monotonic() < deadline, "the hook is not reached"
        time.sleep(0.0005)
    world.hypervisor.settle(f"vjob{job}-0", succeed=succeeds)
    if method == "save":
        world.until(job, S.SLEEPING, S.PAUSED, S.RUNNING)
        world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert powers(world, job) == [VMPower.RUNNING] * 2
    assert world.context.ledger.vjob(job).losses == 0
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []
    assert world.hypervisor.violations == []
