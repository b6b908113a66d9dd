"""Jobs of the schedule beside the engine's cycles: they take only what nobody needs, and no fault of theirs harms."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.world import NODES, World

from rmsplugin.engine.ledger.rows import RunState, ScheduledRun
from rmsplugin.engine.schedule.job import ScheduledJob
from rmsplugin.engine.schedule.jobs import jobs_of
from rmsplugin.engine.schedule.programs import Programs
from rmsplugin.engine.schedule.runs import Runs
from rmsplugin.errors import UnavailableError
from rmsplugin.model.vjob import VJobState

S = VJobState
HOUR_S, DAY_S = 3600.0, 86400.0


def job_of(world: World, name: str) -> ScheduledJob:
    jobs = jobs_of(world.context, Programs(Path("none")), world.cycle.gate, lambda: world.cycle.seen)
    return next(job for job in jobs if job.name == name)


def run(world: World, job: ScheduledJob) -> ScheduledRun:
    Runs(world.context.ledger, world.context.clock).do_job(job)
    last = world.context.ledger.schedule.last(job.name)
    assert last is not None
    return last


def leave_state(world: World, vm: str, of: int) -> str:
    """A saved state of a VM that nobody has removed: a copy of another vjob's. Returns the node that it lies on."""
    store, [sleeper] = "/shared" if world.context.settings.nodes.shared else "/store", world.context.ledger.vms(of)
    node = NODES[0] if world.context.settings.nodes.shared else sleeper.image_node
    state = world.files.get(node, f"{store}/{sleeper.name}.state")
    assert state is not None
    world.files.put(node, f"{store}/{vm}.state", state)
    return node


def states(world: World) -> set[str]:
    paths = {path for node in NODES for path in world.files.paths(node) if path.endswith(".state")}
    return {Path(path).stem for path in paths}


def ended(world: World) -> int:
    job = world.running(memory_mib=64)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    return job


@pytest.mark.parametrize("shared", [False, True])
def test_the_sweep_removes_states_of_ended_vjobs_alone(directory: Path, shared: bool) -> None:
    world = World(directory, shared=shared)
    asleep, gone = world.sleeping(), ended(world)
    leave_state(world, f"vjob{gone}-0", of=asleep)
    leave_state(world, "vjob4711-0", of=asleep)
    world.tick()
    assert "removed 0 saved states" in run(world, job_of(world, "sweep")).result, "its own end may still be under way"
    world.pass_time(2 * HOUR_S)
    world.tick()
    found = run(world, job_of(world, "sweep"))
    assert found.state is RunState.DONE and "removed 1 saved states" in found.result
    assert "left alone 1 states of vjobs that the ledger does not know (vjob4711-0)" in found.result
    assert states(world) == {f"vjob{asleep}-0", "vjob4711-0"}
    world.close()


def test_a_silent_node_is_told_and_the_others_are_swept(world: World) -> None:
    asleep, gone = world.sleeping(), ended(world)
    node = leave_state(world, f"vjob{gone}-0", of=asleep)
    world.pass_time(2 * HOUR_S)
    world.tick()
    silent = next(each for each in NODES if each != node)
    world.nodes.set_reachable(silent, False)
    found = run(world, job_of(world, "sweep"))
    assert found.state is RunState.DONE and f"; nothing was done on {silent}: " in found.result
    world.nodes.set_reachable(silent, True)
    assert states(world) == {f"vjob{asleep}-0"}
    for each in NODES:
        world.nodes.set_reachable(each, False)
    assert run(world, job_of(world, "sweep")).state is RunState.FAILED


def test_a_store_that_is_not_mounted_is_left_alone(world: World) -> None:
    asleep, gone = world.sleeping(), ended(world)
    node = leave_state(world, f"vjob{gone}-0", of=asleep)
    world.files._markers.clear()
    world.pass_time(2 * HOUR_S)
    world.tick()
    found = run(world, job_of(world, "sweep"))
    assert f"nothing was done on {node}: the store of saved states on {node} shows no marker" in found.result
    assert world.files.get(node, f"/store/vjob{gone}-0.state") is not None


def test_the_gate_is_renewed_half_a_year_before_its_end(world: World) -> None:
    def left_days() -> float:
        name = world.settings.slurm.gate_reservation
        return (world.rms.snapshot().reservations[name].end_time - world.wall()) / DAY_S

    world.tick()
    assert run(world, job_of(world, "gate")).result.endswith("days more") and left_days() > 360
    world.pass_time(200 * DAY_S)
    world.tick()
    assert 150 < left_days() < 180, "a cycle leaves that to the schedule"
    assert run(world, job_of(world, "gate")).result == "reservation rmsplugin_gate was renewed"
    assert left_days() > 360
    world.pass_time(300 * DAY_S)
    world.tick()
    assert left_days() > 360, "but not for too long"


def test_licences_that_are_added_to_the_gate_are_reserved_in_the_next_cycle(world: World) -> None:
    name, gate = world.settings.slurm.gate_reservation, world.settings.slurm.gate
    world.tick()
    assert world.rms.snapshot().reservations[name].licenses == {gate: 1}
    world.rms.licenses[gate] = 4  # an operator changes slurm.conf
    world.tick()
    assert world.rms.snapshot().reservations[name].licenses == {gate: 4}
    world.rms.licenses[gate] = 5
    assert run(world, job_of(world, "gate")).result == f"reservation {name} was renewed"
    assert world.rms.snapshot().reservations[name].licenses == {gate: 5}


def test_cycles_go_on_beside_a_job_that_hangs(world: World) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hangs() -> str:
        begun.set()
        go_on.wait(PATIENCE_S)
        return "done"

    runs = Runs(world.context.ledger, world.context.clock)
    thread = threading.Thread(target=runs.do_job, args=[ScheduledJob("slow", "", "* * * * *", hangs)])
    thread.start()
    assert begun.wait(PATIENCE_S)
    job = world.running()
    assert thread.is_alive() and world.state(job) is S.RUNNING
    assert world.context.ledger.schedule.running()[0].job == "slow"
    go_on.set()
    thread.join(PATIENCE_S)
    last = world.context.ledger.schedule.last("slow")
    assert last is not None and last.state is RunState.DONE


def test_an_engine_that_is_killed_in_a_sweep_at_any_instant_loses_nothing_and_says_so(world: World) -> None:
    asleep, gone = world.sleeping(), ended(world)
    name, kept = f"vjob{gone}-0", {f"vjob{asleep}-0"}
    world.pass_time(2 * HOUR_S)
    world.tick()
    look = world.cycle.seen
    seen: set[RunState] = set()
    for kill_at in range(1, 60):
        leave_state(world, name, of=asleep)
        world.start_engine(kill_at)
        world.cycle.seen = look
        sweep = job_of(world, "sweep")
        world.alive(lambda sweep=sweep: run(world, sweep))
        killed = world.life.dead
        world.start_engine()
        Runs(world.context.ledger, world.context.clock).recover()
        last = world.context.ledger.schedule.last("sweep")
        assert states(world) - {name} == kept
        assert not world.context.ledger.schedule.running()
        seen |= {last.state} if last else set()
        if not killed:
            break
    assert not killed and seen == {RunState.DONE, RunState.INTERRUPTED}
    told = [event for event in world.context.ledger.events() if event.kind == "schedule-interrupted"]
    assert told and told[0].message == "sweep: the engine ended meanwhile"
    assert world.host(world.running()) in NODES


def test_before_the_first_look_nothing_is_done(world: World) -> None:
    world.cycle.seen = None
    for name in ("sweep", "gate"):
        found = run(world, job_of(world, name))
        assert found.state is RunState.FAILED and found.result.startswith("no cycle has looked")
    with pytest.raises(UnavailableError):
        job_of(world, "gate").act()
