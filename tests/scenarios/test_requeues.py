"""Requeues on purpose (decision 0051): what ends before the next run belongs to the run before; holds are kept."""

from __future__ import annotations

import pytest
from scenarios.test_absence import ticks
from scenarios.world import World

from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.reconcile.requeues import Requeue, RequeuedBy, record_requeue
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind


def tell(world: World, job: int, by: RequeuedBy) -> bool:
    """The wrapper of the run that goes on tells of a requeue."""
    return record_requeue(world.context.ledger, job, Requeue(by, world.rms.job(job).restarts))


def ends(world: World, job: int) -> None:
    """The script of the job ends in its guest, to which nobody is attached."""
    world.guests.guests[world.context.ledger.vms(job)[0].address].script_ended = True


def boots(world: World) -> int:
    return sum(1 for call in world.hypervisor.calls if call[0] == "boot")


def delivers_its_end(world: World, job: int, exit_code: int = 0) -> None:
    """The wrapper tells how the script ended."""
    world.context.ledger.update_vjob(job, finished=True, finished_at=world.context.clock.now(), exit_code=exit_code)


@pytest.mark.parametrize("delivered", [False, True], ids=["nobody saw its end", "its end was delivered"])
def test_script_that_requeues_itself_and_ends_is_run_again(world: World, delivered: bool) -> None:
    job = world.running()
    world.context.ledger.update_vjob(job, script_started=True)
    assert tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    ends(world, job)
    if delivered:
        delivers_its_end(world, job)
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.script_started, vjob.finished, vjob.losses) == (False, False, 0)
    assert (world.rms.job(job).restarts, boots(world)) == (1, 2)
    assert not world.events("reattached")


def test_script_that_requeues_itself_and_goes_on_is_run_again(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    assert (world.rms.job(job).restarts, boots(world)) == (1, 2)


def test_script_that_requeues_itself_and_loses_its_vm_is_run_again(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    world.hypervisor.kill_vm(f"vjob{job}-0")
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (world.rms.job(job).restarts, boots(world), vjob.losses) == (1, 2, 0)


def test_script_that_requeues_itself_while_it_is_suspended_is_run_again(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.rms.requeue_by_admin(job)
    world.until(job, S.RUNNING)
    assert (world.rms.job(job).restarts, boots(world)) == (1, 2)


def test_requeue_that_slurm_refuses_is_none(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    tell(world, job, RequeuedBy.NOBODY)
    world.rms.requeue_by_admin(job)
    ticks(world, 10)
    assert world.events("reattached")
    assert boots(world) == 1


def test_script_that_ends_after_somebody_elses_requeue_and_before_its_next_run_is_run_again(world: World) -> None:
    job = world.running()
    assert not tell(world, job, RequeuedBy.OTHERS)
    world.rms.requeue_by_admin(job)
    ends(world, job)
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    assert (world.rms.job(job).restarts, boots(world)) == (1, 2)


def test_script_that_runs_on_is_attached_to_and_its_end_is_that_of_the_next_run(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.OTHERS)
    world.rms.requeue_by_admin(job)
    ticks(world, 10)
    assert world.events("reattached")
    ends(world, job)
    world.rms.lose_node(world.rms.job(job).batch_host)
    ticks(world, 10)
    assert (world.rms.job(job).state, world.rms.job(job).restarts) == ("RUNNING", 2)
    assert boots(world) == 1


def test_script_that_ended_while_its_front_was_lost_is_not_run_again(world: World) -> None:
    job = world.running()
    ends(world, job)
    world.rms.lose_node(world.rms.job(job).batch_host)
    ticks(world, 10)
    assert world.events("reattached")
    assert (world.rms.job(job).restarts, boots(world)) == (1, 1)


def test_what_an_old_wrapper_tells_late_is_not_heard(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    assert not record_requeue(world.context.ledger, job, Requeue(RequeuedBy.SCRIPT, 0))
    assert not world.context.ledger.vjob(job).begins_anew


@pytest.mark.parametrize("how", ["requeuehold", "requeue, then hold by its user", "requeue, then hold by an admin"])
def test_hold_of_a_requeued_vjob_lasts_until_it_is_released(world: World, how: str) -> None:
    job = world.running()
    if how == "requeuehold":
        world.rms.requeue_held(job)
    else:
        world.rms.requeue_by_admin(job)
        world.rms.user_hold(job) if "user" in how else world.rms.hold(job)
    for _ in range(8):
        world.tick(30)
    seen = world.rms.job(job)
    assert (seen.state, seen.held, world.state(job)) == ("PENDING", True, S.SLEEPING)
    assert not any(world.hypervisor.list_vms(node) for node in world.sizes)
    world.rms.release(job)
    world.until(job, S.RUNNING)
    assert (world.rms.job(job).state, world.rms.job(job).restarts, boots(world)) == ("RUNNING", 1, 1)


@pytest.mark.parametrize("gated", [False, True], ids=["before the gate", "behind the gate"])
def test_running_vjob_that_slurm_holds_since_a_front_could_not_launch_it_is_not_reattached_all_the_time(
    world: World, gated: bool
) -> None:
    job = world.running()
    world.rms.fail_launch(job)
    if gated:
        world.rms.close_gate(job)
    ticks(world, 12)
    tried = len(world.events("reattached")) + len(world.events("reattach-failed"))
    assert 1 <= tried <= 5, "it runs again, or that is tried less and less often"
    assert (boots(world), world.state(job)) == (1, S.RUNNING)
    world.rms.release(job)
    world.until(job, S.RUNNING)
    ticks(world, 80)
    assert world.rms.job(job).state == "RUNNING" and world.events("reattached")


def test_hold_of_a_vjob_that_is_requeued_while_it_sleeps_lasts_until_it_is_released(world: World) -> None:
    job = world.sleeping()
    world.context.ledger.update_vjob(job, resumes=True)
    world.rms.requeue_held(job)
    for _ in range(8):
        world.tick(30)
    seen = world.rms.job(job)
    assert (seen.state, seen.held, world.state(job)) == ("PENDING", True, S.SLEEPING)
    world.rms.release(job)
    world.until(job, S.RUNNING)
    assert boots(world) == 1


def test_script_that_requeues_and_holds_itself_is_run_again_when_it_is_released(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_held(job)
    for _ in range(8):
        world.tick(30)
    seen = world.rms.job(job)
    assert (seen.state, seen.held, world.state(job)) == ("PENDING", True, S.WAITING)
    world.rms.release(job)
    world.until(job, S.RUNNING)
    assert (world.rms.job(job).restarts, boots(world)) == (1, 2)


def test_hold_that_comes_while_a_requeued_vjob_starts_again_is_not_lifted(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    world.until(job, S.WAITING)
    world.rms.limit(job, "Resources")
    world.cycle_beside(0.1)
    world.rms.user_hold(job)
    world.rms.limit(job, "")
    for _ in range(8):
        world.tick(30)
    assert world.rms.job(job).held


def attaches(world: World, job: int) -> bool:
    """Whether the wrapper of the job's run that Slurm has started gets into the VMs."""
    requests = world.requests()
    uid, run = world.context.ledger.vjob(job).uid, world.rms.job(job).restarts
    return requests.access(uid, str(job), wrapper=True, run=run)["state"] == "running"


def slurm_starts_it_again(world: World, job: int) -> None:
    """The engine does not look while Slurm holds the requeued job back, and then starts it: nothing gates it."""
    for seconds in (2, 130, 1):
        world.pass_time(seconds)
        world.rms.pulse(())
    assert world.rms.job(job).state == "RUNNING"


@pytest.mark.parametrize("delivered", [False, True], ids=["nobody saw its end", "its end was delivered"])
def test_script_that_requeues_itself_is_run_again_where_slurm_was_faster_than_the_engine(
    world: World, delivered: bool
) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    ends(world, job)
    if delivered:
        delivers_its_end(world, job)
    slurm_starts_it_again(world, job)
    assert not attaches(world, job)
    world.until(job, S.WAITING, S.STARTING)
    world.until(job, S.RUNNING)
    assert boots(world) == 2
    assert attaches(world, job)


@pytest.mark.parametrize("ended", [False, True], ids=["it goes on", "it has ended"])
def test_somebody_elses_requeue_where_slurm_was_faster_than_the_engine(world: World, ended: bool) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.OTHERS)
    world.rms.requeue_by_admin(job)
    if ended:
        ends(world, job)
    slurm_starts_it_again(world, job)
    assert not attaches(world, job)
    if ended:
        world.until(job, S.WAITING, S.STARTING)
        world.until(job, S.RUNNING)
    else:
        ticks(world, 10)
    assert boots(world) == (2 if ended else 1)
    assert attaches(world, job)


def test_job_that_requeues_itself_is_behind_the_gate_before_slurm_has_cleaned_up(world: World) -> None:
    job = world.running()
    tell(world, job, RequeuedBy.SCRIPT)
    world.rms.requeue_by_admin(job)
    assert world.rms.job(job).completing
    world.tick(0.1)
    seen = world.rms.job(job)
    assert (seen.completing, seen.gated, world.state(job)) == (True, True, S.RUNNING)


def test_wrapper_of_a_vjob_that_was_requeued_asleep_attaches_once_it_is_resumed(world: World) -> None:
    job = world.sleeping()
    world.context.ledger.update_vjob(job, resumes=True)
    world.rms.requeue_by_admin(job)
    world.until(job, S.RUNNING)
    assert world.rms.job(job).restarts == 1
    assert attaches(world, job)


@pytest.mark.parametrize("faster", [False, True], ids=["the engine looks first", "Slurm starts it first"])
@pytest.mark.parametrize("code", [3, 4])
def test_script_that_ends_with_a_code_of_requeue_exit_is_run_again(world: World, code: int, faster: bool) -> None:
    world.rms.requeue_exits = frozenset({3})
    job = world.running()
    ends(world, job)
    world.context.ledger.update_vjob(job, finished=True, finished_at=world.context.clock.now(), exit_code=code)
    if not faster:
        world.tick(0.1)
    world.rms.requeue_by_admin(job)
    if faster:
        slurm_starts_it_again(world, job)
    if code == 3:
        world.until(job, S.WAITING, S.STARTING)
        world.until(job, S.RUNNING)
        assert world.context.ledger.vjob(job).script_started is False
    else:
        ticks(world, 10)
    assert boots(world) == (2 if code == 3 else 1)
    assert attaches(world, job)


def front_is_sound(world: World) -> bool:
    return not any(node.draining for node in world.rms.snapshot().nodes.values())


@pytest.mark.parametrize("opened", [False, True], ids=["behind the gate", "open when slurmctld saved it"])
def test_vjob_whose_start_slurmctld_has_forgotten_waits_until_its_first_wrapper_is_gone(
    world: World, opened: bool
) -> None:
    job = world.running()
    world.rms.forget_start(job)
    if opened:
        world.rms.ungate(job)
    ticks(world, 40)
    assert (world.rms.job(job).state, world.rms.job(job).restarts, boots(world)) == ("RUNNING", 0, 1)
    assert front_is_sound(world)
    assert len(world.events("start-forgotten")) == len(world.events("reattached")) == 1


def test_vjob_whose_start_slurmctld_forgets_in_that_start_waits_until_its_first_wrapper_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = world.submit(vms=1)
    open_gate = world.rms.open_gate

    def forgets(job_id: int) -> None:
        open_gate(job_id)
        if not forgotten:
            world.pass_time(1)
            forgotten.append(world.rms.job(job_id).state)
            world.rms.forget_start(job_id)

    forgotten: list[str] = []
    monkeypatch.setattr(world.rms, "open_gate", forgets)
    world.until(job, S.RUNNING)
    ticks(world, 5)
    assert forgotten == ["RUNNING"]
    assert (world.rms.job(job).state, world.rms.job(job).restarts, boots(world)) == ("RUNNING", 0, 1)
    assert front_is_sound(world)
    assert len(world.events("start-forgotten")) == 1


@pytest.mark.parametrize(("exit_code", "detail"), [(0, "COMPLETED"), (3, "FAILED")])
def test_script_whose_end_slurmctld_has_forgotten_is_not_run_again(world: World, exit_code: int, detail: str) -> None:
    job = world.running()
    delivers_its_end(world, job, exit_code)
    world.rms.finish(job, detail)
    world.until(job, S.TERMINATED)
    world.rms.forget_end(job)
    assert world.rms.job(job).state == "RUNNING"
    ticks(world, 10)
    found = world.rms.job(job)
    assert (found.state, found.detail, found.restarts, boots(world)) == ("ENDED", detail, 0, 1)
    (told,) = world.events("end-told")
    assert f"with exit code {exit_code}" in told


def test_script_that_ended_and_is_requeued_by_hand_is_run_again(world: World) -> None:
    job = world.running()
    delivers_its_end(world, job)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    world.rms.forget_end(job)
    world.rms.requeue_by_admin(job)
    world.until(job, S.RUNNING)
    assert (world.rms.job(job).restarts, boots(world)) == (1, 2)
    assert not world.events("end-told")


def test_run_that_began_since_the_look_is_not_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm, which misses the script, or an operator requeues the job while the engine is about to tell its end."""
    job = world.running()
    delivers_its_end(world, job)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    world.rms.forget_end(job)
    tell_end = world.rms.tell_end

    def requeued_meanwhile(*end: int) -> None:
        monkeypatch.undo()
        world.rms.requeue_by_admin(job)
        world.rms.forget_end(job)  # Slurm has started it
        tell_end(*end)

    monkeypatch.setattr(world.rms, "tell_end", requeued_meanwhile)
    world.until(job, S.RUNNING)
    assert boots(world) == 2
    assert not world.events("end-told")


def test_end_that_cannot_be_told_is_told_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.running()
    delivers_its_end(world, job)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    world.rms.forget_end(job)
    tell_end, tried = world.rms.tell_end, []

    def fails_once(*end: int) -> None:
        tried.append(end)
        if len(tried) == 1:
            raise UnavailableError("slurmctld does not answer")
        tell_end(*end)

    monkeypatch.setattr(world.rms, "tell_end", fails_once)
    ticks(world, 40)
    assert (tried, world.rms.job(job).detail, boots(world)) == ([(job, 0, 0, 0)] * 2, "COMPLETED", 1)
