"""VMs come up while their job waits, and Slurm starts it when they are nearly there; what Slurm refuses, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.world import World

from rmsplugin.accounts import Account, look_up
from rmsplugin.adapters.platform.base import VMSpec
from rmsplugin.adapters.rms.base import JobState, RmsJob
from rmsplugin.engine.execute import identity
from rmsplugin.engine.execute.identity import take_account
from rmsplugin.errors import OperationFailedError, RefusedError
from rmsplugin.model.vjob import VJobState

S = VJobState


@pytest.fixture
def template_world(directory: Path) -> Iterator[World]:
    world = World(directory, templates=True)
    yield world
    world.close()


def story(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of Slurm, hypervisors and guests from now on, as far as it is about starts."""
    told: list[str] = []

    def tell(neighbour: object, name: str) -> None:
        method = getattr(neighbour, name)

        def telling(*arguments: Any, **options: Any) -> Any:
            told.append(name)
            return method(*arguments, **options)

        monkeypatch.setattr(neighbour, name, telling)

    for name in ("boot", "unpause"):
        tell(world.hypervisor, name)
    for name in ("wait_ready", "configure"):
        tell(world.guests, name)
    tell(world.rms, "open_gate")
    return told


def beside_slurm(told: list[str]) -> list[str]:
    """All but the opening of the gate, once, which nothing else waits for."""
    assert told.count("open_gate") == 1
    return [name for name in told if name != "open_gate"]


def test_the_gate_is_opened_once_the_vm_has_booted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told = story(world, monkeypatch)
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    assert beside_slurm(told) == ["boot", "wait_ready", "configure"]
    assert told.index("open_gate") > told.index("wait_ready")


def test_a_restored_vm_comes_up_while_slurm_starts_its_job(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    told = story(template_world, monkeypatch)
    job = template_world.submit(vms=1)
    template_world.until(job, S.RUNNING)
    assert beside_slurm(told) == ["unpause", "wait_ready", "configure"]


def test_no_restore_waits_until_slurm_has_answered(template_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world = template_world
    world.until(world.submit(vms=1), S.RUNNING)
    up, configure, open_gate = threading.Event(), world.guests.configure, world.rms.open_gate
    answered_after: list[bool] = []

    def configuring(*arguments: Any, **options: Any) -> None:
        up.set()
        configure(*arguments, **options)

    def opening(job_id: int) -> None:
        answered_after.append(up.wait(PATIENCE_S))
        open_gate(job_id)

    monkeypatch.setattr(world.guests, "configure", configuring)
    monkeypatch.setattr(world.rms, "open_gate", opening)
    world.until(world.submit(vms=1), S.RUNNING)
    assert answered_after == [True]


def test_where_no_thread_is_left_the_gate_is_opened_before_the_restore(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    monkeypatch.setattr(template_world.executor.threads, "_free", 0)
    told = story(template_world, monkeypatch)
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    assert told == ["open_gate", "unpause", "wait_ready", "configure"]


def test_a_start_that_fails_while_slurm_is_asked_leaves_the_job_behind_the_gate(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = template_world
    world.until(world.submit(vms=1), S.RUNNING)
    failed, open_gate = threading.Event(), world.rms.open_gate

    def failing(*arguments: Any, **options: Any) -> None:
        failed.set()
        raise OperationFailedError("no home")

    def opening(job_id: int) -> None:
        assert failed.wait(PATIENCE_S)
        open_gate(job_id)

    monkeypatch.setattr(world.guests, "configure", failing)
    monkeypatch.setattr(world.rms, "open_gate", opening)
    job = world.submit(vms=1)
    world.tick()
    assert (world.state(job), failed.is_set()) == (S.WAITING, True)
    assert world.rms.job(job).state is JobState.PENDING
    assert world.rms.job(job).gated


def test_a_restore_that_took_long_is_waited_for_before_the_gate_is_opened(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*arguments: Any, **options: Any) -> None:
        template_world.pass_time(3.0)
        type(template_world.guests).wait_ready(template_world.guests, *arguments, **options)

    monkeypatch.setattr(template_world.guests, "wait_ready", slowly)
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    told = story(template_world, monkeypatch)
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    assert beside_slurm(told) == ["unpause", "wait_ready", "configure"]
    assert told.index("open_gate") > told.index("wait_ready")


def test_where_only_the_state_takes_long_the_guest_answers_beside_slurm(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the second restore, when that is known."""
    world = template_world
    asked, restore, open_gate = threading.Event(), world.hypervisor.restore, world.rms.open_gate
    before_the_answer: list[bool] = []

    def slowly(*arguments: Any, **options: Any) -> None:
        asked.clear()
        world.pass_time(3.0)
        restore(*arguments, **options)

    def answering(*arguments: Any, **options: Any) -> None:
        before_the_answer.append(asked.wait(PATIENCE_S if before_the_answer else 0))
        type(world.guests).wait_ready(world.guests, *arguments, **options)

    def opening(job_id: int) -> None:
        asked.set()
        open_gate(job_id)

    monkeypatch.setattr(world.hypervisor, "restore", slowly)
    monkeypatch.setattr(world.guests, "wait_ready", answering)
    monkeypatch.setattr(world.rms, "open_gate", opening)
    for _ in range(2):
        world.until(world.submit(vms=1, cpus=2), S.RUNNING)
    assert before_the_answer == [False, True]


def test_after_a_restore_that_failed_the_next_one_is_waited_for(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    template_world.hypervisor.fail_next("restore", OperationFailedError("QEMU will not load it"))
    template_world.until(template_world.submit(vms=1), S.RUNNING)
    assert template_world.executor.restored == {}


def has_template(world: World) -> None:
    """Make one on the node on which the next vjob starts."""
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)


def fails_late(world: World, monkeypatch: pytest.MonkeyPatch, had: JobState) -> list[tuple[JobState, bool]]:
    """Have the first VM of the next vjob not restored, once Slurm has its job so, and boot for five minutes then.

    Returns how Slurm has the job meanwhile, and whether its VMs are said to be nearly up.
    """
    seen: list[tuple[JobState, bool]] = []

    def job() -> RmsJob:
        return max(world.rms.snapshot().jobs, key=lambda each: each.job_id)

    def restore(node: str, spec: VMSpec, *arguments: Any, **options: Any) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while spec.name.endswith("-0") and job().state is not had:
            assert time.monotonic() < deadline
            world.pass_time(0.1)
            time.sleep(0.001)
        if spec.name.endswith("-0"):
            raise OperationFailedError("QEMU will not load it")
        type(world.hypervisor).restore(world.hypervisor, node, spec, *arguments, **options)

    def boot(*arguments: Any, **options: Any) -> None:
        for _ in range(10):
            world.pass_time(30.0)
            seen.append((job().state, world.executor.nearly_up(job().job_id)))
        type(world.hypervisor).boot(world.hypervisor, *arguments, **options)

    monkeypatch.setattr(world.hypervisor, "restore", restore)
    monkeypatch.setattr(world.hypervisor, "boot", boot)
    return seen


@pytest.mark.parametrize("vms", [1, 2])
@pytest.mark.parametrize("had", [JobState.PENDING, JobState.RUNNING])
def test_a_jobs_time_does_not_run_while_a_vm_boots_whose_restore_failed(
    template_world: World, monkeypatch: pytest.MonkeyPatch, had: JobState, vms: int
) -> None:
    world = template_world
    has_template(world)
    if had is JobState.PENDING:
        monkeypatch.setattr(world.rms, "_start_delay_s", 5.0)
    seen = fails_late(world, monkeypatch, had)
    job, began = world.submit(vms=vms, time_limit_s=120.0), world.time
    world.until(job, S.RUNNING)
    assert set(seen) == {(JobState.PENDING, False)}
    assert world.rms.job(job).state is JobState.RUNNING
    assert world.rms.job(job).start_time - began > 299
    assert (world.rms.job(job).restarts, world.context.ledger.vjob(job).losses) == (int(had is JobState.RUNNING), 0)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.hypervisor.where(f"vjob{job}-0") == []


def test_prolog_slurmctld_keeps_a_job_that_it_has_while_a_vm_boots_whose_restore_failed(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = template_world
    has_template(world)
    monkeypatch.setattr(world.rms, "_configuring_s", None)
    seen = fails_late(world, monkeypatch, JobState.CONFIGURING)
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    assert set(seen) == {(JobState.CONFIGURING, False)}
    assert world.rms.job(job).restarts == 0


@pytest.mark.parametrize("until", [JobState.CONFIGURING, JobState.RUNNING])
def test_a_job_that_slurm_starts_while_it_is_sent_back_is_handled_as_slurm_has_it_then(
    template_world: World, monkeypatch: pytest.MonkeyPatch, until: JobState
) -> None:
    """Pending at the engine's look, it is kept or sent back once, as if it had been started before."""
    world = template_world
    has_template(world)
    monkeypatch.setattr(world.rms, "_start_delay_s", 5.0)
    if until is JobState.CONFIGURING:
        monkeypatch.setattr(world.rms, "_configuring_s", None)
    seen = fails_late(world, monkeypatch, JobState.PENDING)
    acts = {name: getattr(world.rms, name) for name in ("close_gate", "requeue")}
    started: list[str] = []

    def late(name: str, job_id: int) -> None:
        while not started and world.rms.job(job_id).state is not until:
            world.pass_time(1.0)
        started.append(name)
        acts[name](job_id)

    for name in acts:
        monkeypatch.setattr(world.rms, name, partial(late, name))
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    sent_back = until is JobState.RUNNING
    assert started, "the job was pending when the restore failed"
    assert set(seen) == {(JobState.PENDING if sent_back else JobState.CONFIGURING, False)}
    assert world.rms.job(job).restarts == sent_back


def test_a_job_that_is_cancelled_before_a_restore_fails_starts_no_vm(
    template_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = template_world
    has_template(world)

    def restore(*arguments: Any, **options: Any) -> None:
        world.rms.cancel(job)
        raise OperationFailedError("QEMU will not load it")

    monkeypatch.setattr(world.hypervisor, "restore", restore)
    job = world.submit(vms=1)
    boots = [call[0] for call in world.hypervisor.calls].count("boot")
    world.until(job, S.TERMINATED)
    assert [call[0] for call in world.hypervisor.calls].count("boot") == boots


def test_the_gate_is_opened_once_when_the_last_vm_is_nearly_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = story(world, monkeypatch)
    job = world.submit(vms=3)
    world.until(job, S.RUNNING)
    assert told.count("open_gate") == 1
    assert told[: told.index("open_gate")].count("wait_ready") == 3


def test_while_its_vms_boot_its_job_is_in_the_queue(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[JobState, bool]] = []

    def boot(*arguments: Any, **options: Any) -> None:
        seen.append((world.rms.job(job).state, world.rms.job(job).gated))
        type(world.hypervisor).boot(world.hypervisor, *arguments, **options)

    monkeypatch.setattr(world.hypervisor, "boot", boot)
    job = world.submit(vms=1)
    world.until(job, S.RUNNING)
    assert seen == [(JobState.PENDING, True)]


@pytest.mark.parametrize("restarts", [0, 1], ids=["new", "requeued"])
def test_whose_vms_are_nearly_up_is_known_as_soon_as_slurm_may_start_the_job(
    world: World, monkeypatch: pytest.MonkeyPatch, restarts: int
) -> None:
    job = world.submit(vms=1)
    known: dict[str, bool] = {}

    def look(neighbour: object, name: str) -> None:
        method = getattr(neighbour, name)

        def looking(*arguments: Any, **options: Any) -> Any:
            known[name] = world.executor.nearly_up(job)
            return method(*arguments, **options)

        monkeypatch.setattr(neighbour, name, looking)

    look(world.hypervisor, "boot")
    look(world.rms, "open_gate")
    if restarts:
        world.tick()
        world.until(job, S.RUNNING)
        world.hypervisor.kill_vm(f"vjob{job}-0")
        world.until(job, S.WAITING, S.STARTING)
        known.clear()
    world.until(job, S.RUNNING)
    assert known == {"boot": False, "open_gate": not restarts}


def test_for_who_was_refused_by_a_limit_no_vm_starts_in_vain_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = story(world, monkeypatch)
    first, second = world.submit(vms=1), world.submit(vms=1, held=True)
    world.rms.limit(first, "AssocGrpCpuLimit")
    world.rms.limit(second, "AssocGrpCpuLimit")
    for _ in range(5):
        world.tick()
    assert told.count("boot") == 1, "Slurm's answer is not known beforehand"
    world.rms.release(second)
    for _ in range(20):
        world.tick()
    assert told.count("boot") == 1
    assert (world.state(first), world.state(second), world.leftovers()) == (S.WAITING, S.WAITING, [])
    told.clear()
    world.rms.limit(second, "")
    world.until(second, S.RUNNING, ticks=100)
    assert told[-3:] == ["boot", "wait_ready", "configure"], "it had its allocation before"


def test_a_limit_that_kept_out_an_ended_vjob_says_nothing_of_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit(vms=1)
    world.rms.limit(job, "AssocGrpCpuLimit")
    for _ in range(5):
        world.tick()
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    told = story(world, monkeypatch)
    world.until(world.submit(vms=1), S.RUNNING)
    assert beside_slurm(told) == ["boot", "wait_ready", "configure"]
    assert told.index("open_gate") > told.index("wait_ready")


def test_an_opening_that_slurm_refuses_is_repeated_when_the_vms_are_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = story(world, monkeypatch)
    job = world.submit(vms=1)
    world.rms.fail_next("open_gate", RefusedError("not now"))
    world.until(job, S.RUNNING)
    assert told == ["boot", "wait_ready", "open_gate", "configure", "open_gate"]


def test_who_only_the_front_knows_is_configured_after_the_allocation(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = look_up(65534)

    def unknown(uid: int) -> Account:
        raise RefusedError(f"there is no user {uid}")

    monkeypatch.setattr(identity, "look_up", unknown)
    told = story(world, monkeypatch)
    job = world.submit(vms=1)
    for _ in range(3):
        world.tick()
    assert (world.rms.job(job).state, world.state(job)) == (JobState.RUNNING, S.STARTING)
    assert "configure" not in told
    assert take_account(
        world.context.settings,
        world.context.ledger,
        world.context.guests,
        world.context.slurm,
        world.context.jobs,
        job,
        account,
    )
    world.until(job, S.RUNNING)
    assert told[:3] == ["boot", "wait_ready", "open_gate"]
    assert told.count("configure") == 1
