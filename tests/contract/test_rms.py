"""The contract of ``adapters.rms.base.Rms``: reading, suspend and resume, requeue, the end, arrays; see rms_worlds."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract.rms_worlds import GATE, GATE_RESERVATION, MAIL_ALL, SCRIPT, STUBBORN, World

from rmsplugin.adapters.rms import slurm_pyslurm
from rmsplugin.adapters.rms.base import JobState, MailWish, Rms, RmsJob
from rmsplugin.adapters.rms.factory import open_rms
from rmsplugin.adapters.rms.slurm_cli import SlurmCli
from rmsplugin.adapters.rms.slurm_pyslurm import SlurmPyslurm
from rmsplugin.errors import NotFoundError, RefusedError, SettingsError, UnavailableError

NO_JOB = 99999999


# --- reading ---


def test_snapshot_of_a_gated_job(world: World) -> None:
    job_id = world.submit("--job-name=a|b\nc d=e\x1f", "--time=10")
    world.wait("Slurm to look at it", lambda: world.rms.job(job_id).reason == "Licenses")
    snapshot = world.rms.snapshot()
    (job,) = [job for job in snapshot.jobs if job.job_id == job_id]
    assert job.name == "a|b\nc d=e\x1f"
    assert (job.display_id, job.partition, job.user) == (str(job_id), "plain", "alice")
    assert (job.state, job.detail, job.reason) == (JobState.PENDING, "PENDING", "Licenses")
    assert (job.gated, job.held, job.eligible, job.completing, job.split) == (True, False, True, False, True)
    assert (job.nodes, job.batch_host, job.restarts, job.cpus, job.memory_mib) == ((), "", 0, 1, 10)
    assert (job.time_limit_s, job.start_time, job.end_time, job.preempt_time) == (600, 0, 0, 0)
    assert (job.licenses, job.priority > 0) == ("", True)
    assert world.rms.job(job_id) == job


def test_accounting_says_which_jobs_have_ended(world: World) -> None:
    ended, under_way, waiting = world.started("--time=10"), world.started(), world.submit()
    world.rms.cancel(ended)
    world.wait("accounting to know", lambda: bool(world.rms.ended([ended])), seconds=120)
    assert world.rms.ended([ended, under_way, waiting, NO_JOB]) == {ended: "CANCELLED"}
    assert world.rms.ended([]) == {}


def test_snapshot_of_the_cluster(world: World) -> None:
    snapshot = world.rms.snapshot()
    assert {"n1", "n2"} <= set(snapshot.nodes)
    node = snapshot.nodes["n1"]
    assert (node.name, node.up, node.draining, node.reason, node.features) == ("n1", True, False, "", ())
    assert node.cpus >= 1
    assert node.memory_mib >= 100
    assert node.readings.watts is None, "there is no meter"
    plain, hosts = snapshot.partitions["plain"], snapshot.partitions["vmhosts"]
    assert (plain.up, plain.preempt_mode, plain.exclusive, plain.hidden) == (True, "OFF", False, False)
    assert (plain.allow_groups, hosts.allow_groups) == ((), ("slurm",))
    assert (hosts.preempt_mode, hosts.exclusive, hosts.hidden) == ("CANCEL", True, True)
    assert {"n1", "n2"} <= set(plain.nodes) & set(hosts.nodes)
    assert plain.priority_tier > hosts.priority_tier
    assert hosts.grace_time_s > 0
    assert snapshot.licenses == {GATE: 1, "matlab": 4}
    gate = snapshot.reservations[GATE_RESERVATION]
    assert (gate.licenses, gate.nodes, gate.users) == ({GATE: 1}, (), ("slurm",))
    assert gate.start_time <= world.now() < gate.end_time
    assert (snapshot.preempt_type, snapshot.preempt_mode) == ("preempt/partition_prio", "REQUEUE")
    assert snapshot.preempt_exempt_s == 10.0
    assert snapshot.version.count(".") >= 1
    assert snapshot.spool_dir.startswith("/var/spool/slurm")
    assert snapshot.daemon_port > 0
    assert snapshot.state_dir.startswith("/var/spool/slurm")


def test_a_cluster_without_a_topology_has_no_switches(world: World) -> None:
    assert world.rms.leaf_switches() == ()


def test_times_of_a_job(world: World) -> None:
    before = world.now()
    job_id = world.submit("--time=10")
    assert before - 1 <= world.rms.job(job_id).submit_time <= world.now()
    world.rms.open_gate(job_id)
    job = world.wait_for(job_id, JobState.RUNNING)
    assert before - 1 <= job.start_time <= world.now()
    assert 600 <= job.end_time - job.start_time <= 601
    world.rms.cancel(job_id)
    job = world.wait_for(job_id, JobState.ENDED)
    assert job.start_time <= job.end_time <= world.now() + 1


def test_priority_is_what_slurm_computes(world: World) -> None:
    first, second = world.submit(), world.submit()
    world.set_priority(second, 123456)
    jobs = {job.job_id: job for job in world.rms.snapshot().jobs}
    assert jobs[second].priority == 123456 != jobs[first].priority


def test_what_a_priority_is_made_of(world: World) -> None:
    waiting, by_hand, runs = world.submit(), world.submit(), world.started()
    world.set_nice(waiting, 100)
    world.set_priority(by_hand, 123456)
    before = world.now()
    snapshot = world.rms.snapshot()
    weights = snapshot.priorities.weights
    assert weights is not None
    assert (weights.age, weights.max_age_s, weights.share, weights.only_rises) == (1000, 7 * 86400, 100_000, False)
    jobs = {job.job_id: job for job in snapshot.jobs}
    assert {jobs[each].account for each in (waiting, by_hand, runs)} == {"users"}
    assert {jobs[each].mcs_label for each in (waiting, by_hand, runs)} == {""}, "there is no plugin that gives labels"
    share = snapshot.priorities.share("users", "alice", "plain")
    assert share is not None
    assert 0 < share <= 1
    parts = snapshot.priorities.parts
    assert (parts[waiting].age, parts[waiting].fixed) == (0, False)
    assert abs(parts[waiting].share - 100_000 * share) <= 1
    assert abs(jobs[waiting].priority - parts[waiting].share + 100) <= 1
    assert (jobs[waiting].nice, jobs[by_hand].nice) == (100, 0)
    assert before - 60 <= jobs[waiting].accrue_time <= before
    assert parts[by_hand].fixed
    assert runs not in parts
    assert (jobs[runs].priority > 1, before - 60 <= jobs[runs].accrue_time <= before) == (True, True)


def test_priority_of_a_suspended_job(world: World) -> None:
    """Slurm takes it for one that is held: only once it is released can its priority be set. It forgets that later."""
    job_id = world.started()
    world.set_priority(job_id, 5000)
    assert world.rms.job(job_id).priority == 5000
    world.rms.suspend(job_id)
    world.set_nice(job_id, 40)
    assert (world.rms.job(job_id).priority, world.rms.job(job_id).nice) == (0, 40)
    with pytest.raises(RefusedError, match="held state"):
        world.set_priority(job_id, 77)
    world.release_as_admin(job_id)
    job = world.rms.job(job_id)
    assert (job.state, job.priority > 5000) == (JobState.SUSPENDED, True)
    world.set_priority(job_id, 77)
    job = world.rms.job(job_id)
    assert (job.state, job.priority, job.nice) == (JobState.SUSPENDED, 77, 0)
    world.rms.resume(job_id)
    assert world.rms.job(job_id).priority == 77
    world.rms.suspend(job_id)
    world.rms.resume(job_id)
    assert world.rms.job(job_id).priority > 5000


def test_the_node_that_a_pending_job_names(world: World) -> None:
    assert world.rms.job(world.submit("--nodelist=n2")).nodes == ("n2",)


def test_batch_script(world: World) -> None:
    assert world.rms.batch_script(world.submit()).strip() == SCRIPT.strip()


def test_pulse(world: World) -> None:
    """What has happened shows some seconds later at the latest."""

    def stays(partition: str, pulse: str, seconds: float = 4) -> bool:
        return world.stays(lambda: world.rms.pulse([partition]) == pulse, seconds)

    def changes(act: Callable[[], object], partition: str = "plain", seconds: float = 60) -> bool:
        while not stays(partition, before := world.rms.pulse([partition])):
            pass
        act()
        return not stays(partition, before, seconds)

    first = world.submit()
    assert not changes(lambda: None, seconds=4)
    second = world.started()
    assert changes(world.submit)
    assert changes(lambda: world.hold_as_user(first))
    assert changes(lambda: world.release_as_user(first))
    assert changes(lambda: world.rms.suspend(second))
    assert not changes(lambda: world.rms.cancel(second), "vmhosts", seconds=4)


@pytest.mark.parametrize(
    "call",
    [
        lambda rms: rms.job(NO_JOB),
        lambda rms: rms.batch_script(NO_JOB),
        lambda rms: rms.split(f"{NO_JOB}_1"),
        lambda rms: rms.split(str(NO_JOB)),
        lambda rms: rms.open_gate(NO_JOB),
        lambda rms: rms.close_gate(NO_JOB),
        lambda rms: rms.hold(NO_JOB),
        lambda rms: rms.suspend(NO_JOB),
        lambda rms: rms.resume(NO_JOB),
        lambda rms: rms.requeue(NO_JOB),
        lambda rms: rms.cancel(NO_JOB),
        lambda rms: rms.tell_end(NO_JOB, 0, 0, 0),
        lambda rms: rms.extend_room(NO_JOB, 3600),
    ],
)
def test_no_such_job(world: World, call: Callable[[Rms], object]) -> None:
    with pytest.raises(NotFoundError):
        call(world.rms)


# --- suspend and resume ---


def test_suspend_and_resume(world: World) -> None:
    job_id = world.started()
    for _ in range(2):
        world.rms.suspend(job_id)
        job = world.rms.job(job_id)
        assert (job.state, job.held, job.end_time) == (JobState.SUSPENDED, False, 0)
    for _ in range(2):
        world.rms.resume(job_id)
        assert world.rms.job(job_id).state is JobState.RUNNING


def test_suspend_what_does_not_run(world: World) -> None:
    job_id = world.submit()
    with pytest.raises(RefusedError):
        world.rms.suspend(job_id)
    with pytest.raises(RefusedError):
        world.rms.resume(job_id)


# --- requeue ---


def test_requeue_running_and_start_again(world: World) -> None:
    job_id = world.started("--licenses=matlab:2", script=STUBBORN)
    world.rms.requeue(job_id)
    job = world.rms.job(job_id)
    assert (job.state, job.completing, job.gated) == (JobState.PENDING, True, True)
    with pytest.raises(RefusedError):
        world.rms.open_gate(job_id)
    job = world.wait_for(job_id, JobState.PENDING)
    assert (job.gated, job.held, job.restarts, job.nodes, job.licenses) == (True, False, 1, (), "matlab:2")
    assert job.eligible  # Slurm's own delay of two minutes is no reason of the user's
    world.rms.requeue(job_id)
    assert world.rms.job(job_id).restarts == 1
    assert world.stays(lambda: world.rms.job(job_id).state is JobState.PENDING, 3)
    world.rms.open_gate(job_id)
    assert world.wait_for(job_id, JobState.RUNNING).licenses == "matlab:2"


def test_requeue_suspended(world: World) -> None:
    job_id = world.started()
    world.rms.suspend(job_id)
    world.rms.requeue(job_id)
    job = world.wait_for(job_id, JobState.PENDING)
    assert (job.gated, job.held, job.eligible, job.restarts) == (True, False, True, 1)


def test_requeue_goes_on_where_an_admin_or_a_crash_left_a_suspended_job(world: World) -> None:
    job_id = world.started()
    world.rms.suspend(job_id)
    world.requeue_as_admin(job_id)
    job = world.wait_for(job_id, JobState.PENDING)
    assert (job.gated, job.held, job.reason) == (False, True, "JobHeldAdmin")
    world.rms.requeue(job_id)
    job = world.rms.job(job_id)
    assert (job.gated, job.held) == (True, False)


def test_requeue_of_a_gated_job_leaves_holds(world: World) -> None:
    job_id = world.started()
    world.rms.requeue(job_id)
    world.wait_for(job_id, JobState.PENDING)
    world.rms.hold(job_id)
    world.rms.requeue(job_id)
    assert world.rms.job(job_id).reason == "JobHeldAdmin"


def test_gate_after_a_requeue_that_was_not_the_engines(world: World) -> None:
    job_id = world.started(script=STUBBORN)
    world.requeue_as_admin(job_id)
    job = world.rms.job(job_id)
    assert (job.gated, job.completing) == (False, True)
    for _ in range(2):
        world.rms.close_gate(job_id)
    assert world.wait_for(job_id, JobState.PENDING).gated


def test_requeue_what_must_not_be(world: World) -> None:
    job_id = world.started("--no-requeue")
    with pytest.raises(RefusedError):
        world.rms.requeue(job_id)
    job = world.rms.job(job_id)
    assert (job.state, job.gated) == (JobState.RUNNING, False)


def test_hold_while_completing(world: World) -> None:
    job_id = world.started(script=STUBBORN)
    world.rms.requeue(job_id)
    assert world.rms.job(job_id).completing
    world.rms.hold(job_id)
    assert world.wait_for(job_id, JobState.PENDING).reason == "JobHeldAdmin"


# --- what users are told ---


def test_a_comment_is_read_by_the_user_of_a_job_and_takes_the_place_of_the_last_one(world: World) -> None:
    waiting, running = world.submit(), world.started()
    for job_id in (waiting, running):
        world.rms.comment(job_id, "rmsplugin: suspended; its limit = it stands still (2026-11-28T19:00:00)")
        world.rms.comment(job_id, "rmsplugin: resumed (2026-11-28T19:01:00)")
        assert world.comment_of(job_id) == "rmsplugin: resumed (2026-11-28T19:01:00)"
    world.rms.suspend(running)
    world.rms.comment(running, "rmsplugin: suspended; its time limit stands still (2026-11-28T19:02:00)")
    assert world.comment_of(running) == "rmsplugin: suspended; its time limit stands still (2026-11-28T19:02:00)"


def test_a_job_that_has_ended_takes_no_comment(world: World) -> None:
    job_id = world.started()
    world.rms.cancel(job_id)
    world.wait_for(job_id, JobState.ENDED)
    with pytest.raises((RefusedError, NotFoundError)):
        world.rms.comment(job_id, "too late")


@pytest.mark.parametrize("name", ["job", "a\nJobId=1 JobName=b c=d"])
def test_the_mail_that_a_job_asks_for(world: World, name: str) -> None:
    all_kinds = world.submit(f"--job-name={name}", "--mail-type=ALL", "--mail-user=alice@example.org")
    few, none = world.submit("--mail-type=END,FAIL"), world.submit()
    array = world.submit("--array=1-2", "--mail-type=ALL,ARRAY_TASKS")
    uid = world.rms.job(none).uid
    assert world.rms.mail_wish(all_kinds) == MailWish(uid, "alice@example.org", MAIL_ALL)
    assert world.rms.mail_wish(few) == MailWish(uid, "alice", frozenset({"END", "FAIL"}))
    assert world.rms.mail_wish(none) is None
    assert world.rms.mail_wish(array) == MailWish(uid, "alice", MAIL_ALL | {"ARRAY_TASKS"})
    with pytest.raises(NotFoundError):
        world.rms.mail_wish(NO_JOB)


def test_the_program_that_sends_mail(world: World) -> None:
    assert world.rms.snapshot().mail_program.endswith("/mail")


def test_who_may_know_of_jobs_of_others(world: World) -> None:
    world.oversee("alice", "bob")
    known = world.rms.overseers()
    assert ("alice" in known.operators, "bob" in known.operators) == (True, False)
    assert [account for account, names in known.coordinators.items() if "bob" in names] == ["users"]


# --- the end ---


def test_cancel(world: World) -> None:
    waiting, running, suspended = world.submit(), world.started(), world.started()
    world.rms.suspend(suspended)
    for job_id in (waiting, running, suspended):
        world.rms.cancel(job_id)
        job = world.wait_for(job_id, JobState.ENDED)
        assert (job.detail, job.held, job.eligible) == ("CANCELLED", False, False)
        world.rms.cancel(job_id)


@pytest.mark.parametrize(("exit_code", "signal", "detail"), [(0, 0, "COMPLETED"), (3, 0, "FAILED"), (0, 9, "FAILED")])
def test_a_job_ends_as_slurm_is_told(world: World, exit_code: int, signal: int, detail: str) -> None:
    job_id = world.started()
    world.rms.tell_end(job_id, 0, exit_code, signal)
    job = world.wait_for(job_id, JobState.ENDED)
    assert (job.detail, job.restarts) == (detail, 0)
    world.rms.tell_end(job_id, 0, 1, 0)
    assert world.rms.job(job_id).detail == detail, "a job that has ended is left as it is"


def test_only_a_job_that_runs_has_an_end(world: World) -> None:
    waiting, suspended = world.submit(), world.started()
    world.rms.suspend(suspended)
    for job_id in (waiting, suspended):
        with pytest.raises(RefusedError, match="not running"):
            world.rms.tell_end(job_id, 0, 0, 0)
    assert world.rms.job(waiting).state is JobState.PENDING


def test_the_end_of_one_run_ends_no_other(world: World) -> None:
    job_id = world.started()
    with pytest.raises(RefusedError, match="runs again"):
        world.rms.tell_end(job_id, 1, 0, 0)
    assert world.rms.job(job_id).state is JobState.RUNNING


def test_ended(world: World) -> None:
    job_id = world.started()
    world.rms.cancel(job_id)
    world.wait_for(job_id, JobState.ENDED)
    for call in (
        lambda: world.rms.open_gate(job_id),
        lambda: world.rms.close_gate(job_id),
        lambda: world.rms.hold(job_id),
        lambda: world.rms.suspend(job_id),
        lambda: world.rms.resume(job_id),
        lambda: world.rms.requeue(job_id),
        lambda: world.rms.extend_room(job_id, 3600),
    ):
        with pytest.raises(RefusedError):
            call()
    assert world.rms.job(job_id).state is JobState.ENDED


# --- arrays ---


def elements(world: World, array_id: int) -> dict[str, RmsJob]:
    jobs = (job for job in world.rms.snapshot().jobs if job.display_id.startswith(f"{array_id}_"))
    return {job.display_id.partition("_")[2]: job for job in jobs}


def test_array(world: World) -> None:
    array_id = world.submit("--array=1-3", "--licenses=matlab:1")
    found = elements(world, array_id)
    assert set(found) == {"1", "2", "3"}
    assert {job.job_id for job in found.values()} == {array_id}
    assert not any(job.split for job in found.values())
    with pytest.raises(RefusedError):
        world.rms.open_gate(array_id)

    second = world.rms.split(f"{array_id}_2")
    assert second != array_id
    assert world.rms.split(f"{array_id}_2") == second
    found = elements(world, array_id)
    assert {index: job.split for index, job in found.items()} == {"1": False, "2": True, "3": False}
    assert {(job.gated, job.eligible, job.licenses) for job in found.values()} == {(True, True, "matlab:1")}
    assert found["2"].job_id == second
    world.rms.open_gate(second)
    world.wait_for(second, JobState.RUNNING)
    assert world.rms.batch_script(second).strip() == SCRIPT.strip()

    first, third = world.rms.split(f"{array_id}_1"), world.rms.split(f"{array_id}_3")
    assert len({first, second, third}) == 3
    found = elements(world, array_id)
    assert all(job.split for job in found.values())
    assert {index for index, job in found.items() if job.gated} == {"1", "3"}
    with pytest.raises(NotFoundError):
        world.rms.split(f"{array_id}_4")


def test_the_rest_of_an_array_is_gated_and_held_together(world: World) -> None:
    array_id = world.submit("--array=1-3", "--begin=now+600", gated=False)
    first = world.rms.split(f"{array_id}_1")
    assert first != array_id
    assert {index: job.gated for index, job in elements(world, array_id).items()} == {"1": True, "2": False, "3": False}
    world.rms.open_gate(first)
    world.rms.close_gate(array_id)
    assert {index: job.gated for index, job in elements(world, array_id).items()} == {"1": False, "2": True, "3": True}
    world.rms.hold(array_id)
    assert {index for index, job in elements(world, array_id).items() if job.held} == {"2", "3"}


def eligible(world: World, array_id: int) -> set[str]:
    return {index for index, job in elements(world, array_id).items() if job.eligible}


def test_array_with_a_limit(world: World) -> None:
    array_id = world.submit("--array=1-4%2")
    assert eligible(world, array_id) == {"1", "2"}
    first = world.rms.split(f"{array_id}_1")
    world.rms.open_gate(first)
    world.wait_for(first, JobState.RUNNING)
    assert eligible(world, array_id) == {"2"}
    fourth = world.rms.split(f"{array_id}_4")
    assert not world.rms.job(fourth).eligible
    # If more files than that are opened, they wait for Slurm.
    second, third = (world.rms.split(f"{array_id}_{index}") for index in (2, 3))
    world.rms.open_gate(second)
    world.wait_for(second, JobState.RUNNING)
    assert eligible(world, array_id) == set()
    world.rms.open_gate(third)
    world.wait("the reason", lambda: elements(world, array_id)["3"].reason == "JobArrayTaskLimit")
    world.rms.cancel(first)
    world.wait_for(third, JobState.RUNNING)


def test_the_last_element_has_the_id_of_its_array_and_acts_alone(world: World) -> None:
    array_id = world.submit("--array=1-2")
    ids = {world.rms.split(f"{array_id}_{index}") for index in (1, 2)}
    assert array_id in ids
    (other,) = ids - {array_id}
    for job_id in ids:
        world.rms.open_gate(job_id)
    for job_id in ids:
        world.wait_for(job_id, JobState.RUNNING)
    world.rms.suspend(array_id)
    assert world.rms.job(array_id).state is JobState.SUSPENDED
    assert world.rms.job(other).state is JobState.RUNNING
    world.rms.cancel(array_id)
    world.wait_for(array_id, JobState.ENDED)
    assert world.rms.job(other).state is JobState.RUNNING


# --- which one ---


@pytest.mark.parametrize(
    ("kind", "running", "pyslurm_for", "expected"),
    [
        ("auto", "22.05.8", "22.5.3", SlurmPyslurm),
        ("auto", "24.11.5", "22.5.3", SlurmCli),
        ("auto", "22.05.8", "", SlurmCli),
        ("auto", "", "22.5.3", SlurmCli),
        ("cli", "22.05.8", "22.5.3", SlurmCli),
        ("pyslurm", "22.05.8", "22.5.3", SlurmPyslurm),
        ("pyslurm", "24.11.5", "22.5.3", None),
        ("pyslurm", "22.05.8", "", None),
        ("pyslurm", "", "22.5.3", None),
    ],
)
def test_open_rms(
    monkeypatch: pytest.MonkeyPatch, kind: Any, running: str, pyslurm_for: str, expected: type[Rms] | None
) -> None:
    def version(commands: SlurmCli) -> str:
        if not running:
            raise UnavailableError("Unable to contact slurm controller")
        return running

    monkeypatch.setitem(sys.modules, "pyslurm", types.SimpleNamespace() if pyslurm_for else None)
    monkeypatch.setattr(slurm_pyslurm, "_importable_version", lambda: pyslurm_for)
    monkeypatch.setattr(SlurmCli, "version", version)
    if expected is None:
        with pytest.raises(SettingsError, match=r"slurm\.adapter is pyslurm"):
            open_rms(kind)
    else:
        assert type(open_rms(kind)) is expected


# --- the commands alone ---


@pytest.mark.e2e
@pytest.mark.parametrize("world", ["cli"], indirect=True)
def test_a_snapshot_takes_as_many_processes_whatever_is_queued(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = world.rms
    assert isinstance(commands, SlurmCli)
    run, ran = commands._run, []

    def counted(*words: str, **options: Any) -> str:
        ran.append(words[0])
        return run(*words, **options)

    monkeypatch.setattr(commands, "_run", counted)

    def processes() -> int:
        ran.clear()
        commands.snapshot()
        return len(ran)

    world.submit("--array=1-3%1")
    one = processes()
    for _ in range(3):
        world.submit("--array=1-3%1")
        world.submit()
    assert processes() == one <= 9


def test_slurm_down(tmp_path: Path) -> None:
    """The commands are there, the controller is not."""
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n")
    rms = SlurmCli(prefix=("env", f"SLURM_CONF={conf}"), timeout_s=3)
    for call in (rms.snapshot, lambda: rms.job(1), lambda: rms.cancel(1), rms.reserve_gate):
        with pytest.raises(UnavailableError):
            call()


def test_commands_not_installed(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"slurm\.bin_dir"):
        SlurmCli(bin_dir=str(tmp_path)).snapshot()
