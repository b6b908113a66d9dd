"""Nothing is tried again and again: back-offs that outlive the engine, nodes that rest, and faults that stay alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scenarios.world import NODES, World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.reconcile import following
from rmsplugin.engine.serve.views import node_views
from rmsplugin.errors import OperationFailedError, RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase

S, K = VJobState, OperationKind


def refuse(world: World, method: str, error: Exception, node: str = "") -> None:
    """Have a node (or all) refuse all actions of a kind from now on."""
    act = getattr(world.hypervisor, method)

    def refusing(*words: object, **options: object) -> object:
        if node in ("", *words):
            raise error
        return act(*words, **options)

    setattr(world.hypervisor, method, refusing)


def allow(world: World, method: str) -> None:
    delattr(world.hypervisor, method)


def operations(world: World, job: int) -> int:
    rows = world.context.ledger._rows("select count(*) as n from operations where job_id = ?", [job])
    return int(rows[0]["n"])


def ten_minutes(world: World) -> None:
    """By the second as long as pauses are short: without any back-off something would be tried again at each tick."""
    for tick in range(220):
        world.tick(1.0 if tick < 125 else 5.0)


# -- back-off ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [5, 3600])
def test_what_fails_is_tried_less_and_less_often(world: World, seconds: int) -> None:
    job = world.running()
    refuse(world, "save", OperationFailedError("the store is read-only"))
    world.rms.suspend(job)  # by hand: the engine has to follow, and cannot
    before, first = operations(world, job), world.context.ledger.events()[-1].id
    tick_s = 0.25 if seconds == 5 else 10.0
    for _ in range(round(seconds / tick_s)):
        world.tick(tick_s)
        if world.rms.job(job).state is JobState.RUNNING:  # a suspend that failed lets it go on: it is asked for again
            world.rms.suspend(job)
    most = 5 if seconds == 5 else 9 + seconds // 300 + 1
    assert 2 <= operations(world, job) - before <= most
    assert len(world.context.ledger.events(since=first)) <= 4 * most
    allow(world, "save")
    world.until(job, S.SLEEPING, ticks=310)


@pytest.mark.parametrize("kind", [K.START, K.STOP, K.SUSPEND, K.RESUME, K.MIGRATE, K.REATTACH])
def test_every_kind_of_operation_has_a_back_off(world: World, kind: OperationKind) -> None:
    silent = UnavailableError("it does not answer")
    if kind is K.START:
        job = world.submit(vms=1)
        refuse(world, "boot", silent)
    else:
        job = world.running()
    if kind is K.STOP:
        refuse(world, "stop", silent)
        world.rms.finish(job)
    elif kind is K.SUSPEND:
        refuse(world, "save", silent)
        refuse(world, "unpause", silent)  # so that it cannot go back to running
        world.rms.suspend(job)
    elif kind is K.RESUME:
        world.rms.suspend(job)
        world.until(job, S.SLEEPING)
        refuse(world, "unpause", silent)
        world.rms.resume(job)
    elif kind is K.MIGRATE:
        world.tick()
        refuse(world, "migrate", silent)
        target = next(node for node in NODES if node != world.host(job))
        world.context.ledger.enter_phase(f"vjob{job}-0", VMPhase.MIGRATING, destination=target)
        world.hypervisor.set_reachable(world.host(job), False)
    elif kind is K.REATTACH:
        world.rms.requeue_by_admin(job)
        world.rms.limit(job, "AssocGrpCpuLimit")
    before = operations(world, job)
    ten_minutes(world)
    assert 2 <= operations(world, job) - before <= (18 if kind is K.REATTACH else 14)
    failed = world.context.ledger.failures.of_vjob(job, kind)
    assert failed is not None
    assert failed.failures >= 2


def test_a_restarted_engine_keeps_the_back_off(world: World) -> None:
    job = world.submit(vms=1)
    refuse(world, "boot", OperationFailedError("no such kernel"))
    for _ in range(100):
        world.tick()
    boots = operations(world, job)
    for _ in range(10):
        world.start_engine()
        world.tick()
    assert operations(world, job) - boots <= 1


def test_a_request_that_slurm_refuses_is_repeated_less_and_less_often(world: World) -> None:
    job = world.submit(vms=1, gated=False)
    world.rms.user_hold(job)
    refused = []

    def no(job_id: int) -> None:
        refused.append(job_id)
        raise RefusedError("Job update not available right now")

    world.rms.close_gate = no  # type: ignore[method-assign]
    ten_minutes(world)
    assert 2 <= len(refused) <= 12
    del world.rms.close_gate  # type: ignore[method-assign]
    for _ in range(60):
        world.tick(5.0)
    assert world.rms.job(job).gated


def lose(world: World, job: int, times: int, ran_s: float = 0.0) -> list[float]:
    """Have its VM die each time that it runs, so long after its start. Returns when it ran each time."""
    ran = []
    for _ in range(times * 100):
        if world.state(job) is S.RUNNING and world.hypervisor.where(f"vjob{job}-0"):
            if len(ran) == times:
                break
            world.context.ledger.update_vjob(job, script_started=True)
            ran.append(world.time)
            world.tick(ran_s)
            world.hypervisor.kill_vm(f"vjob{job}-0")
        world.tick(5)
    return ran


def test_a_guest_that_dies_each_time_is_started_less_and_less_often_and_held_at_last(world: World) -> None:
    job = world.running()
    ran = lose(world, job, 9)
    assert len(ran) == 8
    pauses = [later - sooner for sooner, later in pairwise(ran)]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 64
    vjob = world.context.ledger.vjob(job)
    assert (world.state(job), world.rms.job(job).held, vjob.losses) == (S.WAITING, True, 8)
    assert "8 times in a row: its job is held" in vjob.reason
    world.rms.release(job)
    assert len(lose(world, job, 2)) == 1, "once more"
    assert world.rms.job(job).held


def test_a_restarted_engine_remembers_how_often_a_guest_has_died(world: World) -> None:
    job = world.running()
    lose(world, job, 7)
    world.start_engine()
    lose(world, job, 1)
    world.until(job, S.WAITING)
    assert world.rms.job(job).held


def test_losses_with_long_runs_between_them_are_no_losses_in_a_row(world: World) -> None:
    job = world.running()
    ran = lose(world, job, 10, ran_s=700)
    assert len(ran) == 10
    assert {round(later - sooner) for sooner, later in pairwise(ran[:-1])} <= set(range(700, 740))
    assert not world.rms.job(job).held


# -- nodes that rest ---------------------------------------------------------------------------------------------------


def test_a_node_where_three_starts_failed_in_a_row_takes_none_for_a_while_and_says_so(world: World) -> None:
    refuse(world, "boot", OperationFailedError("cannot open /dev/kvm"), node="n1")
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    assert world.host(job) == "n2"
    [told] = world.events("node-rests")
    assert "n1 takes no new run for a while: 3 failed in a row" in told
    view = {row["name"]: row for row in node_views(world.context.ledger, world.capacities(), world.cycle.seen, {})}
    assert "cannot open /dev/kvm" in view["n1"]["reason"]
    assert [rest["kind"] for rest in view["n1"]["rests"]] == ["run"]
    assert view["n2"]["reason"] == ""
    allow(world, "boot")
    world.pass_time(61)
    other = world.submit(vms=1, constraints={"nodes": "n1"})
    world.until(other, S.RUNNING)
    assert world.host(other) == "n1"
    assert {row["reason"] for row in node_views(world.context.ledger, world.capacities(), world.cycle.seen, {})} == {""}
    assert len(world.events("node-works-again")) == 1


def test_a_node_that_rests_from_starts_ends_and_saves_vms_as_ever(world: World) -> None:
    job = world.running()
    assert world.host(job) == "n1"
    for _ in range(3):
        world.context.ledger.failures.node_failed("n1", "run", "nobody", "no")
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME, "n1")
    world.until(job, S.RUNNING)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert host_of_next(world) == "n2"


def host_of_next(world: World) -> str:
    return world.host(world.running())


def test_guests_of_one_user_that_do_not_come_up_say_nothing_of_their_node(world: World) -> None:
    """Small VMs, a broken image: one user's jobs must not take nodes from the others."""
    bad = [world.submit(vms=1, memory_mib=64) for _ in range(5)]
    wait_ready = world.guests.wait_ready
    silent: set[int] = set()

    def never(address: str, *words: object, **options: object) -> None:
        jobs = [job for job in bad for vm in world.context.ledger.vms(job) if vm.address == address]
        if jobs:
            silent.update(jobs)
            raise UnavailableError(f"guest {address} is not up after 120 s")
        wait_ready(address, *words, **options)  # type: ignore[arg-type]

    world.guests.wait_ready = never  # type: ignore[method-assign, assignment]
    for _ in range(60):
        world.tick()
    assert len(silent) >= 3
    assert world.events("node-rests") == []
    assert world.running()


# -- faults that stay alone --------------------------------------------------------------------------------------------


def test_a_node_that_died_in_a_boot_costs_its_vjob_one_start(world: World) -> None:
    for _ in range(3):
        world.tick()
    boot = world.hypervisor.boot

    def dies(node: str, *words: object, **options: object) -> None:
        if node == "n1":
            world.kill_node("n1", slurm_notices=False)
        boot(node, *words, **options)  # type: ignore[arg-type]

    world.hypervisor.boot = dies  # type: ignore[method-assign]
    job = world.submit(vms=1)
    ten_minutes(world)
    assert world.context.ledger.starts(job) == 1
    assert [name for name, _ in world.rms.calls if name in ("requeue", "close_gate")] == ["close_gate"]
    assert (world.state(job), world.rms.job(job).gated) == (S.STOPPING, True)
    assert "n1 does not answer" in world.context.ledger.vjob(job).reason
    del world.hypervisor.boot  # type: ignore[method-assign]
    world.revive_node("n1")
    world.until(job, S.RUNNING, ticks=400)
    assert world.context.ledger.vjob(job).losses == 0


def test_a_node_that_was_dead_before_a_boot_costs_nothing(world: World) -> None:
    for _ in range(3):
        world.tick()
    job = world.submit(vms=1)
    list_vms = world.hypervisor.list_vms

    def dies_after_the_look(node: str) -> object:
        if node == "n1" and world.context.ledger.vjobs() and world.state(job) is S.STARTING:
            world.kill_node("n1", slurm_notices=False)
        return list_vms(node)

    world.hypervisor.list_vms = dies_after_the_look  # type: ignore[method-assign, assignment]
    world.until(job, S.RUNNING)
    assert world.host(job) == "n2"


def test_a_dead_destination_ends_a_migration(world: World) -> None:
    job = world.running()
    home = world.host(job)
    target = next(node for node in NODES if node != home)
    migrate = world.hypervisor.migrate

    def dies(*words: object, **options: object) -> None:
        world.kill_node(target, slurm_notices=False)
        migrate(*words, **options)  # type: ignore[arg-type]

    world.hypervisor.migrate = dies  # type: ignore[method-assign]
    before = operations(world, job)
    world.ask(job, K.MIGRATE, target)
    for _ in range(60):
        world.tick()
    assert operations(world, job) - before == 1
    [vm] = world.context.ledger.vms(job)
    assert (vm.host, vm.destination, world.state(job)) == (home, "", S.RUNNING)
    assert world.hypervisor.where(vm.name) == [home]
    assert world.context.ledger.vjob(job).losses == 0


def test_one_bad_job_ends_the_cycle_for_itself_only(world: World) -> None:
    jobs = [world.running(), world.submit(vms=1), world.submit(vms=1)]
    script, bad = world.rms.batch_script, jobs[1]

    def odd(job_id: int) -> str:
        if job_id == bad:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return script(job_id)

    world.rms.batch_script = odd  # type: ignore[method-assign]
    world.until(jobs[2], S.RUNNING)
    assert any(f"job {bad}: internal error" in problem for problem in world.cycle.report.problems)
    world.rms.finish(jobs[0])
    world.until(jobs[0], S.TERMINATED)
    del world.rms.batch_script  # type: ignore[method-assign]
    world.until(bad, S.RUNNING)


def test_a_fault_of_ours_in_reconciling_one_vjob_is_none_of_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = world.running(), world.running()
    reconcile = following.reconcile

    def faulty(vjob, *words):  # type: ignore[no-untyped-def]
        if vjob.job_id == bad:
            raise KeyError("n9")
        return reconcile(vjob, *words)

    monkeypatch.setattr(following, "reconcile", faulty)
    world.rms.finish(bad)
    world.rms.finish(good)
    world.until(good, S.TERMINATED)
    assert world.state(bad) is S.RUNNING
    assert any(f"vjob {bad}: internal error: KeyError('n9')" in problem for problem in world.cycle.report.problems)
    monkeypatch.undo()
    world.until(bad, S.TERMINATED)


def test_a_vjob_whose_start_cannot_begin_leaves_its_room_to_those_behind_it(world: World) -> None:
    first = world.submit(vms=3, cpus=2, priority=9)
    others = [world.submit(vms=1, cpus=2) for _ in range(3)]
    begin = world.placing._begin_start

    def odd(seen, waiting, *words):  # type: ignore[no-untyped-def]
        if waiting.job.job_id == first:
            raise TypeError("an integer is required")
        begin(seen, waiting, *words)

    world.placing._begin_start = odd  # type: ignore[method-assign]
    for job in others:
        world.until(job, S.RUNNING)
    failed = world.context.ledger.failures.of_vjob(first, K.START)
    assert failed is not None
    assert "internal error: TypeError" in failed.error


def test_a_vjob_without_addresses_blocks_none_of_those_behind_it(world: World) -> None:
    network = world.settings.network.model_copy(update={"pool": "10.0.0.10-10.0.0.12"})
    world.settings = world.settings.model_copy(update={"network": network})
    world.start_engine()
    first = world.submit(vms=4, cpus=1, memory_mib=64, priority=9)
    others = [world.submit(vms=1, cpus=2) for _ in range(3)]
    for job in others:
        world.until(job, S.RUNNING)
    assert world.state(first) is S.WAITING
    assert world.context.ledger.vjob(first).reason == "needs 4 addresses, 0 free in network.pool"
