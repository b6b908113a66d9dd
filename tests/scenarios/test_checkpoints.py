"""Periodic checkpoints: what a lost node costs, what stands still and for how long, and which files there are."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S
from scenarios.neighbours import Silence, Way
from scenarios.test_operations import events, powers
from scenarios.world import KilledError, World, spread

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.adapters.simulated.hypervisor.faults import Point
from rmsplugin.engine.ledger.checkpoints import Checkpoint
from rmsplugin.engine.ledger.rows import OperationKind
from rmsplugin.engine.observe.dead_nodes import record_gone
from rmsplugin.errors import NoSpaceError, OperationFailedError, TimedOutError
from rmsplugin.model.vjob import VJobState

S, K = VJobState, OperationKind
INTERVAL_S = 100.0
#: Of the instants of a life with checkpoints CI tries so many.
SAMPLE = 15


def with_checkpoints(world: World) -> World:
    """Its partition takes them, each of 100 s of run."""
    partition = world.settings.partition["vjob"].model_copy(update={"checkpoint_interval_s": INTERVAL_S})
    engine = world.settings.engine.model_copy(update={"cycle_s": 1.0})
    world.settings = world.settings.model_copy(update={"partition": {"vjob": partition}, "engine": engine})
    world.start_engine()
    return world


@pytest.fixture(params=["own stores", "shared store"])
def world(request: pytest.FixtureRequest, directory: Path) -> Iterator[World]:
    world = with_checkpoints(World(directory, shared=request.param == "shared store"))
    yield world
    assert world.hypervisor.violations == []
    world.close()


@pytest.fixture
def own_stores(directory: Path) -> Iterator[World]:
    world = with_checkpoints(World(directory))
    yield world
    assert world.hypervisor.violations == []
    world.close()


def newest(world: World, job: int) -> Checkpoint | None:
    return world.context.ledger.checkpoints.whole(job)


def checkpointed(world: World, **options: int) -> int:
    """A running vjob with one whole checkpoint and nothing under way."""
    job = world.running(**{"vms": 2, **options})
    until_newer(world, job, 0)
    return job


def until_newer(world: World, job: int, number: int, ticks: int = 40) -> Checkpoint:
    for _ in range(ticks):
        world.tick(10)
        found = newest(world, job)
        if found is not None and found.id > number and job not in world.executor.busy():
            return found
    raise AssertionError(f"no newer checkpoint: {events(world)}")


def files(world: World) -> set[tuple[str, str]]:
    """All checkpoint files, by node and name; those of shared storage are of "shared"."""
    return {
        ("shared" if path.startswith("/shared/") else node, path.rpartition("/")[2])
        for node in world.sizes
        for path in world.files.paths(node)
        if "/checkpoint-" in path
    }


def settled(world: World, ticks: int = 5) -> None:
    for _ in range(ticks):
        world.tick(1)


def lose(world: World, job: int) -> None:
    """The node of its first VM dies, and an operator says so."""
    node = world.context.ledger.vms(job)[0].host
    world.kill_node(node)
    world.tick()
    record_gone(world.context.settings, world.context.ledger, node, "root")


def test_checkpoints_are_taken_once_an_interval_and_only_the_newest_is_kept(world: World) -> None:
    job = checkpointed(world, vms=2)
    first = newest(world, job)
    assert first is not None
    second = until_newer(world, job, first.id)
    assert 0 < second.taken - first.taken <= INTERVAL_S
    settled(world)
    expected = {(node, f"checkpoint-{second.id}.{vm.name}.state") for vm in second.vms for node in vm.nodes}
    assert files(world) == expected
    assert powers(world, job) == {VMPower.RUNNING}


def test_without_an_interval_none_is_taken(directory: Path) -> None:
    world = World(directory)
    job = world.running(vms=2)
    for _ in range(5):
        world.tick(INTERVAL_S)
    assert newest(world, job) is None and files(world) == set()
    world.close()


def test_vms_are_written_while_all_of_them_stand_still(world: World) -> None:
    job = world.running(vms=3, memory_mib=128)
    seen: list[set[VMPower]] = []
    for index in range(3):
        world.hypervisor.hook_next(
            "checkpoint", Point.BEFORE, lambda: seen.append(powers(world, job)), vm=f"vjob{job}-{index}"
        )
    until_newer(world, job, 0)
    assert seen == [{VMPower.PAUSED}] * 3


def test_no_copy_is_where_its_vm_is(own_stores: World) -> None:
    job = checkpointed(own_stores, vms=2)
    found = newest(own_stores, job)
    assert found is not None
    for vm in found.vms:
        assert len(set(vm.nodes)) == 2


def test_a_lost_node_costs_what_was_run_since_the_checkpoint(world: World) -> None:
    job = checkpointed(world, vms=2)
    for _ in range(4):
        world.tick(10)
    lose(world, job)
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.returns) == (0, 1)
    assert 30 <= vjob.repeated_s <= 60
    assert powers(world, job) == {VMPower.RUNNING}
    assert "went-back: it goes on from its checkpoint of" in events(world)
    assert "are repeated; lost: " in events(world)
    assert world.rms.job(job).restarts == 0, "its wrapper was not to begin anew"


def test_what_is_lost_again_before_a_new_checkpoint_goes_back_to_the_same_one(world: World) -> None:
    job = checkpointed(world, vms=2)
    before = newest(world, job)
    for _ in range(2):
        world.hypervisor.kill_vm(f"vjob{job}-0")
        settled(world, 12)
        world.until(job, S.RUNNING)
    after = newest(world, job)
    assert before is not None and after is not None and after.id == before.id
    assert world.context.ledger.vjob(job).returns == 2


def test_what_dies_each_time_begins_again_in_the_end(world: World) -> None:
    job = checkpointed(world, vms=1)
    for _ in range(4):
        world.hypervisor.kill_vm(f"vjob{job}-0")
        settled(world, 12)
        world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.returns, vjob.losses) == (3, 1)
    settled(world)
    assert files(world) == set()


def test_checkpoint_of_which_every_file_is_damaged_is_not_used(world: World) -> None:
    job = checkpointed(world, vms=2)
    found = newest(world, job)
    assert found is not None
    for vm in found.vms:
        for node in vm.nodes:
            at, store = ("n1", "/shared") if node == "shared" else (node, "/store")
            world.files.damage(at, f"{store}/checkpoint-{found.id}.{vm.name}.state")
    world.hypervisor.kill_vm(f"vjob{job}-0")
    settled(world, 12)
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1
    assert "checkpoint-unusable" in events(world)


@pytest.mark.parametrize("method", ["verify", "use_checkpoint"])
def test_a_failure_that_proves_nothing_of_a_checkpoint_leaves_it_and_is_tried_again(world: World, method: str) -> None:
    job = checkpointed(world, vms=2)
    before = newest(world, job)
    # More than there are nodes to ask for each file.
    for _ in range(1 if method == "use_checkpoint" else 10):
        world.nodes.fail_next(method, TimedOutError(f"{method} did not end in time"))
    world.hypervisor.kill_vm(f"vjob{job}-0")
    settled(world, 30)
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.returns) == (0, 1)
    after = newest(world, job)
    assert before is not None and after is not None and (after.id, after.used) == (before.id, 1)
    assert f"{method} did not end in time" in events(world), "an operator has to see what keeps it"


def test_a_file_that_cannot_be_read_does_not_matter_where_another_one_is_lost(own_stores: World) -> None:
    world = own_stores
    job = checkpointed(world, vms=2)
    found = newest(world, job)
    assert found is not None
    for node in found.vms[1].nodes:
        world.files.damage(node, f"/store/checkpoint-{found.id}.{found.vms[1].name}.state")
    for _ in found.vms[0].nodes:
        world.nodes.fail_next("verify", OperationFailedError("Input/output error"))
    world.hypervisor.kill_vm(f"vjob{job}-0")
    settled(world, 12)
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1


def test_a_store_that_is_another_one_proves_no_checkpoint_lost(world: World) -> None:
    job = checkpointed(world, vms=1)
    found = newest(world, job)
    assert found is not None
    for store in found.vms[0].nodes:
        world.context.ledger.markers.set(store, "0" * 32)
        at, directory = ("n1", "/shared") if store == "shared" else (store, "/store")
        world.files.drop(at, f"{directory}/checkpoint-{found.id}.{found.vms[0].name}.state")
    world.hypervisor.kill_vm(f"vjob{job}-0")
    settled(world, 12)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.STOPPING, 0)
    assert newest(world, job) == found


def test_a_return_that_breaks_off_between_two_vms_goes_on(own_stores: World) -> None:
    world = own_stores
    job = checkpointed(world, vms=2)
    found = newest(world, job)
    assert found is not None
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    vm = world.context.ledger.vms(job)[1]
    world.files.damage(vm.image_node, f"/store/{vm.name}.state")
    use, asked = world.nodes.use_checkpoint, []

    def second_fails(node: str, name: str, number: int, *, shared: bool = False) -> None:
        asked.append(name)
        if len(asked) == 2:
            raise OperationFailedError("the node is busy")
        use(node, name, number, shared=shared)

    world.nodes.use_checkpoint = second_fails  # type: ignore[method-assign]
    world.ask(job, K.RESUME)
    settled(world, 12)
    world.until(job, S.RUNNING)
    assert len(asked) == 4
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.returns) == (0, 1)


def resumed_from_a_damaged_state(world: World, job: int) -> str:
    """Let a sleeping vjob lose its saved state, and run again; returns whose it was."""
    vm = world.context.ledger.vms(job)[0]
    at, store = ("n1", "/shared") if world.context.settings.nodes.shared else (vm.image_node, "/store")
    world.files.damage(at, f"{store}/{vm.name}.state")
    world.ask(job, K.RESUME)
    world.until(job, S.SLEEPING, S.RUNNING)
    world.until(job, S.RUNNING)
    return vm.name


def test_lost_saved_state_goes_back_to_the_checkpoint(world: World) -> None:
    job = checkpointed(world, vms=2)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    resumed_from_a_damaged_state(world, job)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.returns) == (0, 1)


def test_a_script_that_had_ended_runs_again_from_a_checkpoint_and_its_vms_are_missed(world: World) -> None:
    job = checkpointed(world, vms=1)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.context.ledger.update_vjob(job, finished=True, finished_at=world.context.clock.now())
    vm = resumed_from_a_damaged_state(world, job)
    assert not world.context.ledger.vjob(job).finished
    world.hypervisor.kill_vm(vm)
    settled(world, 12)
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).returns == 2


def test_files_go_with_the_job(world: World) -> None:
    job = checkpointed(world, vms=2)
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


@pytest.mark.parametrize("method", ["pause", "checkpoint", "unpause"])
def test_a_checkpoint_that_fails_leaves_all_running_and_the_older_one(world: World, method: str) -> None:
    job = checkpointed(world, vms=2)
    before = newest(world, job)
    assert before is not None
    kept = files(world)
    world.hypervisor.fail_next(method, OperationFailedError(f"{method} fails"), vm=f"vjob{job}-1")
    for _ in range(40):
        world.tick(10)
        if f"{method} fails" in events(world):
            break
    settled(world, 8)
    assert powers(world, job) == {VMPower.RUNNING}
    after = newest(world, job)
    assert after is not None and (after.id == before.id) == (files(world) == kept)
    until_newer(world, job, before.id)


def test_none_is_begun_that_does_not_fit_beside_what_suspends_may_need(world: World) -> None:
    job = world.running(vms=2, memory_mib=256)
    world.files.set_capacity(700 << 20)
    for _ in range(15):
        world.tick(10)
    assert files(world) == set() and newest(world, job) is None
    assert "checkpoint-failed" in events(world) and "MiB are needed for a checkpoint" in events(world)
    assert not [call for call in world.hypervisor.calls if call[0] == "pause"]
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)


def test_no_room_for_a_copy_is_no_checkpoint(own_stores: World) -> None:
    world = own_stores
    job = world.running(vms=1)
    world.nodes.fail_next("send", NoSpaceError("no room there"))
    for _ in range(12):
        world.tick(10)
        if "no room there" in events(world):
            break
    assert newest(world, job) is None
    until_newer(world, job, 0)


def test_a_suspend_by_hand_goes_before_a_checkpoint_that_is_being_copied(own_stores: World) -> None:
    world = own_stores
    job = world.running(vms=1)
    send, asked = world.nodes.send, []

    def slow_copy(*words: object, **options: object) -> None:
        asked.append(words)
        world.executor.make_way(job, "a suspend")  # by another thread, in truth
        send(*words, **options)  # type: ignore[arg-type]
        raise OperationFailedError("nobody listens any more")

    world.nodes.send = slow_copy  # type: ignore[assignment, method-assign]
    for _ in range(12):
        world.tick(10)
        if asked:
            break
    world.nodes.send = send  # type: ignore[method-assign]
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert powers(world, job) == {VMPower.RUNNING}


@pytest.mark.parametrize("method", ["seal", "send"])
def test_a_vm_that_dies_while_its_checkpoint_goes_on_is_noticed(own_stores: World, method: str) -> None:
    world = own_stores
    job = checkpointed(world, vms=1)
    act, begun, go_on = getattr(world.nodes, method), threading.Event(), threading.Event()

    def slow(*words: object, **options: object) -> object:
        begun.set()
        assert go_on.wait(PATIENCE_S), "nobody waits for it"
        return act(*words, **options)

    setattr(world.nodes, method, slow)
    try:
        world.as_daemon(begun.is_set)
        world.hypervisor.kill_vm(f"vjob{job}-0")
        world.as_daemon(lambda: world.context.ledger.vjob(job).returns == 1)
    finally:
        go_on.set()
    assert "cancelled: the loss of its VMs goes first" in events(world)
    assert world.context.ledger.vjob(job).losses == 0


def live_with_a_lost_node(world: World, kill_at: int | None) -> int:
    """Run, take two checkpoints, lose a node, go on, end; killed once on the way. Returns the first life's instants."""
    world.start_engine(kill_at)
    first = world.life
    job = world.submit(vms=2)
    world.until(job, S.RUNNING)
    while not world.context.ledger.vjob(job).script_started:
        world.alive(lambda: world.context.ledger.update_vjob(job, script_started=True))
        world.tick()
    number = until_newer(world, job, 0).id
    until_newer(world, job, number)
    for _ in range(3):
        world.tick()
    assert powers(world, job) == {VMPower.RUNNING}
    node = world.context.ledger.vms(job)[0].host
    world.kill_node(node)
    world.tick()
    while node not in world.context.ledger.nodes.gone():
        world.alive(lambda: record_gone(world.context.settings, world.context.ledger, node, "root"))
        world.tick()
    for _ in range(60):
        world.tick()
        vjob = world.context.ledger.vjob(job)
        if vjob.returns and vjob.state is S.RUNNING and job not in world.executor.busy():
            break
    assert (world.context.ledger.vjob(job).returns, world.context.ledger.vjob(job).losses) == (1, 0), events(world)
    settled(world)
    assert powers(world, job) == {VMPower.RUNNING}
    world.revive_node(node)
    while node in world.context.ledger.nodes.gone():
        world.alive(lambda: world.context.ledger.nodes.set_back(node))
        world.tick()
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    settled(world, 8)
    assert world.leftovers() == []
    assert world.hypervisor.violations == []
    return first.instants


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shared", [False, True], ids=["own stores", "shared store"])
def test_killed_at_any_instant_of_a_life_with_checkpoints(directory: Path, shared: bool, whole: bool) -> None:
    def fresh(name: str) -> World:
        (directory / name).mkdir()
        return with_checkpoints(World(directory / name, shared=shared))

    total = live_with_a_lost_node(fresh("0"), None)
    assert total > 150
    for instant in spread(total, total if whole else SAMPLE):
        world = fresh(str(instant))
        try:
            live_with_a_lost_node(world, instant)
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant} of {total}: {error}") from error
        finally:
            world.close()


@pytest.mark.parametrize("succeeds", [True, False], ids=["which then succeeds", "which then fails"])
@pytest.mark.parametrize("method", ["pause", "checkpoint", "unpause"])
def test_killed_in_the_middle_of_a_checkpoint_nothing_stands_still(
    own_stores: World, method: str, succeeds: bool
) -> None:
    world = own_stores
    job = world.running(vms=2)

    def killed() -> None:
        world.life.dead = True
        raise KilledError

    world.hypervisor.hook_next(method, Point.DURING, killed, vm=f"vjob{job}-0")
    world.until_killed(seconds=10)
    world.hypervisor.settle(f"vjob{job}-0", succeed=succeeds)
    settled(world)
    assert powers(world, job) == {VMPower.RUNNING}
    until_newer(world, job, 0)
    settled(world, 8)
    assert {name for _, name in files(world)} == {
        f"checkpoint-{found.id}.{vm.name}.state" for found in [newest(world, job)] if found for vm in found.vms
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize("calls", [1, 12])
@pytest.mark.parametrize("neighbour", ["hypervisor", "agent"])
def test_a_neighbour_that_falls_silent_in_a_checkpoint_leaves_nothing_standing_still(
    directory: Path, neighbour: str, calls: int, way: Way, whole: bool
) -> None:
    for later in range(1, 16, 1 if whole else 4):
        where = directory / str(later)
        where.mkdir()
        world = with_checkpoints(World(where))
        job = world.running(vms=2)
        world.tick(INTERVAL_S / 2)
        host = world.context.ledger.vms(job)[0].host
        name = f"{neighbour} {host}"
        world.neighbours.silence = Silence(name, world.neighbours.calls[name] + later, calls, way)
        for _ in range(300):  # each attempt waits longer for the next
            world.tick(10)
            if world.neighbours.over() and newest(world, job):
                break
        settled(world, 8)
        assert world.neighbours.over()
        assert powers(world, job) == {VMPower.RUNNING}, f"call {later}: {events(world)}"
        assert newest(world, job), f"call {later}: {events(world)}"
        vjob = world.context.ledger.vjob(job)
        assert (vjob.losses, vjob.returns) == (0, 0)
        assert world.hypervisor.violations == []
        world.close()


def test_what_is_shown_of_a_vjob_with_a_checkpoint(world: World) -> None:
    from rmsplugin.engine.serve.views import vjob_views

    job = checkpointed(world, vms=2)
    world.tick(7)
    view = next(
        view
        for view in vjob_views(world.context.ledger, world.context.clock, ended=False, limit=10)["vjobs"]
        if view["job_id"] == job
    )
    shown = json.loads(json.dumps(view))["checkpoint"]
    found = newest(world, job)
    assert found is not None
    assert (shown["number"], shown["bytes"]) == (found.id, 2 * 256 << 20)
    assert shown["age_s"] == pytest.approx(world.time - found.taken)
    assert shown["nodes"] == (
        ["shared"] if world.context.settings.nodes.shared else sorted({n for vm in found.vms for n in vm.nodes})
    )
