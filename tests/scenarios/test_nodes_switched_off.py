"""Nodes that nobody uses are switched off, and on again when they are needed; whatever fails on the way."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from scenarios.world import NODES, World, spread

from rmsplugin.adapters.rms.base import ROOM_NAME, JobState, NodePower, RmsReservation
from rmsplugin.adapters.rms.power_saving import KeptOn
from rmsplugin.adapters.simulated.rms.powering import Stage
from rmsplugin.energy.lateness import Lateness, LateSums
from rmsplugin.engine.ledger.power_book import LateSpan, SwitchState
from rmsplugin.engine.serve.views import node_views, power_sentence
from rmsplugin.errors import OperationFailedError, SilentError, UnavailableError
from rmsplugin.model.node_action import NodeActionKind
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.power import PowerWatts

S = VJobState
OFF = SwitchState.OFF
#: Equation 8 gives 140 s for these.
WATTS: dict[str, Any] = {"idle_w": 100, "busy_w": 200, "off_w": 5, "transition_w": 85, "off_s": 30, "on_s": 120}
SAMPLE = 24


def make_world(directory: Path, rooms: str = "elastic", watts: dict[str, Any] | None = None, **power: Any) -> World:
    """A world whose engine switches nodes."""
    world = World(directory, rooms=rooms, **({"room_idle_s": 10} if rooms == "elastic" else {}))
    world.rms.powering.saving = replace(world.rms.powering.saving, resume_timeout_s=300)
    world.resumed = []
    world.rms.powering.when_resumed = world.resumed.append
    for node in NODES:
        world.rms.register(node, world.wall() - 1000)
    classes = (PowerWatts.model_validate({**WATTS, **(watts or {})}),)
    settings = world.settings.power.model_copy(update={"switch": True, "classes": classes, **power})
    world.settings = world.settings.model_copy(update={"power": settings})
    world.start_engine()
    return world


@pytest.fixture
def world(directory: Path) -> World:
    return make_world(directory)


def states(world: World) -> dict[str, SwitchState]:
    return {each.node: each.state for each in world.context.ledger.power.switches().values()}


def is_off(world: World, *nodes: str) -> bool:
    return all(states(world).get(node) is OFF and not world.power.bmcs[node].on for node in nodes)


def tick_until(world: World, condition: Callable[[], bool], ticks: int = 120, seconds: float = 10.0) -> None:
    for _ in range(ticks):
        world.tick(seconds)
        resume_program(world)
        if not world.life.dead and condition():
            return
    raise AssertionError(f"never: {states(world)} {world.cycle.report} {world.events()[-8:]}")


def resume_program(world: World) -> None:
    """Slurm's ResumeProgram switches on by itself what Slurm powers up."""
    nodes: list[str] = world.resumed
    while nodes:
        node = nodes.pop(0)
        if not world.power.bmcs[node].on:
            world.power.on(node)


def all_off(world: World) -> None:
    tick_until(world, lambda: is_off(world, *NODES))


def unharmed(world: World, *jobs: int) -> None:
    assert world.hypervisor.violations == []
    assert world.ended_by_epilog == []
    assert [world.context.ledger.vjob(job).losses for job in jobs] == [0] * len(jobs)


def test_a_site_that_sets_nothing_sees_no_difference(directory: Path) -> None:
    world = World(directory, rooms="elastic", room_idle_s=10)
    for _ in range(100):
        world.tick(10.0)
    assert world.power.calls == []
    assert states(world) == {}
    assert not [call for call in world.rms.calls if "power" in call[0]]


def test_idle_nodes_go_off_after_their_threshold_and_one_comes_on_for_a_vjob(world: World) -> None:
    began = world.time
    tick_until(world, lambda: bool(states(world)))
    assert world.time - began > 140, "equation 8"
    all_off(world)
    assert {world.rms.snapshot().nodes[node].power for node in NODES} <= {NodePower.GOING_OFF, NodePower.OFF}
    told = [what for what in world.rms.calls if what[0] in ("request_room", "power_down") and what[1] == "n1"]
    assert [what for what, _ in told] == ["request_room", "power_down"], "Slurm is told in the room"
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    assert world.host(job) == "n1"
    assert is_off(world, "n2", "n3"), "one is enough"
    unharmed(world, job)
    acts = [(act.node, str(act.kind), act.error) for act in world.context.ledger.power.acts() if act.node == "n1"]
    assert acts == [("n1", "power-off", ""), ("n1", "power-on", "")]
    assert all(act.ended > act.began for act in world.context.ledger.power.acts())


def test_the_bmc_gets_its_order_only_when_slurm_has_nothing_there(world: World) -> None:
    seen: list[tuple[str, ...]] = []
    order = world.power.off

    def off(node: str) -> None:
        jobs = [job for job in world.rms.snapshot().jobs if node in job.nodes and job.state is not JobState.ENDED]
        seen.append(tuple(job.name for job in jobs))
        assert world.rms.snapshot().nodes[node].power is not NodePower.ON
        order(node)

    world.power.off = off
    all_off(world)
    assert seen == [(), (), ()]


@pytest.mark.parametrize("ends", ["later", "within the cycle"])
def test_no_node_comes_on_for_a_vjob_that_has_a_place_by_the_switch_under_way(
    world: World, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    advance, steps = world.switch.advance, world.context.ledger.plans.open_steps

    def until_steps_have_ended(**options: Any) -> list[str]:
        begun = advance(**options)
        deadline = time.monotonic() + PATIENCE_S
        while steps() and time.monotonic() < deadline:
            time.sleep(0.001)
            advance()
        return begun

    all_off(world)
    with monkeypatch.context() as patched:
        patched.setattr(world.switch, "advance", lambda **_: [])  # its step is planned, and does not begin
        job = world.submit(vms=1, cpus=2)
        tick_until(world, lambda: bool(steps()), ticks=400, seconds=2.0)  # less than the engine keeps an idle room
        for _ in range(3):
            world.tick(1.0)
        assert (world.state(job), is_off(world, "n2", "n3")) == (S.WAITING, True)
    if ends == "within the cycle":
        monkeypatch.setattr(world.switch, "advance", until_steps_have_ended)
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    assert (world.host(job), is_off(world, "n2", "n3")) == ("n1", True)
    assert len(world.events("context-switch")) == 1, "none is planned for a vjob that has just started"


def test_a_node_with_a_vm_or_a_saved_state_stays_on(world: World) -> None:
    running, asleep = world.running(cpus=2), world.sleeping(cpus=2)
    nodes = {world.host(running), world.context.ledger.vms(asleep)[0].image_node}
    tick_until(world, lambda: bool(set(NODES) - nodes) and is_off(world, *(set(NODES) - nodes)))
    for _ in range(30):
        world.tick(20.0)
    assert set(states(world)) == set(NODES) - nodes
    unharmed(world, running, asleep)


def test_the_reserve_stays_on(directory: Path) -> None:
    world = make_world(directory, reserve=2)
    tick_until(world, lambda: is_off(world, "n3"))
    for _ in range(30):
        world.tick(20.0)
    assert set(states(world)) == {"n3"}


@pytest.mark.parametrize("share", [None, 0.02])
def test_nodes_stay_on_for_a_vjob_that_waits_once_vjobs_were_late(directory: Path, share: float | None) -> None:
    """One vjob needs all nodes. Two of these are left at once, the third one after hours, as far as limits tell."""
    world = make_world(directory, late_at_most=share)
    all_off(world)
    for _ in range(60):
        world.tick(20.0)  # what could be saved; a tenth of that may be spent
    long, short = world.submit(vms=1, cpus=2, time_limit_s=36_000), world.submit(vms=2, cpus=2)
    tick_until(world, lambda: world.states(long, short) == [S.RUNNING, S.RUNNING])
    world.submit(vms=3, cpus=2)
    world.rms.finish(short)
    for _ in range(30):
        world.tick(10.0)
    left = set(NODES) - {world.host(long)}
    assert set(states(world)) == (left if share is None else set())


def test_no_more_nodes_come_on_than_the_reserve_has(directory: Path) -> None:
    """One that boots is one of them, although nobody can use it yet."""
    world = make_world(directory)
    all_off(world)
    power = world.settings.power.model_copy(update={"reserve": 1})
    world.settings = world.settings.model_copy(update={"power": power})
    world.start_engine()
    tick_until(world, lambda: "n1" not in states(world))
    assert is_off(world, "n2", "n3")


def test_a_node_that_boots_for_a_vjob_with_a_begin_time_is_none_of_the_reserve(directory: Path) -> None:
    """The one that is idle meanwhile stays on."""
    world = make_world(directory, reserve=1)
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    job = world.submit(vms=1, cpus=2, begin=world.time + 170, constraints={"nodes": "n3"})
    tick_until(world, lambda: states(world).get("n3") is SwitchState.COMING_ON)
    while world.state(job) is S.WAITING:
        assert "n1" not in states(world)
        world.tick(10.0)
        resume_program(world)
    assert world.host(job) == "n3"


def test_a_node_that_is_kept_for_a_begin_time_is_none_of_the_reserve(directory: Path) -> None:
    """So the reserve is there when the vjob has begun."""
    world = make_world(directory, reserve=1)
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    job = world.submit(vms=1, cpus=2, begin=world.time + 170, constraints={"nodes": "n1"})
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    assert (world.host(job), set(states(world))) == ("n1", {"n3"})


def test_a_node_that_boots_for_a_job_or_a_reservation_is_none_of_the_reserve(directory: Path) -> None:
    """The one that is idle meanwhile, longer than its threshold, stays on."""
    world = make_world(directory, reserve=1)
    for way in ("job", "reservation"):
        tick_until(world, lambda: set(states(world)) == {"n2", "n3"} and is_off(world, "n2", "n3"))
        if way == "job":
            job = world.rms.submit(partition="plain", node="n3", cpus=2, memory_mib=1024, time_limit_s=3600)
        else:
            begins = int(world.time) + 250
            reservation = RmsReservation("maint", begins, begins + 600, ("n2",), {}, ("somebody",), ())
            world.rms.reservations["maint"] = reservation
        for _ in range(40):
            world.tick(10.0)
            resume_program(world)
            assert "n1" not in states(world), way
        assert len(states(world)) == 1, "the other one has come on"
        if way == "job":
            world.rms.finish(job)
        world.rms.reservations.clear()


def test_a_reserve_comes_on_once_vjobs_were_late(directory: Path) -> None:
    world = make_world(directory, late_at_most=0.02)
    all_off(world)
    world.cycle.powering.felt.lateness = Lateness(0.02, LateSums(late_s=1e9, vjobs_s=1e9, off_s=1.5e10, seen_s=1e9))
    tick_until(world, lambda: "n1" not in states(world))
    assert is_off(world, "n2", "n3")


def test_a_restart_forgets_no_lateness(directory: Path) -> None:
    """The reserve that vjobs were late for stays on."""
    world = make_world(directory, late_at_most=0.02)
    all_off(world)
    now = world.context.clock.now()
    sums = LateSums(late_s=1e9, vjobs_s=1e9, off_s=1.5e10, seen_s=1e9)
    world.context.ledger.power.note_late(LateSpan(now - 3600, now, sums))
    world.start_engine()
    tick_until(world, lambda: "n1" not in states(world))
    for _ in range(30):
        world.start_engine()
        world.tick(20.0)
    assert set(states(world)) == {"n2", "n3"}


def test_a_restart_forgets_no_idle_time(world: World) -> None:
    began = world.time
    while world.time - began < 130:
        world.tick(10.0)
        world.start_engine()
    assert states(world) == {}
    tick_until(world, lambda: bool(states(world)), ticks=4)


def test_averages_outlive_the_engine_and_send_a_node_off_at_once(world: World) -> None:
    all_off(world)
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    expected_s = world.context.ledger.power.averages()["*"]
    assert expected_s > 140
    world.start_engine()
    assert world.context.ledger.power.averages()["*"] == expected_s
    world.rms.finish(job)
    ended = world.time
    tick_until(world, lambda: "n1" in states(world), seconds=5.0)
    assert world.time - ended < 60, "the average says that it will be idle for long"


def test_no_more_cycles_a_day_than_are_set(directory: Path) -> None:
    world = make_world(directory, watts={"cycles_a_day": 1})
    all_off(world)
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    world.rms.finish(job)
    for _ in range(60):
        world.tick(20.0)
    assert "n1" not in states(world)


def test_nodes_come_on_in_time_for_the_vjob_that_waits_longest(world: World) -> None:
    """It needs all nodes, and has them when the limit of the one that runs ends."""
    world.running(cpus=2, time_limit_s=3600)
    ends = world.time + 3600
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    world.submit(vms=3, cpus=2)
    tick_until(world, lambda: states(world) == {}, ticks=400)
    assert abs(ends - world.time) < 60, "not at once, and not too late"


def test_a_reservation_has_its_node_on(world: World) -> None:
    all_off(world)
    begins = world.time + 1000
    world.rms.reservations["maint"] = RmsReservation(
        "maint", int(begins), int(begins) + 600, ("n2",), {}, ("somebody",), ()
    )
    tick_until(world, lambda: "n2" not in states(world))
    assert 0 < begins - world.time < 300
    assert is_off(world, "n1", "n3")


def test_nothing_goes_off_while_the_engine_is_paused(world: World) -> None:
    world.context.ledger.plans.set_pause("root")
    for _ in range(60):
        world.tick(10.0)
    assert states(world) == {}
    world.context.ledger.plans.clear_pause()
    all_off(world)


def test_sites_that_hold_their_rooms_keep_their_nodes_on(directory: Path) -> None:
    world = make_world(directory, rooms="hold")
    for _ in range(60):
        world.tick(20.0)
    assert states(world) == {}
    assert world.power.calls == []


def test_what_slurms_settings_keep_on_stays_on(world: World) -> None:
    world.rms.powering.saving = replace(world.rms.powering.saving, nodes=(KeptOn(frozenset({"n2"})),))
    tick_until(world, lambda: is_off(world, "n1", "n3"))
    assert "n2" not in states(world)


def test_what_is_off_is_shown_with_its_time_and_reason(world: World) -> None:
    ledger = world.context.ledger
    assert power_sentence(ledger) is None
    world.tick()
    assert {view["power"] for view in node_views(ledger, world.capacities(), world.cycle.seen, {})} == {"on"}
    tick_until(world, lambda: len(states(world)) == 3)
    assert world.cycle.seen is not None
    refused = [host.why_not for host in world.capacities().hosts(world.cycle.seen).values()]
    assert all(why.startswith("it is being switched off since ") for why in refused)
    all_off(world)
    assert power_sentence(ledger) == "nodes switched off: n1, n2, n3"
    world.tick()
    assert world.cycle.report.problems == [], "a node that is off is no problem"
    view = node_views(ledger, world.capacities(), world.cycle.seen, {})[0]
    assert (view["name"], view["power"], view["state"]) == ("n1", "off", "off")
    assert view["power_since"] == ledger.power.switches()["n1"].since
    assert "nobody has used it for" in view["power_why"]
    assert view["reason"].startswith("it is switched off since ")


# -- what fails ------------------------------------------------------------------------------------------------------


def test_a_bmc_that_is_silent_before_anything_was_told_leaves_its_node_on(world: World) -> None:
    world.power.bmcs["n1"].silent = True
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    assert world.rms.snapshot().nodes["n1"].power is NodePower.ON
    assert any("n1" in event and "does not answer" in event for event in world.events("power-failed"))
    asked = world.power.calls.count(("reading", "n1"))
    assert 1 <= asked <= 4, "it is tried again, later each time"
    world.power.bmcs["n1"].silent = False
    tick_until(world, lambda: is_off(world, "n1"), ticks=400)


def test_an_engine_killed_before_it_asked_the_bmc_tells_slurm_nothing(world: World) -> None:
    tick_until(world, lambda: world.context.ledger.power.idle_since() != {})
    world.context.ledger.power.begin("n1", NodeActionKind.POWER_OFF, "nobody has used it")
    world.power.bmcs["n1"].silent = True
    world.start_engine()
    for _ in range(6):
        world.tick(1.0)
    assert states(world) == {}
    assert world.rms.calls.count(("power_down", "n1")) == 0


def test_no_order_is_given_while_slurm_has_a_job_on_the_node(world: World) -> None:
    """A room that cannot be ended is such a job."""
    for _ in range(15):
        world.nodes.fail_next("end_room", UnavailableError("it is silent"))
        world.rms.fail_next("cancel", UnavailableError("slurmctld does not answer"))
    tick_until(world, lambda: ("power_down", "n3") in world.rms.calls)
    for _ in range(3):
        world.tick(10.0)
        busy = {job.nodes[0] for job in world.rms.snapshot().jobs if job.state is not JobState.ENDED}
        assert busy, "the room is there still"
        assert [node for what, node in world.power.calls if what == "off" and node in busy] == []
    all_off(world)


def test_a_node_that_comes_back_with_the_boot_time_from_before_is_not_back(world: World) -> None:
    """Slurm itself is to refuse it; the engine does not build on that."""
    powering = world.rms.powering

    def register(node: str, boot_time: float) -> None:
        powering.of(node).boot_time = boot_time
        powering._enter(node, Stage.ON)

    all_off(world)
    powering.register = register
    world.power.bmcs["n1"].boot_lag_s = 1e6
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=200)
    assert world.host(job) == "n2"
    assert "n1: it did not come on" in " ".join(world.cycle.report.problems)
    assert "the boot time from before" in " ".join(world.cycle.report.problems)


def test_a_bmc_that_falls_silent_after_slurm_was_told_is_no_proof_and_is_ordered_again(world: World) -> None:
    world.power.fail_next("off", SilentError("the BMC of n1 does not answer"), node="n1")
    tick_until(world, lambda: is_off(world, "n2", "n3") and world.power.calls.count(("off", "n1")) == 1)
    assert states(world)["n1"] is SwitchState.GOING_OFF
    assert any("n1" in problem and "does not answer" in problem for problem in world.cycle.report.problems)
    assert not world.context.ledger.power.is_off("n1")
    all_off(world)
    assert world.power.calls.count(("off", "n1")) == 2


def test_slurms_powered_down_is_no_proof_where_slurmd_runs_on(world: World) -> None:
    world.power.bmcs["n1"].deaf = True
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    tick_until(world, lambda: world.rms.snapshot().nodes["n1"].power is NodePower.OFF)
    for _ in range(30):
        world.tick(10.0)
    assert states(world)["n1"] is SwitchState.GOING_OFF
    assert any("n1" in problem and "says that it is on" in problem for problem in world.cycle.report.problems)
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    assert world.host(job) == "n2"
    world.power.bmcs["n1"].deaf = False
    tick_until(world, lambda: is_off(world, "n1"), ticks=400)


@pytest.mark.parametrize("fault", ["does not boot", "same boot time", "agent silent"])
def test_a_node_that_does_not_come_up_is_left_alone_and_another_is_chosen(world: World, fault: str) -> None:
    all_off(world)
    bmc = world.power.bmcs["n1"]
    if fault == "does not boot":
        bmc.boots = False
    elif fault == "same boot time":
        bmc.boot_lag_s = 1e6
    else:
        world.power._when_booted = lambda node, boot_time: (
            world.rms.register(node, boot_time) if node == "n1" else world._booted(node, boot_time)
        )
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=200)
    assert world.host(job) == "n2"
    tick_until(world, lambda: states(world)["n1"] is SwitchState.FAILED)
    assert any(problem.startswith("n1: it did not come on") for problem in world.cycle.report.problems)
    assert 1 <= world.rms.calls.count(("power_up", "n1")) <= 3, "a brake: it is left alone, for longer each time"
    if fault == "agent silent":
        for _ in range(60):
            world.tick(20.0)
        assert world.power.calls.count(("off", "n1")) == 1, "no order to go off hits a node that Slurm has"
    unharmed(world, job)


def test_a_node_that_failed_is_power_cycled_when_it_is_needed_again(world: World) -> None:
    all_off(world)
    bmc = world.power.bmcs["n1"]
    bmc.boots = False
    jobs = [world.submit(vms=1, cpus=2)]
    tick_until(world, lambda: world.state(jobs[0]) is S.RUNNING, ticks=200)
    bmc.boots = True
    jobs += [world.submit(vms=1, cpus=2) for _ in range(2)]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3, ticks=300)
    assert {world.host(job) for job in jobs} == set(NODES)
    assert states(world) == {}
    unharmed(world, *jobs)


def test_a_node_that_somebody_switches_on_is_on_and_its_idle_time_begins_anew(world: World) -> None:
    all_off(world)
    world.power.switch_by_hand("n1", on=True)
    slurm_alone(world, lambda: world.rms.snapshot().nodes["n1"].power is NodePower.ON)
    began = world.time
    tick_until(world, lambda: "n1" not in states(world), ticks=3, seconds=2.0)
    assert "Slurm has it on already" in world.events("power-on")[-1]
    tick_until(world, lambda: "n1" in states(world), seconds=2.0)
    assert world.time - began > 130, "equation 8"
    all_off(world)


def test_a_node_that_somebody_switches_on_and_slurm_has_not_is_left_alone_until_it_is_needed(world: World) -> None:
    all_off(world)
    world.power.bmcs["n1"].boots = False
    world.power.switch_by_hand("n1", on=True)
    tick_until(world, lambda: states(world)["n1"] is SwitchState.FAILED)
    assert not world.context.ledger.power.is_off("n1"), "no proof any more"
    for _ in range(60):
        world.tick(20.0)
    assert world.power.bmcs["n1"].on
    assert world.power.calls.count(("off", "n1")) == 1
    world.power.bmcs["n1"].boots = True
    jobs = [world.submit(vms=1, cpus=2) for _ in NODES]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3, ticks=300)
    unharmed(world, *jobs)


def test_a_native_job_has_a_node_that_is_off(world: World) -> None:
    all_off(world)
    job = world.rms.submit(partition="plain", node="n2", cpus=2, memory_mib=1024, time_limit_s=3600)
    tick_until(world, lambda: world.rms.job(job).state is JobState.RUNNING)
    tick_until(world, lambda: "n2" not in states(world))
    assert "Slurm needs it for a job" in "".join(world.events("power-on"))
    for _ in range(30):
        world.tick(20.0)
    assert set(states(world)) == {"n1", "n3"}


def slurm_alone(world: World, until: Callable[[], bool]) -> None:
    """Time passes, and no engine looks."""
    for _ in range(60):
        world.pass_time(10.0)
        resume_program(world)
        if until():
            return
    raise AssertionError("never")


def test_a_node_that_slurm_had_on_while_the_engine_was_down_is_on(world: World) -> None:
    all_off(world)
    job = world.rms.submit(partition="plain", node="n2", cpus=2, memory_mib=1024, time_limit_s=3600)
    slurm_alone(world, lambda: world.rms.job(job).state is JobState.RUNNING)
    world.rms.finish(job)
    world.start_engine()
    for _ in range(3):
        world.tick(2.0)
    assert set(states(world)) == {"n1", "n3"}
    jobs = [world.submit(vms=1, cpus=1)]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING], ticks=3)
    assert world.host(jobs[0]) == "n2"
    assert world.power.calls.count(("off", "n2")) == 1
    unharmed(world, *jobs)


def test_a_node_that_failed_and_that_slurm_has_after_all_is_on(world: World) -> None:
    """Somebody looks at its console, and has it boot."""
    all_off(world)
    world.power.bmcs["n1"].boots = False
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=200)
    tick_until(world, lambda: states(world)["n1"] is SwitchState.FAILED)
    world.context.ledger.power.change("n1", not_before=world.time + 1e6)
    before = world.power.calls.count(("off", "n1"))
    world.power.switch_by_hand("n1", on=False)
    world.power.bmcs["n1"].boots = True
    world.rms.repair_node("n1")
    world.rms.power_up("n1")
    slurm_alone(world, lambda: world.rms.snapshot().nodes["n1"].power is NodePower.ON)
    world.start_engine()
    tick_until(world, lambda: "n1" not in states(world), ticks=3)
    assert world.power.calls.count(("off", "n1")) == before, "its power is not cut once more"
    unharmed(world, job)


def test_a_vjob_that_arrives_before_slurm_was_told_keeps_the_node_on(directory: Path) -> None:
    world = make_world(directory)
    world.rms._boot_s = 6.0  # of a room
    tick_until(world, lambda: bool(states(world)), ticks=300, seconds=2.0)
    jobs = [world.submit(vms=1, cpus=2) for _ in NODES]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3, ticks=300, seconds=2.0)
    assert [call for call in world.power.calls if call[0] == "off"] == []
    unharmed(world, *jobs)


def test_a_vjob_that_arrives_when_the_engine_has_its_room_to_tell_slurm_keeps_the_node_on(world: World) -> None:
    """The room is there for the node to go off, and for nothing else."""
    tick_until(world, lambda: bool(states(world)), seconds=1.0, ticks=300)
    room = world.rms.snapshot()
    assert [job.state for job in room.jobs if job.name == ROOM_NAME and job.nodes == ("n1",)] == [JobState.RUNNING]
    job = world.submit(vms=1)
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=5, seconds=1.0)
    assert world.events("step-failed") == []
    assert world.power.calls.count(("off", world.host(job))) == 0
    unharmed(world, job)


def test_the_bmc_gets_its_order_to_come_on_once_slurm_has_heard_that_the_node_is_to(world: World) -> None:
    """Slurm forgets a boot while a node is POWER_UP, and not POWERING_UP yet: some seconds, up to ten."""
    all_off(world)
    world.rms.powering.when_resumed = lambda node: None
    snapshot = world.rms.snapshot

    def not_yet() -> Any:
        found = snapshot()
        nodes = {
            name: replace(node, state=node.state.replace("POWERING_UP", "POWER_UP"))
            for name, node in found.nodes.items()
        }
        return replace(found, nodes=nodes)

    world.rms.snapshot = not_yet
    world.submit(vms=1)
    tick_until(world, lambda: states(world)["n1"] is SwitchState.COMING_ON)
    for _ in range(3):
        world.tick(2.0)
    assert world.power.calls.count(("on", "n1")) == 0
    world.rms.snapshot = snapshot
    tick_until(world, lambda: ("on", "n1") in world.power.calls, ticks=2, seconds=2.0)


def test_a_node_that_is_on_is_better_than_one_that_comes_on_and_may_not(world: World) -> None:
    all_off(world)
    world.power.bmcs["n1"].boots = False
    job = world.submit(vms=1, cpus=2)
    tick_until(world, lambda: states(world)["n1"] is SwitchState.COMING_ON)
    native = world.rms.submit(partition="plain", node="n2", cpus=2, memory_mib=1024, time_limit_s=3600)
    tick_until(world, lambda: world.rms.job(native).state is JobState.RUNNING)
    assert states(world)["n1"] is SwitchState.COMING_ON
    world.rms.finish(native)
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=4)
    assert world.host(job) == "n2"
    assert world.power.calls.count(("off", "n2")) == 1
    unharmed(world, job)


def test_a_vjob_that_arrives_while_the_node_goes_off_has_it_afterwards(world: World) -> None:
    tick_until(world, lambda: any(call[0] == "off" for call in world.power.calls), seconds=2.0, ticks=600)
    jobs = [world.submit(vms=1, cpus=2) for _ in NODES]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3)
    assert {world.host(job) for job in jobs} == set(NODES)
    assert states(world) == {}
    unharmed(world, *jobs)


def test_a_vjob_whose_node_is_off_by_our_order_is_proved_absent_there(world: World) -> None:
    job = world.running()
    vm = world.context.ledger.vms(job)[0]
    assert not world.context.sightings.has_left("n3", vm)
    tick_until(world, lambda: is_off(world, "n3"))
    assert world.context.sightings.has_left("n3", vm)


def test_a_node_that_is_off_is_asked_nothing(world: World) -> None:
    all_off(world)
    asked: list[str] = []
    list_vms = world.hypervisor.list_vms

    def note(node: str) -> Any:
        asked.append(node)
        return list_vms(node)

    world.hypervisor.list_vms = note
    for _ in range(5):
        world.tick(10.0)
    assert asked == []


def test_no_order_to_go_off_hits_a_node_that_slurm_wants_back(world: World) -> None:
    """The BMC missed the order, Slurm's timer has ended, and a native job has the node."""
    world.power.fail_next("off", SilentError("the BMC of n2 does not answer"), node="n2")
    tick_until(world, lambda: ("off", "n2") in world.power.calls)
    tick_until(world, lambda: world.rms.snapshot().nodes["n2"].power is NodePower.OFF, seconds=2.0)
    job = world.rms.submit(partition="plain", node="n2", cpus=2, memory_mib=1024, time_limit_s=7200)
    tick_until(world, lambda: world.rms.snapshot().nodes["n2"].power is NodePower.COMING_ON)
    before = world.power.calls.count(("off", "n2"))
    tick_until(world, lambda: world.rms.snapshot().nodes["n2"].power is not NodePower.COMING_ON)
    assert world.power.calls.count(("off", "n2")) == before == 1
    tick_until(world, lambda: world.rms.job(job).state is JobState.RUNNING, ticks=300)


def test_where_the_setting_is_taken_back_all_nodes_come_on(world: World) -> None:
    all_off(world)
    power = world.settings.power.model_copy(update={"switch": False})
    world.settings = world.settings.model_copy(update={"power": power})
    world.start_engine()
    tick_until(world, lambda: states(world) == {})
    assert all(bmc.booted for bmc in world.power.bmcs.values())


def forget_switches(world: World) -> None:
    """As a ledger that was lost, or is that of one engine after groups have had engines."""
    for switch in world.context.ledger.power.switches().values():
        world.context.ledger.power.forget(switch)


def test_a_node_that_is_off_and_that_the_ledger_does_not_know_is_found_and_comes_on_for_a_vjob(world: World) -> None:
    all_off(world)
    forget_switches(world)
    world.power.bmcs["n2"].silent = True
    before = world.power.calls.count(("reading", "n2"))
    for _ in range(18):
        world.tick(10.0)
    assert states(world) == {"n1": OFF, "n3": OFF}, "silence proves nothing"
    assert world.power.calls.count(("reading", "n2")) - before in (3, 4), "once a minute"
    world.power.bmcs["n2"].silent = False
    all_off(world)
    assert all(world.context.ledger.power.is_off(node) for node in NODES)
    jobs = [world.submit(vms=1, cpus=2) for _ in NODES]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3)
    assert [world.power.calls.count((what, "n1")) for what in ("off", "on")] == [1, 1]
    unharmed(world, *jobs)


def test_a_node_that_slurm_has_off_by_our_word_and_that_is_on_is_left_until_it_is_needed(world: World) -> None:
    all_off(world)
    forget_switches(world)
    world.power.bmcs["n1"].boots = False
    world.power.switch_by_hand("n1", on=True)
    tick_until(world, lambda: states(world).get("n1") is SwitchState.FAILED)
    for _ in range(30):
        world.tick(10.0)
    assert world.power.bmcs["n1"].on and world.power.calls.count(("off", "n1")) == 1
    assert not world.context.ledger.power.is_off("n1")
    world.power.bmcs["n1"].boots = True
    jobs = [world.submit(vms=1, cpus=2) for _ in NODES]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 3, ticks=300)
    assert world.power.calls.count(("off", "n1")) == 2, "only a boot has it back"
    unharmed(world, *jobs)


def test_a_node_that_an_administrator_has_powered_down_and_that_is_on_is_left_to_him(world: World) -> None:
    world.rms.power_down("n2", "firmware")
    tick_until(world, lambda: is_off(world, "n1", "n3"))
    jobs = [world.submit(vms=1, cpus=2) for _ in NODES]
    for _ in range(60):
        world.tick(10.0)
        resume_program(world)
    assert world.rms.snapshot().nodes["n2"].power is NodePower.OFF
    assert world.states(*jobs).count(S.RUNNING) == 2
    assert [call for call in world.power.calls if call in (("off", "n2"), ("on", "n2"))] == []


# -- killed at any instant -------------------------------------------------------------------------------------------


def live_off_and_on(world: World, kill_at: int | None) -> int:
    world.start_engine(kill_at)
    first = world.life
    world.power.fail_next("off", OperationFailedError("it fails"), node="n1", after=True)
    all_off(world)
    jobs = [world.submit(vms=1, cpus=2) for _ in range(2)]
    tick_until(world, lambda: world.states(*jobs) == [S.RUNNING] * 2, ticks=300)
    unharmed(world, *jobs)
    tick_until(world, lambda: list(states(world).values()) == [OFF], ticks=300)
    rooms = [job for job in world.rms.snapshot().jobs if job.name == ROOM_NAME and job.state is not JobState.ENDED]
    assert len({job.nodes for job in rooms}) == len(rooms)
    return first.instants


@pytest.mark.timeout(600)
def test_killed_at_any_instant_of_going_off_and_coming_on(directory: Path, whole: bool) -> None:
    (directory / "0").mkdir()
    total = live_off_and_on(make_world(directory / "0"), None)
    assert total > 40
    for instant in spread(total, total if whole else SAMPLE):
        where = directory / str(instant)
        where.mkdir()
        try:
            live_off_and_on(make_world(where), instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error


def test_a_node_comes_on_in_time_for_a_vjob_with_a_begin_time(world: World) -> None:
    all_off(world)
    begins = world.time + 600
    job = world.submit(vms=1, begin=begins)
    while world.time < begins:
        world.tick(10.0)
        resume_program(world)
        assert world.state(job) is S.WAITING
    (act,) = [act for act in world.context.ledger.power.acts() if act.kind is NodeActionKind.POWER_ON]
    assert 120 + 20 < begins - act.began <= 120 + 30, "T_w, and a cycle, before"
    assert "n1" not in states(world), "it is on"
    assert is_off(world, "n2", "n3")
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=3)
    assert world.host(job) == "n1"
    unharmed(world, job)


def test_a_node_that_a_vjob_with_a_begin_time_will_have_stays_on(world: World) -> None:
    """The one that it names, though it would be used last."""
    begins = world.time + 230
    job = world.submit(vms=1, begin=begins, constraints={"nodes": "n3"})
    tick_until(world, lambda: is_off(world, "n1", "n2"))
    assert world.time < begins + 60
    tick_until(world, lambda: world.state(job) is S.RUNNING)
    assert world.host(job) == "n3"
    assert [act.node for act in world.context.ledger.power.acts() if act.node == "n3"] == []


def test_a_begin_time_that_is_far_away_keeps_no_node_on(world: World) -> None:
    begins = world.time + 5000
    world.submit(vms=1, begin=begins)
    all_off(world)
    assert world.time < begins - 3000


def test_a_begin_time_that_is_far_away_has_no_node_go_off_sooner(world: World) -> None:
    world.running(cpus=2, time_limit_s=9000)
    began = world.time
    world.submit(vms=3, cpus=2, begin=began + 5000)
    tick_until(world, lambda: bool(states(world)), seconds=1.0, ticks=300)
    assert world.time - began > 130, "others may come before"


def test_a_node_that_is_about_to_go_off_stays_on_for_a_vjob_that_begins_soon(world: World) -> None:
    tick_until(world, lambda: bool(states(world)), ticks=300, seconds=1.0)
    assert set(states(world).values()) == {SwitchState.GOING_OFF}
    world.submit(vms=1, begin=world.time + 100)
    world.tick(1.0)
    assert "keep n1 on: a vjob begins there soon" in world.cycle.report.begun
    assert "n1" not in states(world)


def test_the_vjob_with_a_begin_time_for_which_a_node_comes_on_is_told(world: World) -> None:
    all_off(world)
    job = world.submit(vms=1, begin=world.time + 190)
    world.tick(1.0)
    world.pass_time(42.0)
    planned = world.cycle.preview().powers
    assert [(str(each.kind), each.node, each.needed_by) for each in planned] == [("power-on", "n1", (str(job),))]
    world.rms.user_hold(job)
    assert world.cycle.preview().powers == (), "a vjob that is held is no known demand"


def test_a_vjob_that_will_have_room_by_its_begin_time_keeps_the_other_nodes_on(world: World) -> None:
    """It fits nowhere now; by the limit of who runs it will have all nodes when it begins."""
    world.running(cpus=2, time_limit_s=360)
    began = world.time
    job = world.submit(vms=3, cpus=2, begin=began + 420)
    tick_until(world, lambda: is_off(world, "n2", "n3"))
    tick_until(world, lambda: world.time > began + 280)
    assert is_off(world, "n2", "n3"), "neither before"
    tick_until(world, lambda: world.time > began + 320)
    assert states(world) == dict.fromkeys(("n2", "n3"), SwitchState.COMING_ON)
    tick_until(world, lambda: world.state(job) is S.RUNNING, ticks=40)


def test_the_time_that_switches_took_takes_the_place_of_the_settings(directory: Path) -> None:
    world = make_world(directory, watts={"on_s": 250})
    book, kinds = world.context.ledger.power, (NodeActionKind.POWER_OFF, NodeActionKind.POWER_ON)
    for _ in range(4):
        all_off(world)
        job = world.submit(vms=3, cpus=2)
        tick_until(world, lambda job=job: world.state(job) is S.RUNNING)
        world.rms.finish(job)
    own = book.took()
    assert [sum(each.kind is kind for each in own) for kind in kinds] == [12, 12]
    assert all(0 < each.seconds <= 140 for each in own)
    classes = world.cycle.powering.classes
    (name, power), patient = classes.of("n1"), classes.patient("n1")
    assert name == "*"
    assert (power.off_s, power.on_s) == tuple(
        statistics.median(each.seconds for each in own if each.kind is kind) for kind in kinds
    )
    assert (patient.off_s, patient.on_s) == (power.off_s, 250.0), "no node fails by being slow once"
    all_off(world)
    begins = world.time + 600
    world.submit(vms=1, begin=begins)
    tick_until(world, lambda: "n1" in states(world) and states(world)["n1"] is SwitchState.COMING_ON)
    act = book.acts()[-1]
    assert power.on_s < begins - act.began <= power.on_s + 30 < 250, "it comes on as late as it may"


def test_what_was_not_by_our_order_is_not_measured(world: World) -> None:
    all_off(world)
    book = world.context.ledger.power
    before = len(book.took())
    world.rms.submit(partition="vmhosts", node="n2", time_limit_s=600)
    tick_until(world, lambda: "n2" not in states(world))
    assert len(book.took()) == before, "Slurm's ResumeProgram was first"
