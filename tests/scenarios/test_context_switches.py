"""Cluster-wide context switches: what the engine decides, and how it carries it out, whatever happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import GRACE_S, MEMORY_MIB, NODES, World, spread

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.rows import OperationKind, PlanState, StepState
from rmsplugin.errors import OperationFailedError
from rmsplugin.model.vjob import VJobState
from rmsplugin.model.vm_phase import VMPhase
from rmsplugin.planning.violations import Rule, Violation

S = VJobState

#: A VM of so much memory fills a node, with the hypervisor's overhead.
FULL_MIB = MEMORY_MIB - 128
#: Of the instants of a life with a context switch CI tries so many.
SAMPLE = 18


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    """A world whose engine decides by `mixed`: the last in the queue make way, whoever began a moment earlier."""
    world = World(directory, urgent=True, policy="mixed")
    yield world
    assert world.hypervisor.violations == []
    world.close()


def running(world: World, count: int, **options: object) -> list[int]:
    """Vjobs that run, whose scripts have started."""
    jobs = [world.submit(**{"vms": 1, "cpus": 2, "memory_mib": 256, **options}) for _ in range(count)]  # type: ignore[arg-type]
    for job in jobs:
        world.until(job, S.RUNNING)
        world.context.ledger.update_vjob(job, script_started=True)
    return jobs


def known(world: World) -> set[int]:
    return {vjob.job_id for vjob in world.context.ledger.vjobs()}


def kinds_of_last_plan(world: World) -> list[str]:
    plan = world.context.ledger.plans.plans(1)[0]
    return sorted(step.kind for step in world.context.ledger.plans.steps(plan.id))


def test_one_of_a_higher_tier_takes_the_room_of_the_last_in_the_queue_which_go_on_later(world: World) -> None:
    low = running(world, 3)
    world.pass_time(400)  # what has just started is exempt
    high = world.submit(vms=2, cpus=2, partition="urgent")
    world.until(high, S.RUNNING)
    assert world.states(*low) == [S.RUNNING, S.SLEEPING, S.SLEEPING], "the last in the queue make way"
    assert world.rms.job(low[2]).state.value == "SUSPENDED", "Slurm's books show it"
    assert kinds_of_last_plan(world) == ["start", "suspend", "suspend"]
    assert world.context.ledger.vjob(low[2]).reason == f"its room is needed by {high}, which is ahead of it"
    world.rms.finish(high)
    for job in low:
        world.until(job, S.RUNNING)
        vjob = world.context.ledger.vjob(job)
        assert (vjob.losses, vjob.script_started) == (0, True), "it went on, and did not begin anew"
    assert {plan.state for plan in world.context.ledger.plans.plans(10)} == {PlanState.DONE}


def told_of_ends(world: World, jobs: list[int]) -> None:
    """Their owner (or their wrappers) say that their scripts have ended."""
    requests = world.requests()
    for job in jobs:
        requests.finished(65534, str(job), 0, 0)


def test_whose_script_has_just_ended_is_not_suspended_for_its_room_is_about_to_be_free(world: World) -> None:
    low = running(world, 3)
    world.pass_time(400)
    world._give_signs_of_life()
    told_of_ends(world, low)
    high = world.submit(vms=2, cpus=2, partition="urgent")
    for _ in range(8):
        world.tick(10)
    assert world.states(*low) == [S.RUNNING] * 3
    for job in low:
        world.rms.finish(job)
    world.until(high, S.RUNNING)
    assert world.events("script-runs-on") == []


def test_who_says_again_and_again_that_its_script_has_ended_is_suspended_like_any_other(world: World) -> None:
    low = running(world, 3)
    world.pass_time(400)
    world._give_signs_of_life()
    high = world.submit(vms=2, cpus=2, partition="urgent")
    for _ in range(12):
        told_of_ends(world, low)
        world.tick(10)
    world.until(high, S.RUNNING)
    assert world.states(*low) == [S.RUNNING, S.SLEEPING, S.SLEEPING]
    assert len(world.events("script-runs-on")) == 3
    world.rms.finish(high)
    for job in low:
        world.until(job, S.RUNNING)


@pytest.mark.parametrize("asleep", [True, False])
def test_a_vjob_whose_script_has_ended_may_be_suspended_when_slurm_is_slow(world: World, asleep: bool) -> None:
    low = running(world, 3)
    told_of_ends(world, low)
    world.pass_time(400)
    world._give_signs_of_life()
    high = world.submit(vms=2, cpus=2, partition="urgent")
    world.until(high, S.RUNNING)
    assert world.states(*low) == [S.RUNNING, S.SLEEPING, S.SLEEPING]
    if not asleep:
        world.rms.finish(high)
        for job in low:
            world.until(job, S.RUNNING)
    for job in low:  # what Slurm was to hear of long ago
        world.rms.finish(job)
        world.until(job, S.TERMINATED)
        assert world.context.ledger.vjob(job).losses == 0
    assert {(kind, job) for kind, job in world.rms.calls if kind == "requeue"} == set()


def test_a_job_is_started_by_the_first_cycle_that_sees_it(world: World) -> None:
    running(world, 1)
    job = world.submit(vms=1, cpus=2, memory_mib=256)
    world.tick()
    assert world.state(job) is S.RUNNING
    assert world.rms.job(job).state.value == "RUNNING"


def test_a_vjob_whose_job_is_requeued_by_a_cycle_is_not_suspended_by_that_cycle(world: World) -> None:
    low = running(world, 3)
    world.pass_time(400)  # nor have their wrappers been heard of
    high = world.submit(vms=2, cpus=2, partition="urgent")
    world.tick()
    assert [world.rms.job(job).state.value for job in low] == ["PENDING"] * 3
    assert world.states(*low) == [S.RUNNING] * 3
    world.until(high, S.RUNNING)
    assert world.rms.job(low[2]).state.value == "SUSPENDED"


def test_what_was_started_or_resumed_a_moment_ago_is_exempt_for_as_long_as_the_policy_says(world: World) -> None:
    running(world, 3)
    high = world.submit(vms=1, cpus=2, partition="urgent")
    world.tick(100)
    world.tick()
    assert world.state(high) is S.WAITING
    assert "exempt for" in world.context.ledger.vjob(high).reason
    world.pass_time(200)
    world.until(high, S.RUNNING)


def test_with_nothing_changed_the_next_cycles_do_nothing(world: World) -> None:
    running(world, 3)
    world.submit(vms=1, cpus=2)
    world.tick()
    world.tick(400)  # exempt no more, which is another reason to run on
    world.tick()
    plans, decisions = len(world.context.ledger.plans.plans(100)), world.context.ledger._rows("select * from decisions")
    for _ in range(60):
        world.tick(60)
    assert len(world.context.ledger.plans.plans(100)) == plans
    assert world.context.ledger._rows("select * from decisions") == decisions


def test_who_is_held_for_a_moment_keeps_the_room_that_others_make(world: World) -> None:
    """Else the room of the first that made way is given away before the second has made way."""
    low = running(world, 3, memory_mib=FULL_MIB)
    world.tick(400)  # exempt no more, and the wrappers were heard
    released = threading.Event()
    world.hypervisor.hook_next("save", Point.DURING, lambda: released.wait(PATIENCE_S), vm=f"vjob{low[2]}-0")
    high = world.submit(vms=2, cpus=2, memory_mib=FULL_MIB, partition="urgent")
    try:
        while high not in known(world) or world.state(low[1]) is not S.SLEEPING:
            world.cycle_beside(0.001)
        world.rms.user_hold(high)
        seen = []
        for _ in range(4):
            world.cycle_beside(0.001)
            seen.append(world.states(*low))
        world.rms.release(high)
        world.cycle_beside(0.001)
    finally:
        released.set()
    assert seen == [[S.RUNNING, S.SLEEPING, S.SUSPENDING]] * 4
    world.until(high, S.RUNNING)
    assert {plan.state for plan in world.context.ledger.plans.plans(10)} == {PlanState.DONE}


def test_nobody_passes_the_head_of_the_queue_because_of_a_start_that_is_pointless(world: World) -> None:
    """Its job has no time limit, but has ended: what it holds comes back soon, and the head has its turn then."""
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")
    released = threading.Event()
    world.hypervisor.hook_next("boot", Point.DURING, lambda: released.wait(PATIENCE_S))
    pointless = world.submit(vms=1, cpus=2)
    while pointless not in known(world) or world.state(pointless) is not S.STARTING:
        world.cycle_beside()
    world.rms.cancel(pointless)
    large = world.submit(vms=3, cpus=2)
    small = world.submit(vms=1, cpus=2, time_limit_s=10_000.0)
    for _ in range(4):
        world.cycle_beside()
        assert world.state(small) is S.WAITING
    released.set()
    world.until(large, S.RUNNING)
    assert world.state(small) is S.WAITING


def test_where_the_admin_has_not_switched_it_on_nothing_is_suspended_and_nothing_is_moved(world: World) -> None:
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")
    low = running(world, 3)
    high = world.submit(vms=1, cpus=2, partition="urgent")
    for _ in range(10):
        world.tick(100)
    assert (world.states(*low), world.state(high)) == ([S.RUNNING] * 3, S.WAITING)
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="SUSPEND")
    world.until(high, S.RUNNING)
    assert world.states(*low) == [S.RUNNING, S.RUNNING, S.SLEEPING]
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")
    world.rms.finish(high)
    world.until(low[2], S.RUNNING)
    done = {action["kind"] for action in world.context.ledger._rows("select kind from actions")}
    assert done == {"run", "suspend", "resume", "stop"}


def test_a_start_that_needs_room_waits_for_the_suspends_that_make_it(world: World) -> None:
    """Nodes are full of memory: until each is saved the arrivals have not begun (I3, the checks of the world)."""
    low = running(world, 3, memory_mib=FULL_MIB)
    world.pass_time(400)
    world.hypervisor.actions.durations_s["save"] = 30.0
    high = world.submit(vms=3, cpus=2, memory_mib=FULL_MIB, partition="urgent")
    world.until(high, S.RUNNING)
    assert world.states(*low) == [S.SLEEPING] * 3
    plan = world.context.ledger.plans.plans(1)[0]
    steps = {step.kind.value: step for step in world.context.ledger.plans.steps(plan.id)}
    ended = max(s.ended for s in world.context.ledger.plans.steps(plan.id) if s.kind.value == "suspend")
    assert steps["start"].began >= ended
    assert len(steps["start"].needs) == 3


def test_what_waits_for_a_step_that_failed_is_skipped_and_decided_anew(world: World) -> None:
    low = running(world, 3, memory_mib=FULL_MIB)
    world.pass_time(400)
    [vm] = world.context.ledger.vms(low[2])
    world.hypervisor.fail_next("save", OperationFailedError("no space"), vm=vm.name)
    high = world.submit(vms=1, cpus=2, memory_mib=FULL_MIB, partition="urgent")
    world.until(high, S.RUNNING)
    first = next(plan for plan in world.context.ledger.plans.plans(10) if plan.state is PlanState.FAILED)
    assert [(step.kind.value, step.state) for step in world.context.ledger.plans.steps(first.id)] == [
        ("suspend", StepState.FAILED),
        ("start", StepState.SKIPPED),
    ]
    assert sum(state is S.SLEEPING for state in world.states(*low)) == 1, "one made way in the end, and no more"
    assert [world.context.ledger.vjob(job).losses for job in low] == [0, 0, 0]


def test_a_vjob_that_is_cancelled_while_room_is_made_for_it_is_not_started(world: World) -> None:
    low = running(world, 3, memory_mib=FULL_MIB)
    world.pass_time(400)
    high = world.submit(vms=1, cpus=2, memory_mib=FULL_MIB, partition="urgent")
    suspend = world.hypervisor.save

    def cancelled(*words: object, **options: object) -> None:
        world.rms.cancel(high)
        suspend(*words, **options)  # type: ignore[arg-type]

    world.hypervisor.save = cancelled  # type: ignore[method-assign]
    world.until(high, S.TERMINATED)
    del world.hypervisor.save  # type: ignore[method-assign]
    for job in low:
        world.until(job, S.RUNNING)
    assert world.context.ledger.plans.open_steps() == []
    assert not any(call[0] == "boot" and f"vjob{high}-" in str(call) for call in world.hypervisor.calls)
    plans = world.context.ledger.plans
    [plan] = [plan for plan in plans.plans(20) if any(step.vjob == str(high) for step in plans.steps(plan.id))]
    assert {step.kind.value: step.state for step in plans.steps(plan.id)} == {
        "suspend": StepState.DONE,
        "start": StepState.NEEDLESS,
    }
    assert plan.state is PlanState.DONE, "nothing of it has failed"
    assert any("1 had become needless" in message for message in world.events("context-switch-ended"))


def test_what_waits_for_a_suspend_whose_vjob_has_ended_is_decided_anew_and_nothing_has_failed(world: World) -> None:
    low = running(world, 3, memory_mib=FULL_MIB)
    world.pass_time(400)
    high = world.submit(vms=1, cpus=2, memory_mib=FULL_MIB, partition="urgent")
    save, ended = world.hypervisor.save, list[int]()

    def ends(node: str, name: str, *words: object, **options: object) -> None:
        ended.append(next(job for job in low if name.startswith(f"vjob{job}-")))
        world.rms.cancel(ended[-1])
        world.executor.cancel(ended[-1], "its job has ended")
        save(node, name, *words, **options)  # type: ignore[arg-type]

    world.hypervisor.save = ends  # type: ignore[method-assign]
    world.until(high, S.RUNNING)
    del world.hypervisor.save  # type: ignore[method-assign]
    plans = world.context.ledger.plans
    assert ended and all(plan.state is PlanState.DONE for plan in plans.plans(20))
    states = [[(step.kind.value, step.state) for step in plans.steps(plan.id)] for plan in plans.plans(20)]
    assert [("suspend", StepState.NEEDLESS), ("start", StepState.NEEDLESS)] in states
    assert [job for job in low if world.context.ledger.vjob(job).losses] == []


@pytest.mark.parametrize("step", ["save", "boot", "restore"])
def test_a_native_job_takes_a_node_in_the_middle_of_a_switch_and_nothing_is_lost(world: World, step: str) -> None:
    low = running(world, 3)
    world.pass_time(400)
    node = world.context.ledger.vms(low[2])[0].host
    taken: list[int] = []

    def take() -> None:
        job = {"partition": "plain", "node": node, "cpus": 2, "memory_mib": MEMORY_MIB, "time_limit_s": 3600}
        taken.append(world.rms.submit(**job))  # type: ignore[arg-type]

    high = world.submit(vms=2, cpus=2, partition="urgent")
    if step == "restore":  # those that made way come back
        world.until(high, S.RUNNING)
        world.rms.finish(high)
    world.hypervisor.hook_next(step, Point.BEFORE, take)
    while not taken or world.rms.job(taken[0]).state is not JobState.RUNNING:
        world.tick()
    native = world.rms.job(taken[0])
    assert native.start_time - native.submit_time < GRACE_S, "it has the node in time"
    assert world.hypervisor.list_vms(node) == {}
    world.rms.finish(native.job_id)
    if step != "restore":
        world.until(high, S.RUNNING)
        world.rms.finish(high)
    world.until(high, S.TERMINATED)
    for job in low:
        world.until(job, S.RUNNING)
        vjob = world.context.ledger.vjob(job)
        assert (vjob.losses, vjob.script_started, world.context.ledger.starts(job)) == (0, True, 1)
    assert world.ended_by_epilog == []


def test_idle_vjobs_are_packed_together_and_the_last_sleep_when_all_compute(world: World) -> None:
    """RR-6929, the evaluation: demands change, and with them who runs."""
    jobs = running(world, 3, computing=False)
    extra = world.submit(vms=1, cpus=2, computing=False)
    world.tick()
    assert world.state(extra) is S.WAITING, "what runs is taken to compute until it was seen not to"
    for _ in range(10):
        world.tick(30)
    assert world.state(extra) is S.RUNNING
    for job in (*jobs, extra):
        world.hypervisor.set_demand(f"vjob{job}-0", 2)
    for _ in range(20):
        world.tick(30)
    assert world.states(*[*jobs, extra]) == [S.RUNNING] * 3 + [S.SLEEPING], "the last in the queue"
    assert len({world.context.ledger.vms(job)[0].host for job in jobs}) == 3, "each has the CPUs that it demands"
    world.hypervisor.set_demand(f"vjob{jobs[0]}-0", 0)
    for _ in range(20):
        world.tick(30)
    assert world.state(extra) is S.RUNNING
    assert [world.context.ledger.vjob(job).losses for job in (*jobs, extra)] == [0] * 4


def test_an_idle_vjob_that_sleeps_resumes_beside_those_that_compute_and_nobody_makes_way(world: World) -> None:
    (idle,) = running(world, 1, computing=False)
    for _ in range(10):
        world.tick(30)
    world.ask(idle, OperationKind.SUSPEND)
    world.until(idle, S.SLEEPING)
    busy = running(world, 3)  # on all CPUs
    for _ in range(20):
        world.tick(30)
    world.context.ledger.update_vjob(idle, resumes=True)  # the engine itself would resume it
    world.until(idle, S.RUNNING)
    for _ in range(20):
        world.tick(30)
    assert world.states(*[idle, *busy]) == [S.RUNNING] * 4
    plans = world.context.ledger.plans
    kinds = [step.kind for plan in plans.plans(99) for step in plans.steps(plan.id)]
    assert kinds.count(OperationKind.SUSPEND) == 1, "the one by hand"


def test_who_is_suspended_by_hand_sleeps_on_also_after_a_suspend_of_the_engines_that_failed(world: World) -> None:
    low = running(world, 3)
    world.pass_time(400)
    [vm] = world.context.ledger.vms(low[2])
    world.hypervisor.fail_next("save", OperationFailedError("no space"), vm=vm.name)
    high = world.submit(vms=1, cpus=2, partition="urgent")
    while not world.events("step-failed"):
        world.tick()
    world.rms.finish(high)
    world.until(high, S.TERMINATED)
    world.until(low[2], S.RUNNING)
    world.ask(low[2], OperationKind.SUSPEND)
    world.until(low[2], S.SLEEPING)
    for _ in range(10):
        world.tick(30)
    assert world.state(low[2]) is S.SLEEPING, "there is room, and nobody resumes it"


def test_while_the_engine_is_paused_nothing_begins_and_what_runs_is_looked_after(world: World) -> None:
    low = running(world, 2)
    world.context.ledger.plans.set_pause("root")
    waits = world.submit(vms=1, cpus=2)
    for _ in range(5):
        world.tick()
    assert world.state(waits) is S.WAITING
    assert "paused by root" in world.context.ledger.vjob(waits).reason
    world.rms.finish(low[0])
    world.until(low[0], S.TERMINATED)
    world.context.ledger.plans.clear_pause()
    world.until(waits, S.RUNNING)


def test_a_plan_that_the_checker_rejects_is_told_once_and_harms_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rmsplugin.proposing import check

    found = [Violation(Rule.MEMORY, 0, None, "n1 would hold more than it has")]
    monkeypatch.setattr(check, "check_plan", lambda *_, **__: found)
    waits = world.submit(vms=1, cpus=2)
    for _ in range(4):
        world.tick()
    assert world.state(waits) is S.WAITING
    assert len(world.events("no-context-switch")) == 1
    assert "n1 would hold more than it has" in world.cycle.report.problems[0]
    assert [plan.state for plan in world.context.ledger.plans.plans(10)] == [PlanState.NONE]
    monkeypatch.undo()
    world.until(waits, S.RUNNING)


def test_a_plan_whose_ground_has_moved_is_not_applied(world: World) -> None:
    running(world, 3, cpus=1)
    world.pass_time(400)
    waits = world.submit(vms=1, cpus=2, partition="urgent")
    [free] = set(NODES) - {vm.host for vm in world.context.ledger.live_vms()}
    propose, asked = world.propose, []

    def slow(*words: object) -> object:
        found = propose(*words)  # type: ignore[arg-type]
        if found.found.plan.pools and not asked:  # type: ignore[union-attr]
            asked.append(True)
            for vm in world.context.ledger.live_vms():  # somebody migrates them, by hand
                world.context.ledger.enter_phase(vm.name, VMPhase.MIGRATING, destination=free)
        return found

    world.propose = slow  # type: ignore[method-assign, assignment]
    while not asked:
        world.tick()
    assert [plan.state for plan in world.context.ledger.plans.plans(10)][-1] is PlanState.STALE
    for vm in world.context.ledger.live_vms():
        world.context.ledger.enter_phase(vm.name, VMPhase.LIVE)
    world.until(waits, S.RUNNING)


def life_with_a_switch(world: World, kill_at: int | None, made_way: Collection[int] = (2,)) -> int:
    """One of a higher tier takes the room of two of three; it ends, they go on. Returns the instants of the first life.

    ``made_way``: how many of the three may have made way when it begins to run; CPUs need not be free for that yet.
    """
    world.start_engine(kill_at)
    first = world.life
    low = [world.submit(vms=1, cpus=2, memory_mib=256) for _ in range(3)]
    for job in low:
        world.until(job, S.RUNNING)
    while not all(world.context.ledger.vjob(job).script_started for job in low):
        for job in low:
            world.alive(lambda job=job: world.context.ledger.update_vjob(job, script_started=True))
        world.tick()
    world.pass_time(400)
    high = world.submit(vms=2, cpus=2, partition="urgent")
    world.until(high, S.RUNNING, ticks=700)
    assert sum(world.state(job) is not S.RUNNING for job in low) in made_way
    for _ in range(60):
        if world.rms.job(high).state is JobState.RUNNING:
            break
        world.tick()
    world.rms.finish(high)
    for job in low:
        world.until(job, S.RUNNING)
        [vm] = world.context.ledger.vms(job)
        assert world.hypervisor.where(vm.name) == [vm.host], "one VM, where the ledger says (I1)"
        assert (world.context.ledger.vjob(job).losses, world.context.ledger.starts(job)) == (0, 1)
        world.rms.finish(job)
    for job in low:
        world.until(job, S.TERMINATED)
    world.tick()
    assert world.context.ledger.plans.open_steps() == []
    assert world.context.ledger.plans.running() == []
    assert world.leftovers() == []
    assert world.hypervisor.violations == []
    return first.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_a_context_switch(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    total = life_with_a_switch(World(directory / "0", urgent=True), None)
    assert total > 100
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            life_with_a_switch(World(where, urgent=True), instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error
