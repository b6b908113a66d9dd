"""A saved state is lost only by proof, and no restart deletes one: it is put aside, taken back, or dropped by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from scenarios.world import NODES, World

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.engine.context.machines import state_path
from rmsplugin.engine.ledger.rows import OperationKind, SetAsideState, VMRow
from rmsplugin.errors import CorruptStateError, ForbiddenError, NotFoundError, RefusedError
from rmsplugin.model.vjob import VJobState

#: Of the instants of putting aside and taking back CI tries one of so many.
EACH = 3

S, K = VJobState, OperationKind
ROOT, OWNER, STRANGER = 0, 65534, 12345


@pytest.fixture(params=[False, True], ids=["local stores", "a shared store"])
def world(request: pytest.FixtureRequest, directory: Path) -> Iterator[World]:
    world = World(directory, shared=request.param)
    yield world
    assert world.hypervisor.violations == []


@pytest.fixture
def shared(directory: Path) -> Iterator[World]:
    world = World(directory, shared=True)
    yield world
    assert world.hypervisor.violations == []


@pytest.fixture
def local(directory: Path) -> Iterator[World]:
    world = World(directory)
    yield world
    assert world.hypervisor.violations == []


def ticks(world: World, count: int = 8) -> None:
    for _ in range(count):
        world.tick()


def states(world: World) -> set[str]:
    return {path for node in NODES for path in world.files.paths(node)}


def holder(world: World, vm: VMRow) -> str:
    """A node that has the state of the VM."""
    return vm.booted_on if vm.image_node == "shared" else vm.image_node


def path_of(world: World, vm: VMRow) -> str:
    return state_path(world.context.settings, vm)


# -- lost, or not ------------------------------------------------------------------------------------------------------


def test_a_restore_that_a_node_refuses_deletes_nothing(world: World) -> None:
    job = world.sleeping(vms=2)
    before = states(world)
    world.hypervisor.fail_next("restore", CorruptStateError("unknown machine type"), vm=f"vjob{job}-1")
    world.ask(job, K.RESUME)
    world.until(job, S.SLEEPING)
    assert states(world) == before
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.script_started) == (0, True)
    assert "cannot load the saved state" in vjob.reason
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_a_state_that_is_damaged_or_gone_from_its_store_is_lost(world: World, how: str) -> None:
    job = world.sleeping(vms=1)
    [vm] = world.context.ledger.vms(job)
    (world.files.damage if how == "damaged" else world.files.drop)(holder(world, vm), path_of(world, vm))
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.losses, vjob.script_started) == (1, False)
    assert len(world.context.ledger.set_aside.all()) == (how == "damaged")


def test_a_copy_that_is_damaged_on_its_way_is_no_lost_state(local: World) -> None:
    job = local.sleeping(vms=1)
    [vm] = local.context.ledger.vms(job)
    local.nodes.fail_next("send", CorruptStateError("what arrived is not what was saved"))
    target = next(node for node in NODES if node != vm.image_node)
    local.ask(job, K.RESUME, target)
    local.until(job, S.SLEEPING)
    assert local.context.ledger.vjob(job).losses == 0
    local.ask(job, K.RESUME, target)
    local.until(job, S.RUNNING)


def test_a_shared_store_that_is_not_mounted_loses_nothing(shared: World) -> None:
    job = shared.sleeping(vms=2)
    before = states(shared)
    for node in NODES:
        shared.files.mount(node, False)
    for _ in range(3):
        shared.ask(job, K.RESUME)
        shared.until(job, S.SLEEPING)
    assert "is it mounted?" in shared.context.ledger.vjob(job).reason
    for node in NODES:
        shared.files.mount(node, True)
    assert states(shared) == before
    shared.ask(job, K.RESUME)
    shared.until(job, S.RUNNING)
    assert shared.context.ledger.vjob(job).losses == 0


def test_another_store_in_the_place_of_the_right_one_loses_nothing(shared: World) -> None:
    job = shared.sleeping(vms=1)
    for node in NODES:
        shared.files.mount(node, False)
        shared.files.mark(node, "/shared", "f" * 32)
    shared.ask(job, K.RESUME)
    shared.until(job, S.SLEEPING)
    assert "another one than before" in shared.context.ledger.vjob(job).reason
    assert shared.context.ledger.vjob(job).losses == 0


def test_nothing_is_saved_where_the_store_is_not_mounted(shared: World) -> None:
    job = shared.sleeping(vms=1)
    shared.ask(job, K.RESUME)
    shared.until(job, S.RUNNING)
    for node in NODES:
        shared.files.mount(node, False)
    shared.ask(job, K.SUSPEND)
    shared.until(job, S.RUNNING)
    assert "is it mounted?" in shared.context.ledger.vjob(job).reason
    assert states(shared) == set()
    [vm] = shared.context.ledger.vms(job)
    assert shared.hypervisor.list_vms(vm.host)[vm.name].power is VMPower.RUNNING
    assert shared.rms.job(job).state == "RUNNING"


def test_a_store_that_is_unmounted_in_the_middle_of_a_save_loses_nothing(shared: World) -> None:
    job = shared.sleeping(vms=1)
    shared.ask(job, K.RESUME)
    shared.until(job, S.RUNNING)
    shared.nodes.fail_next("seal", NotFoundError("no state to seal"))
    ask = shared.nodes.seal

    def seal(node: str, *words: object, **options: object) -> object:
        for each in NODES:
            shared.files.mount(each, False)
        return ask(node, *words, **options)  # type: ignore[arg-type]

    shared.nodes.seal = seal  # type: ignore[method-assign, assignment]
    shared.ask(job, K.SUSPEND)
    ticks(shared, 3)
    for node in NODES:
        shared.files.mount(node, True)
    shared.nodes.seal = ask  # type: ignore[method-assign]
    shared.until(job, S.RUNNING, S.SLEEPING)
    assert shared.context.ledger.vjob(job).losses == 0


def test_a_new_store_is_taken_for_one_only_when_an_operator_says_so(local: World) -> None:
    job = local.sleeping(vms=1)
    [vm] = local.context.ledger.vms(job)
    local.files.wipe(vm.image_node, "/store")
    local.ask(job, K.RESUME)
    local.until(job, S.SLEEPING)
    assert local.context.ledger.vjob(job).losses == 0
    with pytest.raises(ForbiddenError):
        local.requests().orders.new_store(STRANGER, vm.image_node)
    with pytest.raises(NotFoundError, match="n9"):
        local.requests().orders.new_store(ROOT, "n9")
    local.requests().orders.new_store(ROOT, vm.image_node)
    local.ask(job, K.RESUME)
    local.until(job, S.RUNNING)
    assert local.context.ledger.vjob(job).losses == 1


def test_a_store_of_before_markers_is_set_up_only_where_its_states_are_seen(shared: World) -> None:
    job = shared.sleeping(vms=1)
    shared.files._markers.clear()  # as an older release left it
    shared.context.ledger._db.execute("delete from stores")
    for node in NODES:
        shared.files.mount(node, False)
    shared.start_engine()
    ticks(shared, 2)
    shared.ask(job, K.RESUME)
    shared.until(job, S.SLEEPING)
    assert shared.context.ledger.markers.of("shared") is None
    for node in NODES:
        shared.files.mount(node, True)
    shared.ask(job, K.RESUME)
    shared.until(job, S.RUNNING)
    assert shared.context.ledger.markers.of("shared")


def test_a_job_that_ends_takes_its_state_with_it_as_soon_as_one_node_has_the_store_back(shared: World) -> None:
    job = shared.submit(vms=1)
    shared.until(job, S.RUNNING)
    shared.ask(job, K.MIGRATE, "n2")
    shared.until(job, S.RUNNING)
    shared.ask(job, K.SUSPEND)
    shared.until(job, S.SLEEPING)
    for node in NODES:
        shared.files.mount(node, False)
    shared.rms.cancel(job)
    ticks(shared)
    assert shared.state(job) is S.STOPPING
    [vm] = shared.context.ledger.vms(job)
    assert vm.touched == ("n1", "n2")
    shared.files.mount("n2", True)
    shared.until(job, S.TERMINATED)
    assert states(shared) == set()


def test_a_job_that_never_slept_ends_whatever_its_store(local: World) -> None:
    job = local.submit(vms=1)
    local.until(job, S.RUNNING)
    local.context.ledger.markers.set("n1", "f" * 32)  # and the node shows no marker
    local.rms.cancel(job)
    local.until(job, S.TERMINATED)
    assert local.leftovers() == []


# -- put aside ---------------------------------------------------------------------------------------------------------


def half_lost(world: World) -> int:
    """A vjob that runs again from its beginning, because one of its two states was damaged; both were put aside."""
    job = world.sleeping(vms=2)
    vm = world.context.ledger.vms(job)[1]
    intact = world.files.get(holder(world, vm), path_of(world, vm))
    world.files.damage(holder(world, vm), path_of(world, vm))
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    world.context.ledger.update_vjob(job, script_started=True)
    assert intact is not None
    world.intact = intact  # type: ignore[attr-defined]
    return job


def mend(world: World) -> None:
    """As from a backup."""
    [aside] = world.context.ledger.set_aside.all()
    vm = aside.vms[1]
    world.files.put(holder(world, vm), path_of(world, vm).replace("/vjob", f"/aside-{aside.id}.vjob"), world.intact)  # type: ignore[attr-defined]


def test_a_restart_puts_saved_states_aside(world: World) -> None:
    job = half_lost(world)
    [aside] = world.context.ledger.set_aside.all()
    assert len([path for path in states(world) if f"/aside-{aside.id}.vjob{job}-" in path]) == 2
    assert (aside.display_id, aside.complete, len(aside.vms)) == (str(job), True, 2)
    assert "is not what was saved" in aside.reason
    assert "2 saved states were put aside" in world.events("put-aside")[0]
    [shown] = world.requests().put_aside.page(OWNER)["states"]
    assert (shown["states"], shown["vms"], shown["bytes"]) == (2, 2, 512 << 20)
    assert world.requests().put_aside.page(STRANGER)["states"] == []
    assert len(world.requests().put_aside.page(ROOT)["states"]) == 1


def test_states_that_are_not_whole_are_not_taken_back(world: World) -> None:
    job = half_lost(world)
    with pytest.raises(CorruptStateError):
        world.requests().put_aside.take_back(OWNER, 1)
    with pytest.raises(ForbiddenError):
        world.requests().put_aside.take_back(STRANGER, 1)
    with pytest.raises(NotFoundError, match="rmsplugin states"):
        world.requests().put_aside.take_back(OWNER, 2)
    ticks(world)
    assert (world.state(job), world.context.ledger.vjob(job).losses) == (S.RUNNING, 1)


def test_states_are_taken_back_and_the_vjob_goes_on_from_there(world: World) -> None:
    job = half_lost(world)
    mend(world)
    world.requests().put_aside.take_back(OWNER, 1)
    world.until(job, S.SLEEPING)
    ticks(world)
    vjob = world.context.ledger.vjob(job)
    assert (vjob.state, vjob.losses, vjob.script_started, vjob.taking_back) == (S.SLEEPING, 0, True, 0)
    assert world.context.ledger.set_aside.all() == []
    booted = len([call for call in world.hypervisor.calls if call[0] == "boot"])
    world.hypervisor.serials.clear()  # the saves of the later life are no truth any more
    world.ask(job, K.RESUME)
    world.until(job, S.RUNNING)
    assert len([call for call in world.hypervisor.calls if call[0] == "boot"]) == booted
    assert world.context.ledger.vjob(job).private_key != ""
    world.rms.finish(job)
    world.until(job, S.TERMINATED)
    assert world.leftovers() == []


def test_a_vjob_that_sleeps_can_go_back_and_forth_between_its_states(world: World) -> None:
    job = half_lost(world)
    mend(world)
    world.ask(job, K.SUSPEND)
    world.until(job, S.SLEEPING)
    world.requests().put_aside.take_back(ROOT, 1)
    world.until(job, S.SLEEPING)
    [later] = world.context.ledger.set_aside.all()
    assert later.losses == 1
    world.requests().put_aside.take_back(ROOT, later.id)
    world.until(job, S.SLEEPING)
    assert world.context.ledger.vjob(job).losses == 1
    [again] = world.context.ledger.set_aside.all()
    assert again.losses == 0


def test_the_address_of_another_vm_is_not_taken_back(world: World) -> None:
    job = half_lost(world)
    mend(world)
    other = world.submit(vms=1)
    world.until(other, S.RUNNING)
    [aside] = world.context.ledger.set_aside.all()
    world.context.ledger.update_vm(f"vjob{other}-0", address=aside.vms[0].address)
    with pytest.raises(RefusedError, match=aside.vms[0].address):
        world.requests().put_aside.take_back(OWNER, 1)
    assert world.state(job) is S.RUNNING


def test_an_address_that_is_given_away_while_states_are_taken_back_leaves_them_aside(world: World) -> None:
    job = half_lost(world)
    mend(world)
    other = world.submit(vms=1)
    world.until(other, S.RUNNING)
    [aside] = world.context.ledger.set_aside.all()
    world.requests().put_aside.take_back(OWNER, 1)  # what it is about to end still has the address
    world.context.ledger.update_vm(f"vjob{other}-0", address=aside.vms[0].address)
    world.until(job, S.RUNNING)
    assert [each.id for each in world.context.ledger.set_aside.all()] == [1]
    assert len(world.events("not-taken-back")) == 1
    assert world.context.ledger.vjob(job).taking_back == 0


def test_dropped_states_are_gone(world: World) -> None:
    job = half_lost(world)
    with pytest.raises(ForbiddenError):
        world.requests().put_aside.drop(STRANGER, 1)
    world.requests().put_aside.drop(OWNER, 1)
    assert world.context.ledger.set_aside.all() == []
    assert states(world) == set()
    assert world.state(job) is S.RUNNING


@pytest.mark.parametrize("waits", [False, True])
def test_states_go_when_their_job_ends(world: World, waits: bool) -> None:
    job = half_lost(world)
    if waits:
        world.rms.limit(job, "AssocGrpCpuLimit")
        world.executor.begin(job, K.RESTART, "for a test")
        ticks(world, 3)
        assert world.state(job) in (S.WAITING, S.STARTING)
    world.rms.cancel(job)
    world.until(job, S.TERMINATED)
    assert world.context.ledger.set_aside.all() == []
    assert world.leftovers() == []


def put_aside_and_take_back(directory: Path, kill_at: int) -> bool:
    """Lose one state of two, mend it, take both back, killed once on the way. Returns whether it came to be killed."""
    world = World(directory)
    job = world.sleeping(vms=2)
    vm = world.context.ledger.vms(job)[1]
    world.intact = world.files.get(vm.image_node, path_of(world, vm))  # type: ignore[attr-defined]
    world.files.damage(vm.image_node, path_of(world, vm))
    world.start_engine(kill_at)
    first = world.life
    world.alive(world.cycle.run)

    def asides() -> list[SetAsideState]:
        return [] if world.life.dead else world.context.ledger.set_aside.all()

    while not any(aside.complete for aside in asides()):
        if not world.life.dead and world.cycle.seen is not None and world.state(job) is S.SLEEPING:
            world.ask(job, K.RESUME)
        world.tick()
    world.until(job, S.RUNNING)
    assert world.context.ledger.vjob(job).losses == 1
    mend(world)
    while world.life.dead or world.context.ledger.set_aside.all():
        if not world.life.dead and world.state(job) is S.RUNNING and job not in world.executor.busy():
            world.alive(lambda: world.requests().put_aside.take_back(ROOT, 1))
        world.tick()
    world.until(job, S.SLEEPING)
    assert len(states(world)) == 2
    assert {path for path in states(world) if "aside" in path} == set()
    assert world.events("restart-failed") == []
    assert world.hypervisor.violations == []
    return first.dead


@pytest.mark.timeout(300)
def test_killed_at_any_instant_of_putting_aside_and_taking_back(directory: Path, whole: bool) -> None:
    """No state is deleted, and in the end the vjob sleeps in those that were put aside."""
    for instant in itertools.count(1, 1 if whole else EACH):
        (directory / str(instant)).mkdir()
        try:
            if not put_aside_and_take_back(directory / str(instant), instant):
                break
        except AssertionError as error:
            raise AssertionError(f"killed at instant {instant}: {error}") from error
    assert instant > 100
