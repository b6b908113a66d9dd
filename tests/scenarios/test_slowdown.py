"""The policy slowdown as the engine decides on a full cluster: short vjobs are served, and long ones go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenarios.world import World

from rmsplugin.adapters.rms.base import JobState
from rmsplugin.engine.ledger.rows import PlanState
from rmsplugin.engine.serve.plan_views import preview_view
from rmsplugin.model.priority import Weights
from rmsplugin.model.vjob import VJobState

S = VJobState
HOUR_S = 3600.0
#: Longer than anybody is exempt after a start: ten times what a suspend and a resume take by the default durations.
EXEMPT_S = 600.0
SHORT_S = 60.0


@contextmanager
def ruled(directory: Path, **decision: Any) -> Iterator[World]:
    """A world whose engine decides by slowdown."""
    world = World(directory, urgent=True)
    changed = world.settings.decision.model_copy(update={"policy": "slowdown", **decision})
    world.settings = world.settings.model_copy(update={"decision": changed})
    world.start_engine()
    yield world
    assert world.hypervisor.violations == []
    world.close()


@pytest.fixture
def world(directory: Path) -> Iterator[World]:
    with ruled(directory) as world:
        yield world


def pass_time(world: World, seconds: float) -> None:
    """Time in which nothing is decided; the wrappers give their signs of life."""
    world.pass_time(seconds)
    world._give_signs_of_life()


def one(world: World, **options: Any) -> int:
    """Submit a vjob of one VM, which has a node for itself."""
    return world.submit(**{"vms": 1, "cpus": 2, "memory_mib": 256, **options})


def full(world: World, ran_s: float = HOUR_S, **options: Any) -> list[int]:
    """Long vjobs on all nodes, which have run for that time."""
    jobs = [one(world, time_limit_s=100 * HOUR_S, **options) for _ in world.sizes]
    for job in jobs:
        world.until(job, S.RUNNING)
        world.context.ledger.update_vjob(job, script_started=True)
    pass_time(world, ran_s)
    return jobs


def short(world: World, **options: Any) -> int:
    return one(world, time_limit_s=2 * SHORT_S, **options)


def ticks_until(world: World, job: int, most_s: float, every_s: float = 10.0) -> float:
    """Cycles until a vjob runs; returns the seconds that took."""
    began = world.time
    while world.time - began <= most_s:
        world.tick(every_s)
        if any(row.job_id == job and row.state is S.RUNNING for row in world.context.ledger.vjobs()):
            return world.time - began
    raise AssertionError(f"{job} waits: {reason(world, job)}")


def never(world: World, job: int, for_s: float, every_s: float = 60.0) -> None:
    """It does not run for this time."""
    began = world.time
    while world.time - began < for_s:
        world.tick(every_s)
        assert world.state(job) is S.WAITING


def reason(world: World, job: int) -> str:
    return world.context.ledger.vjob(job).reason


def served(world: World, job: int) -> None:
    """A short one runs soon, when nobody exempt is all that is left at the latest, and ends after its time."""
    ticks_until(world, job, EXEMPT_S)
    world.context.ledger.update_vjob(job, script_started=True)
    pass_time(world, SHORT_S)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)


def whole(world: World, *jobs: int) -> None:
    """Each began once, lost nothing, and Slurm knows it as one run."""
    for job in jobs:
        vjob = world.context.ledger.vjob(job)
        assert (vjob.losses, world.context.ledger.starts(job)) == (0, 1), job
    assert [call for call in world.rms.calls if call[0] == "requeue"] == []


def test_short_ones_that_come_one_by_one_are_each_served_soon_and_the_long_ones_go_on(world: World) -> None:
    longs, shorts = full(world), []
    for _ in range(12):
        shorts.append(short(world))
        served(world, shorts[-1])
        world.tick(100)
    suspended = [plan for plan in world.context.ledger.plans.plans(200) if "suspend" in plan.sentence]
    assert suspended, "somebody made way"
    for job in longs:
        world.until(job, S.RUNNING)
        assert world.rms.job(job).state is JobState.RUNNING
        world.rms.finish(job)
        world.until(job, S.TERMINATED)
    whole(world, *longs, *shorts)
    assert {plan.state for plan in world.context.ledger.plans.plans(200)} == {PlanState.DONE}
    world.tick()
    assert world.leftovers() == []


def test_who_makes_way_is_suspended_in_slurm_and_is_told_why_with_numbers(world: World) -> None:
    longs = full(world)
    job = short(world)
    world.tick()
    assert "expansion" in reason(world, job) and "has waited" in reason(world, job)
    ticks_until(world, job, 300)
    [slept] = [each for each in longs if world.state(each) is S.SLEEPING]
    assert world.rms.job(slept).state is JobState.SUSPENDED
    world.tick()
    assert "expansion" in reason(world, slept)
    assert world.context.ledger.plans.plans(1)[0].policy == "slowdown"


def test_where_preempt_mode_is_off_nobody_makes_way(world: World) -> None:
    world.rms.partitions["vjob"] = replace(world.rms.partitions["vjob"], preempt_mode="OFF")
    longs = full(world)
    job = short(world)
    never(world, job, 3 * HOUR_S)
    assert world.states(*longs) == [S.RUNNING] * 3
    world.rms.finish(longs[0])
    world.until(job, S.RUNNING)


def test_preempt_exempt_time_protects(world: World) -> None:
    world.rms.preempt_exempt_s = 2 * HOUR_S
    longs = full(world)
    job = short(world)
    never(world, job, 0.9 * HOUR_S)
    assert "exempt" in reason(world, job) or "nobody has to make way" in reason(world, job)
    ticks_until(world, job, 0.3 * HOUR_S)
    assert world.states(*longs).count(S.SLEEPING) == 1


def test_who_was_started_a_moment_ago_is_exempt_for_ten_switches(world: World) -> None:
    full(world, ran_s=0.0)
    durations = world.settings.durations
    switch_s = durations.suspend_s + durations.resume_s
    job = short(world)
    never(world, job, 9 * switch_s, every_s=2.0)
    ticks_until(world, job, EXEMPT_S)


def test_a_higher_tier_needs_not_to_have_waited_and_a_lower_one_never_has(world: World) -> None:
    longs = full(world)
    urgent = one(world, partition="urgent", time_limit_s=50 * HOUR_S)
    ticks_until(world, urgent, 30)
    assert world.states(*longs).count(S.SLEEPING) == 1
    pass_time(world, HOUR_S)
    for _ in range(20):
        last = short(world)
        served(world, last)
        assert world.state(urgent) is S.RUNNING


@pytest.mark.parametrize("how", ["held", "depends"])
def test_a_job_does_not_wait_while_it_is_held_or_depends_on_another(world: World, how: str) -> None:
    longs = full(world)
    if how == "held":
        job = short(world, held=True)
    else:
        before = world.rms.submit(partition="plain", held=True)
        job = short(world, depends_on=[before])
    for _ in range(20):
        world.tick(HOUR_S)
    world.rms.release(job) if how == "held" else world.rms.cancel(before)
    world.tick(1)
    world.tick(1)
    assert world.states(*longs, job) == [S.RUNNING] * 3 + [S.WAITING], "20 h do not count"
    ticks_until(world, job, 300)
    assert world.context.ledger.vjob(job).standing.accrues_from > world.time - 400


def by_shares(world: World) -> None:
    """Fair share counts, and age; bob has had five times his share."""
    world.rms.priorities.weights = Weights(age=1000, max_age_s=7 * 86400.0, share=100_000)
    world.rms.priorities.shares |= {"alice": 0.5, "bob": 0.1}


def wait_for_turn(directory: Path, slurm_priority: str) -> float:
    """How long a short vjob of bob's waits where alice's run."""
    with ruled(directory, slurm_priority=slurm_priority) as world:
        by_shares(world)
        full(world, user="alice")
        return ticks_until(world, short(world, user="bob"), 2 * HOUR_S)


def test_who_has_had_five_times_his_share_does_not_get_everything_by_short_jobs(directory: Path) -> None:
    found = {}
    for name in ("weight", "ties"):
        (directory / name).mkdir()
        found[name] = wait_for_turn(directory / name, name)
    assert found["ties"] <= 300
    assert found["weight"] >= 4 * found["ties"]


def test_of_two_short_ones_that_wait_alike_the_one_with_the_share_goes_first(world: World) -> None:
    by_shares(world)
    full(world, user="alice")
    bobs = short(world, user="bob")
    alices = short(world, user="alice")
    ticks_until(world, alices, 600)
    assert world.state(bobs) is S.WAITING


def test_where_order_counts_nobody_makes_way_for_who_is_behind_in_slurms_queue(directory: Path) -> None:
    with ruled(directory, slurm_priority="order") as world:
        by_shares(world)
        longs = full(world, user="alice")
        never(world, short(world, user="bob"), 2 * HOUR_S)
        assert world.states(*longs) == [S.RUNNING] * 3


def test_a_priority_that_is_set_by_hand_counts_whole_however_old_the_job_is(world: World) -> None:
    """Nothing of it is taken for what age gave; only one of those that run may make way."""
    world.rms.priorities.weights = Weights(age=100_000, max_age_s=HOUR_S, share=10_000)
    world.rms.priorities.shares |= {"alice": 0.5, "bob": 0.5}
    world.rms.preempt_exempt_s = 1000 * HOUR_S
    jobs = [one(world, time_limit_s=100 * HOUR_S, partition=name) for name in ("urgent", "urgent", "vjob")]
    for job in jobs:
        world.until(job, S.RUNNING)
    first, second = (short(world, user="bob") for _ in range(2))
    world.rms.set_priority(second, 90_000)
    for _ in range(4):
        world.tick(HOUR_S / 2)
    world.rms.preempt_exempt_s = None
    ticks_until(world, second, 60)
    assert world.states(first, *jobs) == [S.WAITING, S.RUNNING, S.RUNNING, S.SLEEPING]


def test_time_alone_has_the_engine_decide_and_until_then_nothing_is_done(world: World) -> None:
    """The periodic cycle sees it; those before it write nothing but reasons."""
    longs = full(world)
    job = one(world, time_limit_s=2 * HOUR_S)
    world.tick()
    plans = len(world.context.ledger.plans.plans(1000))
    decisions = world.context.ledger._rows("select count(*) as number from decisions")[0]["number"]
    calls = len([call for call in world.rms.calls if call[0] not in ("snapshot", "pulse", "job", "jobs")])
    cycles = 0
    world._wakes.clear()
    while world.state(job) is S.WAITING:
        assert len(world.context.ledger.plans.plans(1000)) == plans
        assert not world._wakes.is_set(), "a cycle that decides that nobody runs asks for no other"
        world.tick(30)
        cycles += 1
        assert cycles < 1000
    assert cycles > 5
    assert world.states(*longs).count(S.SLEEPING) == 1
    more = world.context.ledger._rows("select count(*) as number from decisions")[0]["number"] - decisions
    assert more <= 12, "a decision is recorded where it changed"
    assert len([call for call in world.rms.calls if call[0] not in ("snapshot", "pulse", "job", "jobs")]) - calls < 20


def test_a_preview_says_what_the_policy_of_the_settings_would_do(world: World) -> None:
    longs = full(world)
    job = short(world)
    world.tick()
    pass_time(world, 500)
    view = preview_view(world.cycle.preview(), world.time, None, dot=False)
    assert view["policy"] == "slowdown"
    assert view["decision"][str(job)]["state"] == "running"
    assert "expansion" in view["decision"][str(job)]["reason"]
    assert world.states(*longs, job) == [S.RUNNING] * 3 + [S.WAITING], "it only looks"
