"""What is not seen is not gone: what one answer leaves out (a job, a VM, a wrapper) ends and requeues nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from scenarios.world import NODES, World

from rmsplugin.adapters.rms.base import RmsSnapshot
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.settings import Settings

S, K = VJobState, OperationKind


@pytest.fixture(autouse=True)
def epilogs_end_nothing(world: World) -> Iterator[None]:
    """No epilog of a room had to end a VM."""
    yield
    assert world.ended_by_epilog == []


def ticks(world: World, count: int = 8) -> None:
    for _ in range(count):
        world.tick()


def unharmed(world: World, *jobs: int) -> None:
    """Their VMs live, once each, or sleep in their files; nothing began again, and Slurm was asked for nothing."""
    for job in jobs:
        vjob = world.context.ledger.vjob(job)
        assert (vjob.losses, vjob.script_started) == (0, True)
        for vm in world.context.ledger.vms(job):
            if vjob.state is S.RUNNING:
                assert world.hypervisor.where(vm.name) == [vm.host]
            else:
                assert (vjob.state, f"/store/{vm.name}.state" in world.files.paths(vm.image_node)) == (S.SLEEPING, True)
        assert world.rms.job(job).restarts == 0


def other_settings(world: World, **changes: object) -> Settings:
    return Settings.model_validate({**world.settings.model_dump(exclude_unset=True), **changes})


# -- jobs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", ["vmhosts", "others"])
def test_a_typo_in_the_partitions_and_a_restart_end_nothing(world: World, hosts: str) -> None:
    jobs = [*(world.running() for _ in range(3)), world.sleeping()]
    waiting = world.submit(vms=1, constraints={"nodes": "n9"})
    world.tick()
    right = world.settings
    changes = {"slurm": {"partitions": ["vjbo"]}, "partition": {"vjbo": {"hosts": hosts}}, "hosts": {}}
    world.settings = other_settings(world, **changes)
    world.start_engine()
    ticks(world)
    unharmed(world, *jobs)
    assert any("vjobs in partition vjob, which is not in slurm.partitions" in p for p in world.cycle.report.problems)
    assert [world.state(job) for job in jobs] == [S.RUNNING] * 3 + [S.SLEEPING]
    assert world.state(waiting) is S.WAITING
    world.settings = right
    world.start_engine()
    ticks(world)
    unharmed(world, *jobs)
    for job in jobs:
        world.rms.finish(job)
        world.until(job, S.TERMINATED)


def test_a_job_that_ends_in_a_partition_that_is_not_ours_any_more_is_still_cleaned_up(world: World) -> None:
    job = world.running()
    changes = {"slurm": {"partitions": ["vjbo"]}, "partition": {"vjbo": {"hosts": "vmhosts"}}, "hosts": {}}
    world.settings = other_settings(world, **changes)
    world.start_engine()
    ticks(world)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


@pytest.mark.parametrize("ended", [True, False])
def test_a_job_id_that_slurm_gave_to_another_user_is_no_vjobs_job_while_the_vjob_lives(
    world: World, ended: bool
) -> None:
    job = world.running()
    if ended:
        world.rms.finish(job)
        world.until(job, S.TERMINATED)
    world.rms.forget(job)
    world.rms._last_id = job - 1
    assert world.submit(vms=1, uid=0) == job
    ticks(world)
    if ended:
        assert world.context.ledger.vjob(job).uid == 0
    else:
        unharmed(world, job)
        assert world.context.ledger.vjob(job).uid == 65534


#: What a listing of Slurm has for what it leaves out.
NOTHING: dict[str, Any] = {"jobs": (), "nodes": {}, "partitions": {}}


def without(world: World, left_out: str) -> Callable[[], RmsSnapshot]:
    """A listing of Slurm in which something is missing."""
    ask = type(world.rms).snapshot
    return lambda: replace(ask(world.rms), **{name: NOTHING[name] for name in left_out.split()})


@pytest.mark.parametrize("left_out", ["jobs", "nodes", "partitions", "jobs nodes partitions"])
@pytest.mark.parametrize("cycles", [1, 5])
def test_a_listing_without_jobs_ends_nothing(world: World, cycles: int, left_out: str) -> None:
    jobs = [*(world.running() for _ in range(4)), world.sleeping()]
    waiting = world.submit(vms=6)
    world.tick()
    before = len(world.hypervisor.calls)
    world.rms.snapshot = without(world, left_out)  # type: ignore[method-assign]
    ticks(world, cycles)
    del world.rms.snapshot
    ticks(world)
    unharmed(world, *jobs)
    assert {call[0] for call in world.hypervisor.calls[before:]} <= {"list_vms", "statistics"}, (
        "nobody was moved either"
    )
    assert world.events("held-back") == [], "slurmctld knows the jobs by their ids"
    assert world.state(waiting) is S.WAITING
    assert [world.state(job) for job in jobs] == [S.RUNNING] * 4 + [S.SLEEPING]


# -- VMs ---------------------------------------------------------------------------------------------------------------


def list_without(world: World, *names: str) -> None:
    """Listings of hypervisors that answer, and leave VMs out (all of them, if none is named)."""
    ask = type(world.hypervisor).list_vms
    world.hypervisor.list_vms = lambda node: {  # type: ignore[method-assign]
        name: vm for name, vm in ask(world.hypervisor, node).items() if names and name not in names
    }


@pytest.mark.parametrize("cycles", [1, 2, 12])
def test_hypervisors_that_list_nothing_restart_nothing(world: World, cycles: int) -> None:
    jobs = [world.running() for _ in range(4)]
    list_without(world)
    ticks(world, cycles)
    del world.hypervisor.list_vms
    ticks(world)
    unharmed(world, *jobs)
    assert [world.state(job) for job in jobs] == [S.RUNNING] * 4


def test_two_bad_looks_in_a_row_are_one(world: World) -> None:
    jobs = [world.running() for _ in range(3)]
    list_without(world)
    world.hypervisor.has_vm = lambda node, name: False  # type: ignore[method-assign]
    ticks(world, 4)  # a second apart
    del world.hypervisor.list_vms, world.hypervisor.has_vm
    ticks(world)
    unharmed(world, *jobs)


def test_a_vm_that_dies_on_a_node_that_is_no_vm_host_any_more_is_noticed(world: World) -> None:
    job = world.running()
    changes = {"slurm": {"partitions": ["vjbo"]}, "partition": {"vjbo": {"hosts": "others"}}, "hosts": {}}
    world.settings = other_settings(world, **changes)
    world.start_engine()
    ticks(world)
    unharmed(world, job)
    world.hypervisor.kill_vm(f"vjob{job}-0")
    world.until(job, S.WAITING)
    assert world.context.ledger.vjob(job).losses == 1
    [lost] = world.context.ledger.events(kinds=("lost",))
    assert lost.vjob == str(job) and lost.message.startswith(f"vjob{job}-0 not running on ")
    assert lost.message.endswith(" s of its run are repeated")


def test_half_a_listing_restarts_nothing(world: World) -> None:
    jobs = [world.running(vms=2) for _ in range(2)]
    list_without(world, f"vjob{jobs[0]}-1")
    ticks(world, 12)
    unharmed(world, *jobs)


@pytest.mark.parametrize("silent", ["destination", "an earlier host"])
def test_a_vm_that_a_migration_may_have_carried_to_a_silent_node_is_not_gone(world: World, silent: str) -> None:
    job = world.running()
    [vm] = world.context.ledger.vms(job)
    other = next(node for node in NODES if node != vm.host)
    world.hypervisor.set_reachable(other, False)
    if silent == "destination":  # what an engine that was killed in a migration leaves
        world.context.ledger.enter_phase(vm.name, VMPhase.MIGRATING, destination=other)
    else:  # a migration that was believed to have failed
        world.context.ledger.touch(vm.name, other)
    carried = world.hypervisor.machines.vms[vm.host].pop(vm.name)
    world.hypervisor.machines.vms[other][vm.name] = carried
    ticks(world, 12)
    assert world.state(job) is S.RUNNING
    assert world.hypervisor.where(vm.name) == [other]
    world.hypervisor.set_reachable(other, True)
    ticks(world, 12)
    assert world.hypervisor.where(vm.name) == [other]
    assert world.context.ledger.vjob(job).losses == 0


def test_a_suspend_that_does_not_see_its_vm_loses_nothing(world: World) -> None:
    job = world.sleeping()  # so that its store is set up
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    world.ask(job, K.SUSPEND)
    list_without(world)
    ticks(world, 3)
    del world.hypervisor.list_vms
    world.until(job, S.RUNNING, S.SLEEPING)
    unharmed(world, job)


# -- proof, brake, and an operator's word ------------------------------------------------------------------------------


def test_a_job_that_slurmctld_has_forgotten_and_accounting_says_has_ended_is_cleaned_up(world: World) -> None:
    jobs = [*(world.running() for _ in range(4)), world.sleeping()]  # more than the brake lets pass without proof
    for job in jobs:
        world.rms.finish(job)
        world.rms.forget(job)
    for job in jobs:
        world.until(job, S.TERMINATED)
    assert world.leftovers() == []
    assert "COMPLETED, as accounting says" in world.events("vjob-stopping")[0]


def thrown_away(world: World, jobs: list[int]) -> None:
    """As after `slurmctld -c`: slurmctld knows nothing of the jobs, and accounting says that they were cancelled."""
    for job in jobs:
        world.rms.forget(job)
        world.rms._recorded[job] = "CANCELLED"


def test_many_jobs_that_only_accounting_knows_as_cancelled_are_ended_when_an_operator_says_so(world: World) -> None:
    jobs = [*(world.running() for _ in range(2)), *(world.sleeping() for _ in range(2))]
    waiting = world.submit(vms=1, constraints={"nodes": "n9"})
    world.tick()
    before = world.leftovers()
    thrown_away(world, [*jobs, waiting])
    ticks(world)
    assert [world.state(job) for job in jobs] == [S.RUNNING] * 2 + [S.SLEEPING] * 2
    assert world.leftovers() == before
    assert world.state(waiting) is S.TERMINATED, "nothing of it is lost, should it come back"
    [held] = world.events("held-back")
    assert "4 vjobs" in held
    world.cycle.brake.confirm([str(job) for job in jobs])
    for job in jobs:
        world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def test_a_few_jobs_that_only_accounting_knows_as_cancelled_are_ended(world: World) -> None:
    jobs = [world.running(), world.sleeping(), world.sleeping()]
    thrown_away(world, jobs)
    for job in jobs:
        world.until(job, S.TERMINATED)
    assert world.leftovers() == []
    assert world.events("held-back") == []


def test_jobs_that_come_back_after_slurmctld_had_thrown_them_away_go_on(world: World) -> None:
    jobs = [*(world.running() for _ in range(2)), *(world.sleeping() for _ in range(2))]
    known = dict(world.rms._jobs)
    thrown_away(world, jobs)
    ticks(world)
    world.rms._jobs |= known
    ticks(world)
    unharmed(world, *jobs)
    assert [world.state(job) for job in jobs] == [S.RUNNING] * 2 + [S.SLEEPING] * 2
    assert world.cycle.brake.held == ()


@pytest.mark.parametrize("why", ["it has none", "it does not answer", "it knows the job as running"])
def test_a_job_that_slurmctld_has_forgotten_is_not_ended_without_accounting(world: World, why: str) -> None:
    jobs = [world.running(), world.sleeping()]
    waiting = world.submit(vms=1, constraints={"nodes": "n9"})
    world.tick()
    world.rms.accounting = why != "it has none"
    for job in (*jobs, waiting):
        world.rms.forget(job)
    for _ in range(8):
        if why == "it does not answer":
            world.rms.fail_next("ended", UnavailableError("slurmdbd: connection refused"))
        world.tick()
    assert [world.state(job) for job in (*jobs, waiting)] == [S.RUNNING, S.SLEEPING, S.WAITING]
    assert len(world.leftovers()) == 3
    [held] = world.events("held-back")
    assert "there is no proof" in held
    assert held in world.cycle.report.problems
    confirmed = world.cycle.brake.confirm([str(jobs[0]), str(waiting)])
    assert {each.vjob for each in confirmed} == {str(jobs[0]), str(waiting)}
    if why == "it does not answer":
        world.rms.fail_next("ended", UnavailableError("slurmdbd: connection refused"))
    world.tick()
    assert [world.state(job) for job in (*jobs, waiting)] == [S.TERMINATED, S.SLEEPING, S.TERMINATED]


@pytest.mark.parametrize("lasts_s", [0.0, 30.0], ids=["refuses", "hangs"])
def test_while_accounting_is_down_nothing_is_concluded_and_everything_else_goes_on(
    world: World, lasts_s: float
) -> None:
    asked: list[float] = []

    def is_down(_: object) -> dict[int, str]:
        asked.append(world.time)
        world.pass_time(lasts_s)
        raise UnavailableError("sacct: error: Unable to connect to slurmdbd")

    runs, sleeps = world.running(), world.sleeping()
    world.rms.ended = is_down  # type: ignore[method-assign]
    for job in (runs, sleeps):
        world.rms.finish(job)
        world.rms.forget(job)
    began = world.time
    while world.time < began + 600:
        later = world.running()
        world.ask(later, K.SUSPEND)
        world.until(later, S.SLEEPING)
        world.ask(later, K.RESUME)
        world.until(later, S.RUNNING)
        world.rms.finish(later)
        world.until(later, S.TERMINATED)  # slurmctld says so
        world.tick(20.0)
    assert [world.state(job) for job in (runs, sleeps)] == [S.RUNNING, S.SLEEPING]
    assert 3 <= len(asked) <= 6, "a question that hangs is not added to each cycle"
    assert all("slurmdbd" in held.directive.reason for held in world.cycle.brake.held)
    del world.rms.ended
    for _ in range(10):
        world.tick(60.0)
    assert [world.state(job) for job in (runs, sleeps)] == [S.TERMINATED, S.TERMINATED]
    assert world.leftovers() == []


def killed_vms(world: World, count: int) -> list[int]:
    """Vjobs whose VMs died, each one alone."""
    jobs = [world.running() for _ in range(count)]
    for job in jobs:
        world.hypervisor.kill_vm(f"vjob{job}-0")
    return jobs


def test_three_vjobs_that_lose_their_vms_begin_again_by_themselves(world: World) -> None:
    jobs = killed_vms(world, 3)
    ticks(world, 30)
    assert [world.context.ledger.vjob(job).losses for job in jobs] == [1, 1, 1]
    assert world.events("held-back") == []


def test_many_vjobs_that_lose_their_vms_at_once_begin_again_when_an_operator_says_so(world: World) -> None:
    jobs = killed_vms(world, 4)
    ticks(world, 12)
    assert [world.state(job) for job in jobs] == [S.RUNNING] * 4
    [held] = world.events("held-back")
    assert "4 vjobs" in held
    assert held in world.cycle.report.problems
    world.cycle.brake.confirm([str(job) for job in jobs])
    ticks(world, 30)
    assert [world.context.ledger.vjob(job).losses for job in jobs] == [1] * 4
    assert world.cycle.brake.held == ()
    assert len(world.events("held-back-no-more")) == 1


def test_one_user_who_loses_many_vms_keeps_no_other_from_beginning_again(world: World) -> None:
    bad, good = [world.running() for _ in range(4)], world.running(user="daemon", uid=1)
    for job in bad:
        world.hypervisor.kill_vm(f"vjob{job}-0")
    ticks(world, 12)
    world.hypervisor.kill_vm(f"vjob{good}-0")
    ticks(world, 30)
    assert [world.context.ledger.vjob(job).losses for job in (*bad, good)] == [0, 0, 0, 0, 1]
    assert {held.job_id for held in world.cycle.brake.held} == set(bad)


def test_what_an_operator_confirms_is_done_at_once_whatever_failed_before(world: World) -> None:
    jobs = killed_vms(world, 4)
    for job in jobs:
        for _ in range(9):
            world.context.ledger.failures.vjob_failed(job, K.RESTART, "no answer")
    ticks(world, 8)
    requests = world.requests()
    assert len(requests.orders.confirm(0, [str(job) for job in jobs])) == 4
    ticks(world, 30)
    assert [world.context.ledger.vjob(job).losses for job in jobs] == [1] * 4


def test_what_is_held_back_is_forgotten_when_the_world_is_back(world: World) -> None:
    jobs = [world.running() for _ in range(4)]
    list_without(world)
    world.hypervisor.has_vm = lambda node, name: False  # type: ignore[method-assign]
    ticks(world, 8)
    assert len(world.cycle.brake.held) == 4
    del world.hypervisor.list_vms, world.hypervisor.has_vm
    ticks(world)
    assert world.cycle.brake.held == ()
    unharmed(world, *jobs)
    world.cycle.brake.confirm([str(job) for job in jobs])
    ticks(world)
    unharmed(world, *jobs)


@pytest.mark.parametrize(("count", "requeued"), [(3, True), (4, False)])
def test_many_wrappers_that_fall_silent_at_once_are_not_all_replaced(world: World, count: int, requeued: bool) -> None:
    jobs = [world.running() for _ in range(count)]
    world.wrappers_answer = False
    world.pass_time(world.settings.engine.orphan_s + 60)
    ticks(world, 3)
    assert [world.rms.job(job).restarts > 0 for job in jobs] == [requeued] * count
    assert bool(world.cycle.brake.held) is not requeued
