"""The contract of ``adapters.rms.base.Rms``: what the gate keeps, and what it leaves to Slurm; see rms_worlds."""

from __future__ import annotations

import pytest
from contract.rms_worlds import GATE_RESERVATION, SimulatedWorld, World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_handed import HandedSlurm
from rmsplugin.errors import RefusedError


def test_only_the_job_whose_gate_is_opened_starts(world: World) -> None:
    first, second = world.submit(), world.submit()
    for _ in range(2):
        world.rms.open_gate(second)
    job = world.wait_for(second, JobState.RUNNING)
    assert (job.gated, job.restarts, len(job.nodes), job.batch_host) == (False, 0, 1, job.nodes[0])
    world.rms.open_gate(second)
    world.rms.close_gate(second)
    assert world.stays(lambda: world.rms.job(first).state is JobState.PENDING)
    job = world.rms.job(second)
    assert (job.state, job.gated) == (JobState.RUNNING, False)


def test_slurmctld_has_not_heard_of_a_silent_node_since_it_started(world: World) -> None:
    assert world.rms.unheard("plain") == ()
    with world.restart_slurmctld(silent="n1"):
        world.wait("it to start", lambda: "n1" in world.rms.unheard("plain"))
        assert world.rms.unheard("vmhosts") == world.rms.unheard("plain")
        assert not world.rms.snapshot().nodes["n1"].up
    world.wait("it to hear of all", lambda: world.rms.unheard("plain") == ())
    assert world.rms.snapshot().nodes["n1"].up


def test_licences_of_the_users_own_stay(world: World) -> None:
    job_id = world.submit("--licenses=matlab:2", "--begin=now+25")
    assert (world.rms.job(job_id).licenses, world.rms.job(job_id).gated) == ("matlab:2", True)
    world.rms.open_gate(job_id)
    assert (world.rms.job(job_id).licenses, world.rms.job(job_id).gated) == ("matlab:2", False)
    world.rms.close_gate(job_id)
    assert (world.rms.job(job_id).licenses, world.rms.job(job_id).gated) == ("matlab:2", True)
    world.rms.open_gate(job_id)
    assert world.wait_for(job_id, JobState.RUNNING).licenses == "matlab:2"


def test_begin_time(world: World) -> None:
    begin = world.now() + 15
    job_id = world.submit("--begin=now+15")
    assert not world.rms.job(job_id).eligible
    assert abs(world.rms.job(job_id).begin_time - begin) <= 2
    (listed,) = (job for job in world.rms.snapshot().jobs if job.job_id == job_id)
    assert listed.begin_time == world.rms.job(job_id).begin_time
    world.wait("the begin time", lambda: world.rms.job(job_id).eligible)
    assert world.now() >= begin - 1
    assert world.rms.job(job_id).begin_time == 0
    assert world.rms.job(job_id).state is JobState.PENDING


def test_opening_leaves_the_begin_time_and_closing_puts_the_gate_back(world: World) -> None:
    begin = world.now() + 25
    opened, closed = world.submit("--begin=now+25"), world.submit("--begin=now+25")
    for job_id in (opened, closed):
        world.rms.open_gate(job_id)
        job = world.rms.job(job_id)
        assert (job.state, job.gated, job.eligible) == (JobState.PENDING, False, False)
    for _ in range(2):
        world.rms.close_gate(closed)
    assert world.wait_for(opened, JobState.RUNNING).start_time >= int(begin) - 1
    world.wait("the begin time", lambda: world.rms.job(closed).eligible)
    assert world.stays(lambda: world.rms.job(closed).state is JobState.PENDING)


def test_a_guess_of_the_scheduler_is_no_begin_time(world: World) -> None:
    for node in ("n1", "n2"):
        filling = world.submit(f"--nodelist={node}", "--ntasks=2", "--time=10", gated=False)
        world.wait_for(filling, JobState.RUNNING)
    job_id = world.submit("--nodelist=n1", gated=False)
    world.wait("the reason", lambda: world.rms.job(job_id).reason in ("Resources", "Priority"))
    assert world.stays(lambda: world.rms.job(job_id).eligible, 5)


def test_dependency(world: World) -> None:
    first = world.started()
    second = world.submit(f"--dependency=afterany:{first}")
    world.wait("the reason", lambda: world.rms.job(second).reason == "Dependency")
    job = world.rms.job(second)
    assert (job.held, job.gated, job.eligible) == (False, True, False)
    world.rms.cancel(first)
    world.wait("the dependency", lambda: world.rms.job(second).eligible)
    assert world.stays(lambda: world.rms.job(second).state is JobState.PENDING)
    world.rms.open_gate(second)
    world.wait_for(second, JobState.RUNNING)


def test_opening_leaves_the_dependency(world: World) -> None:
    first = world.started()
    second = world.submit(f"--dependency=afterany:{first}")
    world.rms.open_gate(second)
    assert world.stays(lambda: world.rms.job(second).state is JobState.PENDING)
    world.rms.cancel(first)
    world.wait_for(second, JobState.RUNNING)


def test_dependency_that_can_never_be_fulfilled(world: World) -> None:
    first = world.started()
    second = world.submit(f"--dependency=afterok:{first}")
    world.rms.cancel(first)
    world.wait("the reason", lambda: world.rms.job(second).reason == "DependencyNeverSatisfied")
    assert not world.rms.job(second).eligible


def test_dependency_and_begin_time(world: World) -> None:
    first = world.submit()
    second = world.submit(f"--dependency=afterany:{first}", "--begin=now+20")
    assert world.rms.job(second).begin_time == 0, "nobody knows when"
    world.rms.cancel(first)
    world.wait("the dependency", lambda: world.rms.job(second).reason == "BeginTime")
    assert world.rms.job(second).begin_time > world.now()
    assert not world.rms.job(second).eligible
    world.wait("the begin time", lambda: world.rms.job(second).eligible)


def test_hold_of_the_user(world: World) -> None:
    job_id = world.submit("--hold")
    job = world.rms.job(job_id)
    assert (job.held, job.gated, job.eligible, job.reason, job.priority) == (True, True, False, "JobHeldUser", 0)
    world.rms.open_gate(job_id)
    assert world.stays(lambda: world.rms.job(job_id).held)
    world.release_as_user(job_id)
    world.wait_for(job_id, JobState.RUNNING)


def test_hold_that_comes_later(world: World) -> None:
    job_id = world.submit()
    world.hold_as_user(job_id)
    assert not world.rms.job(job_id).eligible
    world.release_as_user(job_id)
    job = world.rms.job(job_id)
    assert (job.held, job.gated, job.eligible) == (False, True, True)


def test_hold_is_the_administrators(world: World) -> None:
    job_id = world.submit()
    for _ in range(2):
        world.rms.hold(job_id)
        job = world.rms.job(job_id)
        assert (job.held, job.reason, job.eligible) == (True, "JobHeldAdmin", False)
    with pytest.raises(RefusedError):
        world.release_as_user(job_id)
    assert world.rms.job(job_id).held
    world.release_as_admin(job_id)
    assert (world.rms.job(job_id).held, world.rms.job(job_id).gated) == (False, True)


def test_hold_what_runs(world: World) -> None:
    job_id = world.started()
    world.rms.hold(job_id)
    job = world.rms.job(job_id)
    assert (job.state, job.held, job.priority > 0) == (JobState.RUNNING, False, True)


# --- the reservation ---


def left_s(world: World) -> float:
    return world.rms.snapshot().reservations[GATE_RESERVATION].end_time - world.now()


def test_reservation_is_made(world: World) -> None:
    world.end_gate_reservation_in(0)
    assert GATE_RESERVATION not in world.rms.snapshot().reservations
    for _ in range(2):
        world.rms.reserve_gate()
    assert left_s(world) > 300 * 86400


def test_reservation_is_renewed_while_jobs_wait(world: World) -> None:
    job_id = world.submit()
    world.end_gate_reservation_in(3600)
    assert left_s(world) < 4000
    assert world.stays(lambda: world.rms.job(job_id).state is JobState.PENDING)
    world.rms.reserve_gate()
    gate = world.rms.snapshot().reservations[GATE_RESERVATION]
    # For a year from now, not from its start.
    assert gate.end_time - gate.start_time > 365 * 86400 + 2
    assert world.stays(lambda: world.rms.job(job_id).state is JobState.PENDING)


def test_without_the_reservation_the_gate_is_open(world: World) -> None:
    job_id = world.submit()
    world.end_gate_reservation_in(0)
    try:
        world.wait_for(job_id, JobState.RUNNING)
    finally:
        world.rms.reserve_gate()
    other = world.submit()
    world.rms.cancel(job_id)
    assert world.stays(lambda: world.rms.job(other).state is JobState.PENDING)


def test_no_such_licence(world: World) -> None:
    rms = world.rms
    if isinstance(world, SimulatedWorld):
        world.simulated.licenses.clear()
    else:
        commands = rms._own if isinstance(rms, HandedSlurm) else rms
        assert isinstance(commands, SlurmCli)
        commands._gate = "nogate"
    with pytest.raises(RefusedError, match=r"slurm\.conf has no licence"):
        rms.reserve_gate()
