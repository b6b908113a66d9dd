"""Jobs without VMs: started behind the gate, paused where they are, and continued only when their CPUs are free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scenarios.native_world import NativeWorld
from scenarios.neighbours import Silence, Way
from scenarios.world import spread

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.cli.live.drain import _is_empty as left_on
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.serve.views import node_views
from rmsplugin.errors import RefusedError, UnavailableError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
#: Of the instants of a life CI tries so many.
SAMPLE = 26


@contextmanager
def a_world(directory: Path, **options: Any) -> Iterator[NativeWorld]:
    """A world in which Slurm's books are true at any time."""
    world = NativeWorld(directory, **options)
    yield world
    assert world.books == []
    said = [*world.cycle.report.problems, *world.events()]
    assert not [line for line in said if "internal error" in line or "there are no" in line]
    world.close()


@pytest.fixture
def native(directory: Path) -> Iterator[NativeWorld]:
    with a_world(directory) as world:
        yield world


def test_a_job_starts_on_the_node_that_slurm_chooses_and_ends_by_itself(native: NativeWorld) -> None:
    native.rms.set_node("n1", features=("old",))
    job = native.submit(exclude=("n1",))
    native.until(job, S.RUNNING)
    assert native.hosts(job) == ["n2"] and native.slurm(job) is JobState.RUNNING
    native.rms.finish(job)
    native.until(job, S.TERMINATED)
    assert native.context.ledger.vms() == []


def test_one_that_runs_and_cannot_be_counted_is_left_alone_and_told_of(
    native: NativeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(job_id: int) -> None:
        raise RefusedError("it takes whole nodes")

    monkeypatch.setattr(native.rms, "geometry", refuse)
    job = native.submit(gated=False)
    native.pass_time(5.0)
    assert native.slurm(job) is JobState.RUNNING, "Slurm has started it before the engine has met it"
    native.tick()
    assert native.slurm(job) is JobState.RUNNING
    assert any("a plain job that runs is not thrown away" in line for line in native.cycle.report.problems)


def test_a_job_has_as_many_stand_ins_as_nodes(native: NativeWorld) -> None:
    job = native.running(nodes=2)
    assert native.hosts(job) == ["n1", "n2"]
    assert native.context.hypervisor.list_vms("n2").keys() == {f"vjob{job}-1"}


def test_who_is_of_a_higher_tier_has_another_paused_which_goes_on_afterwards(native: NativeWorld) -> None:
    low = [native.running(), native.running()]
    native.pass_time(400)
    high = native.urgent(nodes=2)
    native.until(high, S.RUNNING)
    assert native.states(*low) == [S.PAUSED, S.PAUSED]
    assert {native.slurm(job) for job in low} == {JobState.SUSPENDED}
    native.rms.finish(high)
    for job in low:
        native.until(job, S.RUNNING)
        assert native.slurm(job) is JobState.RUNNING
        native.rms.finish(job)
        native.until(job, S.TERMINATED)


def test_a_paused_job_keeps_its_memory_from_others(native: NativeWorld) -> None:
    low = [native.running(memory_mib=600) for _ in native.sizes]
    native.pass_time(400)
    high = native.urgent(memory_mib=600)
    for _ in range(10):
        native.tick(5.0)
    assert native.states(high, *low) == [S.WAITING, S.RUNNING, S.RUNNING]


def test_a_job_goes_on_only_when_slurms_books_have_its_cpus_free(native: NativeWorld) -> None:
    first = native.paused()
    [node] = native.hosts(first)
    other = native.rms.submit(partition="plain", node=node, cpus=1, memory_mib=100)
    native.pass_time(1.0)
    assert native.slurm(other) is JobState.RUNNING
    for _ in range(10):
        native.tick(5.0)
    assert native.state(first) is S.PAUSED
    native.rms.finish(other)
    native.until(first, S.RUNNING)


def test_nobody_goes_on_while_slurm_may_start_another_job_there(native: NativeWorld) -> None:
    first = native.paused(nodes=2)
    late = native.submit(begin=native.wall() + 1000)
    native.rms.ungate(late)
    real, native.rms.close_gate = native.rms.close_gate, lambda job_id: None  # type: ignore[method-assign]
    native.ask(first, K.UNPAUSE)
    native.tick()
    assert native.state(first) is S.PAUSED and "Slurm may start job" in native.context.ledger.vjob(first).reason
    native.rms.close_gate = real  # type: ignore[method-assign]
    native.until(first, S.RUNNING, ticks=100)


def test_no_gate_is_opened_while_another_job_is_about_to_go_on(native: NativeWorld) -> None:
    """Slurm would start the new job where it likes: on the CPUs of the paused one, the first that are free."""
    first, second, ledger = native.paused(), native.submit(held=True), native.context.ledger
    native.tick()
    if native.state(first) is S.RUNNING:  # its turn has come
        native.ask(first, K.PAUSE)
        native.until(first, S.PAUSED)
    native.rms.release(second)
    ledger.transition(first, S.UNPAUSING, "by a test")
    opened: list[bool] = []

    def look() -> None:
        opened.append(("open_gate", second) in native.rms.calls)
        if len(opened) == 3:
            ledger.transition(first, S.PAUSED, "by a test")

    native.on_wait = look
    native.executor.begin(second, K.START, "asked")
    while native.executor.busy():
        time.sleep(0.001)
    assert opened[:3] == [False] * 3 and ("open_gate", second) in native.rms.calls


def test_who_suspends_a_job_by_hand_lets_it_go_on_by_hand(native: NativeWorld) -> None:
    job = native.running()
    native.rms.suspend(job)
    native.until(job, S.PAUSED)
    for _ in range(10):
        native.tick(5.0)
    assert native.state(job) is S.PAUSED
    native.rms.resume(job)
    native.until(job, S.RUNNING)
    native.rms.suspend(job)
    native.until(job, S.PAUSED)
    native.alive(lambda: native.requests().resume(0, native.context.ledger.vjob(job).display_id, ""))
    native.until(job, S.RUNNING)
    assert native.slurm(job) is JobState.RUNNING


def test_a_job_that_slurm_has_forgotten_to_be_suspended_is_suspended_again(native: NativeWorld) -> None:
    job = native.paused()
    native.pass_time(5.0)
    told = native.rms.calls.count(("suspend", job))
    native.rms._find(job).run_script(
        native.wall()
    )  # as a slurmctld that is killed right after it had suspended the job
    native.rms._find(job).stopped = True
    native.until(job, S.RUNNING)
    assert native.rms.calls.count(("suspend", job)) == told + 1
    assert native.slurm(job) is JobState.RUNNING and not native.rms.is_stopped(job)


@pytest.mark.parametrize("state", [S.RUNNING, S.PAUSED])
def test_a_requeued_job_begins_anew_when_its_turn_comes(native: NativeWorld, state: VJobState) -> None:
    job = native.running() if state is S.RUNNING else native.paused()
    native.rms.requeue_by_admin(job)
    native.until(job, S.WAITING)
    assert native.rms.job(job).gated and native.context.ledger.vms(job) == []
    native.until(job, S.RUNNING, ticks=300)
    assert native.context.ledger.vjob(job).losses == 0


def test_a_job_of_a_node_that_fails_begins_anew_elsewhere(native: NativeWorld) -> None:
    job = native.running()
    [node] = native.hosts(job)
    native.rms.lose_node(node)
    native.until(job, S.WAITING)
    native.until(job, S.RUNNING, ticks=300)
    assert native.hosts(job) == [name for name in native.sizes if name != node]


def test_a_cancelled_job_is_gone_whether_it_runs_or_is_paused(native: NativeWorld) -> None:
    runs, rests, waits = native.running(), native.paused(), native.submit(nodes=2)
    native.tick()
    for job in (waits, rests, runs):
        native.rms.cancel(job)
        native.until(job, S.TERMINATED)
    assert native.context.ledger.vms() == []


def test_a_paused_job_goes_on_where_its_node_drains(native: NativeWorld) -> None:
    low = native.running()
    [node] = native.hosts(low)
    native.pass_time(400)
    high = native.urgent(nodes=2)
    native.until(high, S.RUNNING)
    assert native.state(low) is S.PAUSED
    native.rms.set_node(node, draining=True, reason="new disk")
    native.tick(5.0)
    assert native.state(low) is S.PAUSED  # its CPUs are another's
    native.rms.finish(high)
    native.until(low, S.RUNNING)
    assert native.hosts(low) == [node]
    native.rms.finish(low)
    native.until(low, S.TERMINATED)


def test_nodes_of_native_jobs_have_no_rooms_and_a_drain_ends_when_nothing_runs_there(native: NativeWorld) -> None:
    job = native.running()
    [node] = native.hosts(job)
    native.tick()
    assert {(view["room"], view["room_job"]) for view in views(native).values()} == {("none", None)}
    native.rms.set_node(node, draining=True, state="IDLE+DRAIN", reason="new disk")
    native.tick()
    assert views(native)[node]["reason"] == "it is being drained: new disk"
    assert left_on(views(native)[node]) == "1 VM left"
    native.rms.finish(job)
    native.until(job, S.TERMINATED)
    native.tick()
    assert left_on(views(native)[node]) == ""


def views(native: NativeWorld) -> dict[str, dict[str, Any]]:
    rows = node_views(native.context.ledger, native.capacities(), native.cycle.seen, {})
    return {row["name"]: row for row in rows}


def test_a_job_that_another_hand_has_started_runs_on(native: NativeWorld) -> None:
    native.submit(nodes=2)  # the queue has a head
    job = native.submit()
    native.rms.ungate(job)
    native.pass_time(1.0)
    native.until(job, S.RUNNING)
    assert ("requeue", job) not in native.rms.calls and ("cancel", job) not in native.rms.calls


def test_a_job_that_has_not_begun_goes_back_behind_the_gate(directory: Path) -> None:
    with a_world(directory, configuring_s=30.0) as world:
        job = world.submit(held=True)
        world.tick()
        world.rms.ungate(job)
        world.rms.release(job)
        world.pass_time(1.0)
        assert world.slurm(job) is JobState.CONFIGURING
        world.tick()
        assert world.rms.job(job).gated and world.slurm(job) is JobState.PENDING


def test_a_job_that_slurm_does_not_start_waits_behind_the_gate_again(native: NativeWorld) -> None:
    job = native.submit()
    native.rms.limit(job, "AssocGrpCpuLimit")
    for _ in range(5):
        native.tick()
    assert native.state(job) is S.WAITING and native.rms.job(job).gated
    assert "AssocGrpCpuLimit" in native.context.ledger.vjob(job).reason
    native.rms.limit(job, "")
    native.until(job, S.RUNNING, ticks=200)


def test_a_job_that_slurm_starts_while_its_gate_is_closed_again_runs(native: NativeWorld) -> None:
    job = native.submit()
    native.rms.limit(job, "AssocGrpCpuLimit")
    close = native.rms.close_gate

    def too_late(job_id: int) -> None:
        native.rms.close_gate = close  # type: ignore[method-assign]
        native.rms.limit(job_id, "")
        native.pass_time(1.0)
        assert native.slurm(job_id) is JobState.RUNNING
        close(job_id)

    native.rms.close_gate = too_late  # type: ignore[method-assign]
    native.tick()
    assert native.state(job) is S.RUNNING and "requeue" not in {name for name, _ in native.rms.calls}


def test_no_gate_is_opened_for_memory_that_others_have(native: NativeWorld) -> None:
    for node in native.sizes:
        native.rms.submit(partition="plain", node=node, cpus=1, memory_mib=800)
    native.pass_time(1.0)
    job = native.submit(cpus=1, memory_mib=300)
    for _ in range(3):
        native.tick(5.0)
    assert native.state(job) is S.WAITING and ("open_gate", job) not in native.rms.calls


def test_the_parts_of_a_job_are_meant_for_nodes_of_their_own(native: NativeWorld) -> None:
    job = native.running(nodes=2, cpus=1)
    assert native.context.ledger.vjob(job).geometry.wishes == {"spread"}
    [step] = [
        step for plan in native.context.ledger.plans.plans(10) for step in native.context.ledger.plans.steps(plan.id)
    ]
    assert sorted(step.hosts.values()) == ["n1", "n2"]


def test_elements_of_an_array_are_paused_one_by_one(native: NativeWorld) -> None:
    array = native.submit(array=[1, 2])
    for _ in range(8):
        native.tick()
    ledger = native.context.ledger
    elements = [vjob.job_id for vjob in ledger.vjobs() if vjob.state is S.RUNNING]
    assert len(elements) == 2, array
    native.ask(elements[0], K.PAUSE)
    native.until(elements[0], S.PAUSED)
    assert native.slurm(elements[1]) is JobState.RUNNING


@pytest.mark.parametrize("kind", [K.PAUSE, K.UNPAUSE])
def test_while_slurm_is_silent_nothing_is_concluded(native: NativeWorld, kind: OperationKind) -> None:
    job = native.running(nodes=2) if kind is K.PAUSE else native.paused(nodes=2)
    native.tick()
    for method in ("suspend", "resume", "snapshot", "job", "jobs"):
        for _ in range(8):
            native.rms.fail_next(method, UnavailableError("slurmctld does not answer"))
    native.ask(job, kind)
    for _ in range(3):
        native.tick(5.0)
    assert native.state(job) in (S.RUNNING, S.PAUSED, S.PAUSING, S.UNPAUSING)
    native.rms._failures.clear()
    native.until(job, S.PAUSED, S.RUNNING, ticks=200)
    fits = {S.PAUSED: JobState.SUSPENDED, S.RUNNING: JobState.RUNNING}
    assert native.slurm(job) is fits[native.state(job)]


def test_what_plain_jobs_cannot_do_is_refused_to_those_who_ask_for_it(native: NativeWorld) -> None:
    job = native.running()
    name = native.context.ledger.vjob(job).display_id
    with pytest.raises(RefusedError, match="native cannot save a VM"):
        native.requests().suspend(0, name)
    with pytest.raises(RefusedError, match="native cannot move a VM that runs"):
        native.requests().migrate(0, name, "", "")
    assert native.state(job) is S.RUNNING


def live_a_whole_life(world: NativeWorld, kill_at: int | None) -> int:
    """Start, pause for another, go on, be requeued, end; killed once on the way. Returns the instants of that life."""
    world.start_engine(kill_at)
    first = world.life
    low = world.submit(nodes=2)
    world.until(low, S.RUNNING)
    world.pass_time(400)
    high = world.urgent()
    world.until(high, S.RUNNING)
    world.until(low, S.PAUSED)
    assert world.slurm(low) is JobState.SUSPENDED
    world.rms.finish(high)
    world.until(low, S.RUNNING)
    assert world.slurm(low) is JobState.RUNNING
    world.rms.requeue_by_admin(low)
    while world.context.ledger.vjob(low).restarts == 0:
        world.tick(5.0)
    world.until(low, S.RUNNING)
    world.rms.finish(low)
    for job in (high, low):
        world.until(job, S.TERMINATED)
        assert world.context.ledger.vjob(job).losses == 0
    assert world.context.ledger.vms() == []
    return first.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_a_whole_life(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    with a_world(directory / "0") as world:
        total = live_a_whole_life(world, None)
    assert total > 60
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            with a_world(where) as world:
                live_a_whole_life(world, instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", [Way.UNHEARD, Way.UNANSWERED])
def test_a_slurmctld_that_is_silent_for_a_while_at_any_time_loses_nothing(
    directory: Path, way: Way, whole: bool
) -> None:
    (directory / "0").mkdir()
    with a_world(directory / "0") as world:
        live_a_whole_life(world, None)
        total = world.neighbours.calls["rms"]
    assert total > 40
    for first in spread(total, total if whole else SAMPLE // 2):
        where = directory / str(first)
        where.mkdir()
        try:
            with a_world(where) as world:
                world.neighbours.silence = Silence("rms", first, 4, way)
                live_a_whole_life(world, None)
        except AssertionError as error:
            raise AssertionError(f"silent from call {first} of {total} on: {error}") from error
