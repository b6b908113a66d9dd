"""The contract of hypervisors: migration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.steps import (
    at_most,
    boot,
    boot_up,
    have_up,
    have_writer,
    power,
    run_on_libvirt,
    the_other_half,
)
from contract.hypervisor.worlds import (
    MEMORY_MIB,
    SLACK_S,
    VM,
    A,
    B,
    World,
    eventually,
    only_libvirt,
    spec,
)
from patience import PATIENCE_S

from rmsplugin.adapters.platform.base import Converge, Platform, VMPower
from rmsplugin.errors import (
    CorruptStateError,
    DeposedError,
    OperationFailedError,
    TimedOutError,
    UnavailableError,
)


@pytest.mark.needs("migrate")
def test_live_migration(world: World) -> None:
    boot_up(world)
    steps: list[tuple[int, int]] = []
    world.hypervisor.migrate(VM, A, B, timeout_s=60, progress=lambda *step: steps.append(step))
    assert power(world, A) is None
    assert power(world, B) is VMPower.RUNNING
    assert steps and all(0 <= done <= total for done, total in steps)
    world.hypervisor.migrate(VM, A, B, timeout_s=60)
    assert power(world, B) is VMPower.RUNNING
    world.hypervisor.migrate(VM, B, A, timeout_s=60)
    assert (power(world, A), power(world, B)) == (VMPower.RUNNING, None)


@pytest.mark.needs("migrate", "suspend")
def test_a_deposed_engine_creates_nothing(world: World) -> None:
    ours = spec(epoch=4)
    have_up(world)
    with world.turn(5):
        with pytest.raises(OperationFailedError, match=r"\(epoch 4\) is over"):
            world.hypervisor.migrate(VM, A, B, timeout_s=60, epoch=4)
        assert (power(world, A), power(world, B)) == (VMPower.RUNNING, None)
        world.hypervisor.migrate(VM, A, B, timeout_s=60, epoch=5)
        assert (power(world, A), power(world, B)) == (None, VMPower.RUNNING)
        state = world.state_path(VM)
        world.hypervisor.save(B, VM, state, timeout_s=60)
        with pytest.raises(OperationFailedError, match=r"\(epoch 4\) is over") as refused:
            world.hypervisor.restore(B, ours, state, timeout_s=60)
        assert not isinstance(refused.value, CorruptStateError), "what is refused is not lost"
        with pytest.raises(OperationFailedError, match=r"\(epoch 4\) is over"):
            world.hypervisor.boot(A, ours, timeout_s=60)
        assert (power(world, A), power(world, B)) == (None, None)
        world.hypervisor.restore(B, replace(ours, epoch=5), state, timeout_s=60)
        assert power(world, B) is VMPower.PAUSED


@pytest.mark.needs("migrate", "suspend")
def test_on_a_node_that_is_booted_anew_nothing_is_created_before_an_engine_has_shown_that_it_leads(
    world: World,
) -> None:
    """Neither has a memory: A knows the engine that acted there since its boot, and B nobody."""
    ours = spec(epoch=4)
    have_up(world)
    state = world.state_path(VM)
    with world.several_engines(4) as (engine, stranger):
        engine.obey(A)
        with pytest.raises(OperationFailedError, match="no engine has shown"):
            world.hypervisor.migrate(VM, A, B, timeout_s=60, epoch=4)
        assert (power(world, A), power(world, B)) == (VMPower.RUNNING, None)
        with pytest.raises(DeposedError):
            stranger.obey(B)
        with pytest.raises(OperationFailedError, match="no engine has shown"):
            world.hypervisor.boot(B, spec("vjob9002-0", epoch=4), timeout_s=60)
        world.hypervisor.save(A, VM, state, timeout_s=60)
        world.boot_without_memory(A)
        with pytest.raises(OperationFailedError, match="no engine has shown") as refused:
            world.hypervisor.restore(A, ours, state, timeout_s=60)
        assert not isinstance(refused.value, CorruptStateError), "what is refused is not lost"
        with pytest.raises(DeposedError):
            stranger.drop_state(A, VM)
        engine.obey(A)
        world.hypervisor.restore(A, ours, state, timeout_s=60)
        world.hypervisor.unpause(A, VM, timeout_s=20)
        engine.obey(B)
        world.hypervisor.migrate(VM, A, B, timeout_s=60, epoch=4)
        assert (power(world, A), power(world, B)) == (None, VMPower.RUNNING)


@only_libvirt
def test_a_deposed_engine_reaches_no_vm_through_the_agents(world: World) -> None:
    """Its connections end soon, and it gets no new ones; the engine after it does all that it tried."""
    assert isinstance(world, LibvirtWorld)
    have_up(world)
    state = world.state_path(VM)

    def acts(platform: Platform) -> list[Callable[[], object]]:
        return [
            lambda: platform.unpause(A, VM, timeout_s=20),
            lambda: platform.pause(A, VM, timeout_s=20),
            lambda: platform.set_memory(A, VM, MEMORY_MIB - 8, timeout_s=20),
            lambda: platform.migrate(VM, A, B, timeout_s=20, epoch=4),
            lambda: platform.checkpoint(A, VM, f"{state}.checkpoint", timeout_s=20),
            lambda: platform.save(A, VM, state, timeout_s=20),
            lambda: platform.abort_job(A, VM),
            lambda: platform.stop(A, VM, timeout_s=20),
        ]

    with world.letting_through(), world.of_epoch(4) as (deposed, _), world.of_epoch(5) as (platform, agents):
        assert (list(deposed.list_vms(A)), list(deposed.list_vms(B))) == ([VM], [])
        kept = deposed._nodes.link(A)._current
        assert kept is not None and kept.usable()
        for node in (A, B):
            agents.obey(node)
        eventually(lambda: not kept.usable())
        for act in acts(deposed):
            with pytest.raises((DeposedError, UnavailableError)):
                act()
            assert (power(world, A), power(world, B)) == (VMPower.RUNNING, None)
        assert not world.exists(A, state)
        with pytest.raises(DeposedError, match=r"turn of this engine \(epoch 4\) is over"):
            deposed.list_vms(A)
        platform.pause(A, VM, timeout_s=20)
        assert power(world, A) is VMPower.PAUSED
        for act in acts(deposed)[:1]:
            with pytest.raises(DeposedError):
                act()
        assert power(world, A) is VMPower.PAUSED
        platform.unpause(A, VM, timeout_s=20)
        platform.migrate(VM, A, B, timeout_s=60, epoch=5)
        assert (power(world, A), power(world, B)) == (None, VMPower.RUNNING)
        platform.save(B, VM, state, timeout_s=60)
        platform.restore(B, spec(epoch=5), state, timeout_s=60)
        platform.stop(B, VM, timeout_s=20)
        assert power(world, B) is None


@pytest.mark.needs("migrate")
@pytest.mark.parametrize("fault", ["ended", "silenced"])
def test_migration_to_an_unreachable_node(world: World, fault: str) -> None:
    have_up(world)
    with getattr(world, fault)(B), at_most(SLACK_S), pytest.raises(UnavailableError):
        world.hypervisor.migrate(VM, A, B, timeout_s=60)
    assert power(world, A) is VMPower.RUNNING
    assert world.hypervisor.list_vms(B) == {}


@pytest.mark.needs("migrate")
def test_migration_past_its_time_is_aborted(world: World) -> None:
    big = spec("vjob9004-0", memory_mib=512)
    boot_up(world, A, big)
    with world.slow(A, big.name), at_most(SLACK_S), pytest.raises(TimedOutError):
        world.hypervisor.migrate(big.name, A, B, timeout_s=0.1)
    info = world.hypervisor.list_vms(A)[big.name]
    assert (info.power, info.job_running) == (VMPower.RUNNING, False)
    eventually(lambda: world.hypervisor.list_vms(B) == {})


@pytest.mark.needs("migrate")
@only_libvirt
def test_a_migrated_vm_stands_still_until_nothing_of_it_is_left_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(world, LibvirtWorld)
    boot(world)
    seen: list[tuple[VMPower | None, VMPower | None]] = []
    vms = world.hypervisor._vms
    unpause = vms.unpause

    def look_first(node: str, name: str, timeout_s: float) -> None:
        seen.append((power(world, A), power(world, B)))
        unpause(node, name, timeout_s)

    monkeypatch.setattr(vms, "unpause", look_first)
    world.hypervisor.migrate(VM, A, B, timeout_s=60)
    assert seen == [(None, VMPower.PAUSED)]
    assert (power(world, A), power(world, B)) == (None, VMPower.RUNNING)


@pytest.mark.needs("migrate")
@only_libvirt
def test_a_vm_that_ends_as_soon_as_it_runs_on_its_new_node_has_been_migrated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(world, LibvirtWorld)
    boot(world)
    nodes, find = world.hypervisor._nodes, world.hypervisor._nodes.find

    def end_there(node: str, name: str) -> VMPower | None:
        found = find(node, name)
        return VMPower.ENDING if node == B and found is VMPower.RUNNING else found

    monkeypatch.setattr(nodes, "find", end_there)
    world.hypervisor.migrate(VM, A, B, timeout_s=60)
    assert (power(world, A), power(world, B)) == (None, VMPower.RUNNING)


# VMs that write.


@pytest.mark.needs("migrate")
@pytest.mark.parametrize("converge", ["auto-converge", "post-copy", "abort"])
def test_migration_of_a_vm_that_writes_faster_than_can_be_sent(world: World, converge: Converge) -> None:
    vm = have_writer(world)
    with world.writing(A, vm.name, converge) as enough_s:
        if converge != "abort":
            world.hypervisor.migrate(vm.name, A, B, timeout_s=20 * enough_s)
            # An old QEMU may have damaged an emulated guest, which ends itself then: docs/decisions/0036.
            assert power(world, B, vm.name) in (VMPower.RUNNING, VMPower.ENDING)
            assert power(world, A, vm.name) is None
            return
        with at_most(enough_s + SLACK_S), pytest.raises(TimedOutError):
            world.hypervisor.migrate(vm.name, A, B, timeout_s=enough_s)
    info = world.hypervisor.list_vms(A)[vm.name]
    assert (info.power, info.job_running) == (VMPower.RUNNING, False)
    eventually(lambda: world.hypervisor.list_vms(B) == {})


@pytest.mark.needs("migrate")
def test_an_emulated_vm_that_writes_arrives_for_it_stands_still_meanwhile(world: World) -> None:
    if not isinstance(world, LibvirtWorld):
        pytest.skip("nothing is emulated there")
    vm = have_writer(world)
    with world.writing(A, vm.name, "abort") as enough_s:
        migrations = world.hypervisor._migrations
        migrations.manner = replace(migrations.manner, emulated="paused")
        world.hypervisor.migrate(vm.name, A, B, timeout_s=20 * enough_s)
    assert (power(world, A, vm.name), power(world, B, vm.name)) == (None, VMPower.RUNNING)


@pytest.mark.needs("migrate", "suspend")
def test_post_copy_that_breaks_off_leaves_half_a_vm_that_can_only_be_ended(world: World) -> None:
    vm = have_writer(world)
    failures: list[Exception] = []

    def migrate() -> None:
        try:
            world.hypervisor.migrate(vm.name, A, B, timeout_s=120)
        except Exception as error:
            failures.append(error)

    with world.writing(A, vm.name, "post-copy", at_once=True):
        thread = threading.Thread(target=migrate)
        thread.start()
        eventually(lambda: power(world, B, vm.name) is VMPower.RUNNING)
        world.hypervisor.abort_job(A, vm.name)  # it is too late for that
        world.hypervisor.stop(B, vm.name, timeout_s=20)
        thread.join(PATIENCE_S)
    assert [type(error) for error in failures] == [OperationFailedError]
    info = world.hypervisor.list_vms(A)[vm.name]
    assert (info.power, info.job_running) == (VMPower.HALF, False)
    calls: list[Callable[[], object]] = [
        lambda: world.hypervisor.unpause(A, vm.name, timeout_s=20),
        lambda: world.hypervisor.save(A, vm.name, world.state_path(vm.name), timeout_s=20),
        lambda: world.hypervisor.migrate(vm.name, A, B, timeout_s=20),
    ]
    for call in calls:
        with pytest.raises(OperationFailedError):
            call()
    world.hypervisor.stop(A, vm.name, timeout_s=20)
    assert not world.hypervisor.has_vm(A, vm.name)


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1600)
@the_other_half
def test_on_libvirt(request: pytest.FixtureRequest) -> None:
    run_on_libvirt(request, __file__)
