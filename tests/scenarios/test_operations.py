"""What operations on a vjob of several VMs do when all goes well, and when something does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from patience import PATIENCE_S
from scenarios.world import NODES, World

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.execute import task
from rmsplugin.engine.execute.task import CancelledError
from rmsplugin.engine.ledger.rows import OperationKind, PlanState, StepState
from rmsplugin.errors import NoSpaceError, OperationFailedError, TimedOutError, UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


def calls(world: World, method: str) -> list[tuple[str, ...]]:
    return [call for call in world.hypervisor.calls if call[0] == method]


def powers(world: World, job: int) -> set[VMPower]:
    return {
        world.hypervisor.list_vms(node)[vm.name].power
        for vm in world.context.ledger.vms(job)
        for node in world.hypervisor.where(vm.name)
    }


def events(world: World) -> str:
    return "\n".join(f"{event.kind}: {event.message}" for event in world.context.ledger.events())


def test_saves_are_begun_in_the_order_of_host_names_one_second_apart(world: World) -> None:
    job = world.running(vms=3, memory_mib=128)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    operation = world.context.ledger.operation(2)
    begun = [(action.vm, action.created) for action in world.context.ledger.actions(operation.id)]
    assert [name for name, _ in begun] == [f"vjob{job}-{index}" for index in range(3)]
    assert [round(created - begun[0][1]) for _, created in begun] == [0, 1, 2]


@pytest.mark.parametrize("pipeline_s", [0.0, 1.0, 4.0])
def test_resumed_vms_go_on_in_the_order_of_host_names_as_far_apart_as_they_were_suspended(
    world: World, monkeypatch: pytest.MonkeyPatch, pipeline_s: float
) -> None:
    durations = world.settings.durations.model_copy(update={"pipeline_s": pipeline_s})
    world.settings = world.settings.model_copy(update={"durations": durations})
    world.start_engine()
    job = world.running(vms=3, memory_mib=128)
    hosts = {vm.name: vm.host for vm in world.context.ledger.vms(job)}
    assert len(set(hosts.values())) > 1
    goes_on: list[tuple[str, str, float]] = []
    unpause = world.hypervisor.unpause

    def told(node: str, vm: str, *, timeout_s: float) -> None:
        goes_on.append((node, vm, world.context.clock.now()))
        unpause(node, vm, timeout_s=timeout_s)

    monkeypatch.setattr(world.hypervisor, "unpause", told)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    suspend = world.context.ledger.operation(2)
    saves = [action.created for action in world.context.ledger.actions(suspend.id)]
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    expected = [round(pipeline_s * place) for place in range(3)]
    assert [round(created - saves[0]) for created in sorted(saves)] == expected
    assert [round(at - goes_on[0][2]) for _, _, at in goes_on] == expected
    if pipeline_s:
        assert [(node, vm) for node, vm, _ in goes_on] == sorted((host, vm) for vm, host in hosts.items())


def test_a_vm_that_is_slow_to_go_on_keeps_no_other_one_waiting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node hangs, say: the others go on in their turns."""
    monkeypatch.setattr(task, "_BEGIN_S", 2 * PATIENCE_S)
    job = world.sleeping(vms=2)
    last, others = threading.Event(), list[bool]()

    def told(node: str, vm: str, *, timeout_s: float) -> None:
        if others:
            last.set()
        else:
            others.append(True)
            others[0] = last.wait(PATIENCE_S)
        unpause(node, vm, timeout_s=timeout_s)

    unpause = world.hypervisor.unpause
    monkeypatch.setattr(world.hypervisor, "unpause", told)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert others == [True]


def test_slurm_is_told_before_the_saves_and_after_the_vms_run_again(world: World) -> None:
    job = world.sleeping(vms=2)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    order = [name for name, argument in world.rms.calls if name in ("suspend", "resume") and argument == job]
    assert order == ["suspend", "resume"]
    assert world.rms.job(job).state == "RUNNING"


@pytest.mark.parametrize("dies", ["before its save", "in its save"])
def test_state_of_an_earlier_suspend_is_never_taken_for_that_of_a_later_one(world: World, dies: str) -> None:
    job = world.sleeping(vms=1)
    world.nodes.fail_next("drop_state", UnavailableError("no answer"))
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    vm = world.context.ledger.vms(job)[0]
    assert world.context.nodes.stat(vm.host, vm.name).final_bytes, "the first state was to be left over"
    if dies == "in its save":
        world.hypervisor.hook_next("save", Point.DURING, lambda: world.hypervisor.kill_vm(vm.name))
        world.hypervisor.fail_next("save", OperationFailedError("QEMU died"))
    else:
        world.hypervisor.kill_vm(vm.name)
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1, "the VM was set back to its first suspend"


def test_seal_whose_answer_is_lost_loses_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.running(vms=2)
    seal, unanswered = world.nodes.seal, [f"vjob{job}-1"]

    def answer_is_lost(node: str, vm: str, **options: bool) -> Digest:
        digest = seal(node, vm, **options)
        if vm in unanswered:
            unanswered.remove(vm)
            raise TimedOutError("seal did not end in time")
        return digest

    monkeypatch.setattr(world.nodes, "seal", answer_is_lost)
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert not unanswered and powers(world, job) == {VMPower.RUNNING}
    assert world.context.ledger.vjob(job).losses == 0
    assert not any(world.files.paths(node) for node in NODES)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)


def test_one_save_that_fails_leaves_all_vms_running_and_no_file(world: World) -> None:
    job = world.running(vms=3, memory_mib=128)
    world.hypervisor.fail_next("save", NoSpaceError("no space left in the store of n2"), vm=f"vjob{job}-1")
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert powers(world, job) == {VMPower.RUNNING}
    assert world.rms.job(job).state == "RUNNING"
    assert [path for node in NODES for path in world.files.paths(node)] == []
    assert "no space left in the store of n2" in world.context.ledger.vjob(job).reason
    assert "no space left in the store of n2" in events(world)


def test_one_restore_that_fails_leaves_all_vms_asleep_and_every_file(world: World) -> None:
    job = world.sleeping(vms=2)
    before = {path for node in NODES for path in world.files.paths(node)}
    world.hypervisor.fail_next("restore", OperationFailedError("qemu does not start"), vm=f"vjob{job}-1")
    world.ask(job, K.RESUME)
    world.until(job, S.SLEEPING)
    assert [world.hypervisor.where(vm.name) for vm in world.context.ledger.vms(job)] == [[], []]
    assert {path for node in NODES for path in world.files.paths(node)} >= before
    assert world.rms.job(job).state == "SUSPENDED"
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)


def test_a_corrupt_state_is_not_restored_and_only_its_vjob_begins_again(world: World) -> None:
    neighbour = world.running(vms=1)
    job = world.sleeping(vms=2)
    vm = world.context.ledger.vms(job)[0]
    world.files.damage(vm.image_node, f"/store/{vm.name}.state")
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert calls(world, "restore") == []
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.script_started) == (1, False)
    assert "state-lost" in events(world)
    assert world.context.ledger.vjob(neighbour).losses == 0
    assert powers(world, neighbour) == {VMPower.RUNNING}


def test_a_vm_that_dies_takes_its_vjob_to_the_start(world: World) -> None:
    job = world.running(vms=2)
    world.hypervisor.kill_vm(f"vjob{job}-1")
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1, "the VM was set back to its first suspend"
    assert world.rms.job(job).restarts == 1


def test_a_node_out_of_reach_is_not_a_lost_vm(world: World) -> None:
    job = world.running(vms=2)
    world.hypervisor.set_reachable("n1", False)
    for _ in range(5):
        world.tick()
    assert world.state(job) is S.RUNNING
    assert any("n1 is unreachable" in problem for problem in world.cycle.report.problems)
    world.hypervisor.set_reachable("n1", True)
    world.tick()
    assert world.context.ledger.vjob(job).losses == 0


def test_a_vm_that_cannot_boot_puts_its_vjob_back_with_the_reason_and_a_pause(world: World) -> None:
    job = world.submit(vms=2)
    world.hypervisor.fail_next("boot", OperationFailedError("no such kernel"), vm=f"vjob{job}-1")
    while (failed := world.context.ledger.failures.of_vjob(job, K.START)) is None:
        world.tick()
    assert world.state(job) is S.WAITING
    assert "no such kernel" in world.context.ledger.vjob(job).reason
    assert (failed.failures, failed.not_before >= world.time) == (1, True)
    assert world.leftovers() == []
    assert world.rms.job(job).gated
    world.until(job, S.RUNNING, ticks=120)


def test_a_cancelled_job_does_not_wait_for_its_guest_to_come_up(world: World) -> None:
    waits, gave_up = threading.Event(), threading.Event()

    def never_ready(address: str, host_key: str, *, timeout_s: float, check: Callable[[], None]) -> None:
        waits.set()
        for _ in range(2000):
            try:
                check()
            except CancelledError:
                gave_up.set()
                raise
            time.sleep(0.005)

    world.guests.wait_ready = never_ready  # type: ignore[method-assign, assignment]
    job = world.submit(vms=1)
    while not waits.is_set():
        world.alive(world.cycle.run)
        world.pass_time(1)
        waits.wait(0.1)
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    assert gave_up.is_set()
    assert world.leftovers() == []


def test_a_job_that_slurm_does_not_start_goes_back_to_waiting_with_slurms_reason(world: World) -> None:
    job = world.submit()
    world.rms.limit(job, "AssocGrpCpuLimit")
    for _ in range(5):
        world.tick()
    vjob = world.context.ledger.vjob(job)
    assert (vjob.state, "AssocGrpCpuLimit" in vjob.reason) == (S.WAITING, True)
    assert world.leftovers() == []
    world.rms.limit(job, "")
    world.until(job, S.RUNNING, ticks=200)


@pytest.mark.parametrize(("user", "soon"), [("nobody", True), ("somebody", False)])
def test_the_end_of_a_job_of_the_same_user_is_a_reason_to_try_a_limited_vjob_again(
    world: World, user: str, soon: bool
) -> None:
    other = world.rms.submit(partition="plain", user=user, cpus=1, memory_mib=1)
    world.tick()
    job = world.submit()
    world.rms.limit(job, "AssocGrpCpuLimit")
    # Until its pause is longer than what follows.
    while (failed := world.context.ledger.failures.of_vjob(job, K.START)) is None or failed.failures < 5:
        world.tick()
    assert (world.state(job), world.rms.job(job).gated) == (S.WAITING, True)
    world.rms.limit(job, "")
    world.rms.finish(other)
    for _ in range(4):
        world.tick()
    assert (world.state(job) is S.RUNNING) is soon


def test_a_limited_vjob_is_tried_again_within_a_minute(world: World) -> None:
    job = world.submit()
    world.rms.limit(job, "AssocGrpCpuLimit")
    for _ in range(600):
        world.tick()
    world.rms.limit(job, "")
    world.until(job, S.RUNNING, ticks=70)


def test_memory_is_given_away_once(world: World) -> None:
    """Three nodes of 1024 MiB hold three VMs of 600 MiB, whatever is asked (I3)."""
    jobs = [world.submit(vms=1, memory_mib=600) for _ in range(5)]
    for _ in range(5):
        world.tick()
    states = [world.state(job) for job in jobs]
    assert states == [S.RUNNING] * 3 + [S.WAITING] * 2
    assert "needs 1 CPU and 728 MiB in 1 VM" in world.context.ledger.vjob(jobs[3]).reason
    first = jobs[0]
    world.ask(first, K.SUSPEND)
    world.until(first, S.SLEEPING)
    world.until(jobs[3], S.RUNNING)
    world.ask(first, K.RESUME)
    world.tick()
    assert world.state(first) is S.SLEEPING, "its room is taken"


def test_a_smaller_vjob_behind_a_blocked_one_starts(world: World) -> None:
    large = world.submit(vms=4, cpus=2, memory_mib=128)
    small = world.submit(vms=1)
    world.until(small, S.RUNNING)
    assert world.state(large) is S.WAITING


def test_a_remote_resume_copies_the_state_and_removes_it_everywhere(world: World) -> None:
    job = world.sleeping(vms=1)
    [vm] = world.context.ledger.vms(job)
    target = next(node for node in NODES if node != vm.image_node)
    world.ask(job, K.RESUME, target)
    world.until(job, S.RUNNING)
    assert world.hypervisor.where(vm.name) == [target]
    assert [path for node in NODES for path in world.files.paths(node)] == []


def test_scontrol_suspend_and_resume_by_hand_are_followed(world: World) -> None:
    job = world.running(vms=1)
    world.rms.suspend(job)
    world.until(job, S.SLEEPING)
    world.rms.resume(job)
    world.until(job, S.RUNNING)
    assert world.rms.job(job).state == "RUNNING"


def test_a_job_that_was_requeued_by_hand_does_not_start_again_in_the_second_of_its_requeue(world: World) -> None:
    job = world.running(vms=1)
    world.rms.requeue_by_admin(job)
    for _ in range(10):
        world.tick()
    assert (world.rms.job(job).detail, world.rms.job(job).restarts) == ("RUNNING", 1)
    assert "reattached: " in events(world)
    assert len(calls(world, "boot")) == 1


@pytest.mark.parametrize("noticed", [True, False], ids=["noticed before", "not noticed"])
def test_a_job_that_was_requeued_while_it_slept_is_resumed(world: World, noticed: bool) -> None:
    job = world.sleeping(vms=1)
    world.rms.requeue_by_admin(job)
    if noticed:
        for _ in range(4):
            world.tick()
        assert (world.rms.job(job).held, world.rms.job(job).gated) == (False, True)
    assert world.state(job) is S.SLEEPING
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert world.rms.job(job).state == "RUNNING"
    assert len(calls(world, "boot")) == 1


def test_an_unreachable_controller_changes_nothing(world: World) -> None:
    job = world.running(vms=1)
    world.rms.fail_next("snapshot", UnavailableError("slurmctld does not answer"))
    world.tick()
    assert world.cycle.report.problems == ["slurmctld does not answer"]
    assert world.state(job) is S.RUNNING


def test_gang_scheduling_makes_the_engine_only_observe(world: World) -> None:
    world.rms.preempt_mode = "GANG,SUSPEND"
    job = world.submit()
    for _ in range(3):
        world.tick()
    assert world.state(job) is S.WAITING
    assert "only observes" in world.cycle.report.problems[0]


def test_a_job_that_was_not_wrapped_never_runs_in_a_vjob_partition(world: World) -> None:
    job = world.rms.submit(script="#!/bin/sh\ntrue\n", gated=False)
    for _ in range(4):
        world.tick()
    assert world.rms.job(job).held
    assert "submitted again" in events(world)
    assert world.context.ledger.vjobs(ended=True) == []


@pytest.mark.parametrize("failing", ["hold", "requeue"])
def test_a_job_that_was_not_wrapped_and_could_not_be_held_is_held_later(world: World, failing: str) -> None:
    job = world.rms.submit(script="#!/bin/sh\ntrue\n", gated=False)
    if failing == "requeue":
        world.pass_time(60)
        assert world.rms.job(job).state is not JobState.PENDING
    for _ in range(3):
        world.rms.fail_next(failing, UnavailableError("slurmctld does not answer"))
    world.tick(0.1)
    world.tick(30)
    assert world.rms.calls.count((failing, job)) == 1
    assert f"job {job} is no vjob and cannot be held: slurmctld does not answer" in world.cycle.report.problems[-1]
    for _ in range(3):
        assert not world.rms.job(job).held
        world.tick(30)
    assert world.rms.job(job).held
    world.tick(30)
    assert world.rms.calls.count((failing, job)) == 4
    assert not [problem for problem in world.cycle.report.problems if "cannot be held" in problem]


def test_elements_of_an_array_become_vjobs_of_their_own(world: World) -> None:
    array = world.submit(vms=1, array=(1, 2))
    for _ in range(4):
        world.tick()
    vjobs = {vjob.display_id: vjob.state for vjob in world.context.ledger.vjobs()}
    assert vjobs == {f"{array}_1": S.RUNNING, f"{array}_2": S.RUNNING}


def test_a_resume_that_is_interrupted_after_its_files_are_history_never_goes_back_to_sleeping(world: World) -> None:
    job = world.sleeping(vms=2)
    world.hypervisor.fail_next("unpause", UnavailableError("n1 does not answer"), vm=f"vjob{job}-1")
    world.ask(job, K.RESUME, "n1")
    world.until(job, S.RESUMING)
    assert {vm.image_node for vm in world.context.ledger.vms(job)} == {""}
    world.hypervisor.set_reachable("n1", False)
    for _ in range(10):
        world.tick()
        assert world.state(job) is S.RESUMING
    world.hypervisor.set_reachable("n1", True)
    world.until(job, S.RUNNING)
    assert powers(world, job) == {VMPower.RUNNING}
    assert world.context.ledger.vjob(job).losses == 0


def test_a_suspend_that_is_undone_before_its_state_is_sealed_restores_no_older_one(world: World) -> None:
    job = world.sleeping(vms=1)
    world.nodes.fail_next("drop_state", UnavailableError("n1 does not answer"))
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert [path for node in NODES for path in world.files.paths(node)] == [f"/store/vjob{job}-0.state"]
    world.nodes.fail_next("seal", UnavailableError("n1 does not answer"))
    world.ask(job, K.SUSPEND)
    world.until(job, S.RUNNING)
    assert world.hypervisor.violations == []
    assert powers(world, job) == {VMPower.RUNNING}


def test_an_interrupted_undo_of_a_suspend_leaves_no_paused_vm_beside_its_state(world: World) -> None:
    job = world.running(vms=2)

    def lost() -> None:
        raise UnavailableError("the connection broke after the restore")

    seal = world.nodes.seal

    def seal_first_only(node: str, vm: str, *words: object, **options: object) -> None:
        if vm.endswith("-1"):
            del world.nodes.seal  # type: ignore[method-assign]
            raise UnavailableError(f"{node} does not answer")
        seal(node, vm, *words, **options)  # type: ignore[arg-type]

    world.nodes.seal = seal_first_only  # type: ignore[method-assign]
    for vm in (f"vjob{job}-0", f"vjob{job}-1"):
        world.hypervisor.hook_next("restore", Point.AFTER, lost, vm=vm)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    assert [world.hypervisor.where(vm.name) for vm in world.context.ledger.vms(job)] == [[], []]
    world.ask(job, K.RESUME, "n3")
    world.until(job, S.RUNNING)


def test_what_is_asked_for_by_hand_is_a_plan_of_one_step(world: World) -> None:
    job = world.sleeping(vms=2, memory_mib=512)
    vjob = world.context.ledger.vjob(job)
    assert not vjob.resumes, "who suspends by hand resumes by hand"
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    world.tick()
    suspend, resume = [plan for plan in world.context.ledger.plans.plans(99) if plan.policy == "by hand"]
    assert (suspend.state, suspend.sentence) == (PlanState.DONE, f"suspend {job}: asked")
    assert (resume.state, resume.sentence) == (PlanState.DONE, f"resume {job}: asked")
    # The model's: 10 s and 0.039 s for each MiB, and a second between the two VMs.
    assert (round(suspend.estimate_s, 1), round(resume.estimate_s, 1)) == (31.0, 31.0)
    [step] = world.context.ledger.plans.steps(suspend.id)
    assert step.state is StepState.DONE
    assert world.context.ledger.operation(step.operation_id).requested_by == "root"


def test_what_is_refused_by_hand_leaves_no_plan(world: World) -> None:
    job = world.sleeping(vms=2)
    before = len(world.context.ledger.plans.plans(99))
    world.ask(job, K.SUSPEND)
    world.ask(job, K.MIGRATE)
    world.ask(job, K.RESUME, to="nowhere")
    assert len(world.context.ledger.plans.plans(99)) == before


def test_what_is_under_way_by_hand_counts_with_the_steps_of_context_switches(world: World) -> None:
    job, found = world.running(vms=2), []
    plans = world.context.ledger.plans
    world.hypervisor.hook_next("save", Point.DURING, lambda: found.extend(plans.open_steps()))
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    assert [(step.vjob, step.kind, step.state) for step in found] == [(str(job), K.SUSPEND, StepState.RUNNING)]
    world.tick()
    assert plans.open_steps() == []
