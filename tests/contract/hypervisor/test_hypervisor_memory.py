"""The contract of hypervisors: balloons, and bounds of what the VMs of a node take together."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.steps import (
    boot,
    boot_hungry,
    boot_up,
    have_hungry,
    hungry,
    left_mib,
    power,
    run_on_libvirt,
    run_on_podman,
    saved,
    the_other_half,
)
from contract.hypervisor.worlds import (
    FREES,
    GROUPS,
    HUNGRY_MIB,
    HUNGRY_NEEDS_MIB,
    KERNEL,
    TICKS,
    A,
    B,
    SimulatedWorld,
    World,
    eventually,
    only_libvirt,
    spec,
)

from rmsplugin.adapters.platform.base import KernelImage, VMPower, VMSpec
from rmsplugin.errors import (
    OperationFailedError,
    TimedOutError,
)

# Balloons, and bounds of one VM.


@pytest.mark.needs("resize")
def test_a_vm_does_with_less_memory_and_has_it_back(world: World) -> None:
    vm = have_hungry(world)
    world.hypervisor.set_memory(A, vm.name, 128, timeout_s=20)
    world.hypervisor.set_memory(A, vm.name, 128, timeout_s=20)
    eventually(lambda: left_mib(world, vm) == 128)
    world.hypervisor.set_memory(A, vm.name, 10 * HUNGRY_MIB, timeout_s=20)
    eventually(lambda: left_mib(world, vm) == HUNGRY_MIB)


@pytest.mark.needs("balloons")
def test_a_guest_that_needs_more_than_its_balloon_leaves_has_it_and_kills_nothing(world: World) -> None:
    vm = have_hungry(world)
    world.hypervisor.set_memory(A, vm.name, HUNGRY_NEEDS_MIB // 2, timeout_s=20)
    eventually(lambda: left_mib(world, vm) <= HUNGRY_NEEDS_MIB)
    assert left_mib(world, vm) > HUNGRY_NEEDS_MIB // 2, "what it needs was taken from it"
    world.hunger(A, vm.name)
    eventually(lambda: world.ate(A, vm.name))
    eventually(lambda: left_mib(world, vm) > 180)


@pytest.mark.needs("migrate", "suspend", "balloons")
def test_what_a_balloon_took_stays_taken_in_saved_states_and_on_other_nodes(world: World) -> None:
    vm = have_hungry(world)
    world.hypervisor.set_memory(A, vm.name, 128, timeout_s=20)
    eventually(lambda: left_mib(world, vm) == 128)
    saved(world, A, vm.name)
    world.hypervisor.restore(A, vm, world.state_path(vm.name), timeout_s=60)
    assert left_mib(world, vm) == 128
    world.hypervisor.unpause(A, vm.name, timeout_s=20)
    world.hypervisor.migrate(vm.name, A, B, timeout_s=60)
    assert left_mib(world, vm, B) == 128
    world.hypervisor.set_memory(B, vm.name, HUNGRY_MIB, timeout_s=20)
    eventually(lambda: left_mib(world, vm, B) == HUNGRY_MIB)


@pytest.mark.needs("resize")
def test_a_vm_has_all_its_memory_when_it_boots_again(world: World) -> None:
    vm = boot_hungry(world)
    world.hypervisor.set_memory(A, vm.name, 128, timeout_s=20)
    world.hypervisor.stop(A, vm.name, timeout_s=20)
    boot(world, A, vm)
    assert left_mib(world, vm) == HUNGRY_MIB


@pytest.mark.needs("resize")
def test_no_memory_is_taken_from_a_vm_while_it_is_saved(world: World) -> None:
    big = spec("vjob9003-0", memory_mib=512)
    boot_up(world, A, big)
    with world.slow_save(A, big.name), ThreadPoolExecutor(1) as pool:
        save = pool.submit(world.hypervisor.save, A, big.name, world.state_path(big.name) + ".partial", timeout_s=60)
        eventually(lambda: world.hypervisor.list_vms(A)[big.name].job_running)
        with pytest.raises(TimedOutError):
            world.hypervisor.set_memory(A, big.name, 128, timeout_s=0.3)
        save.result()


@only_libvirt
def test_memory_that_a_guest_frees_goes_back_to_the_host(world: World) -> None:
    image = KernelImage(*KERNEL, FREES)
    vm = spec("vjob9010-0", memory_mib=256, image=image)
    boot(world, A, vm)
    taken = 0

    def held_mib() -> int:
        nonlocal taken
        held_kib = world.hypervisor.statistics(A)[vm.name].memory_rss_kib
        held = taken if held_kib is None else held_kib // 1024
        taken = max(taken, held)
        return held

    eventually(lambda: held_mib() < taken - 50)


@pytest.mark.needs("suspend", "balloons")
@only_libvirt
def test_a_balloon_of_an_older_release_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmsplugin.adapters.platform.libvirt import platform

    new_xml = platform.domain_xml
    monkeypatch.setattr(platform, "domain_xml", lambda *of: new_xml(*of).replace(' autodeflate="on"', ""))
    vm = boot_hungry(world)
    world.hypervisor.set_memory(A, vm.name, 128, timeout_s=20)
    saved(world, A, vm.name)
    world.hypervisor.restore(A, vm, world.state_path(vm.name), timeout_s=60)
    world.hypervisor.unpause(A, vm.name, timeout_s=20)
    world.hypervisor.set_memory(A, vm.name, 128, timeout_s=20)
    time.sleep(3)
    assert left_mib(world, vm) == HUNGRY_MIB


# Bounds.


STEP_MIB = 64


def bounded(world: World, node: str, mib: int = 4 * 1024) -> None:
    """Bound the node, or skip the test if its host has no control groups."""
    report = world.nodes.bound_memory(node, mib)
    if not report.bounded:
        pytest.skip(report.why)


def calm(world: World) -> VMSpec:
    """A bounded VM that takes very little more once it is up."""
    vm = spec("vjob9012-0", memory_mib=HUNGRY_MIB, bounded=True)
    if isinstance(world, SimulatedWorld):
        world.hypervisor.set_working_set(vm.name, 50)
        world.hypervisor.set_cache(vm.name, 0)
        return vm
    assert isinstance(vm.image, KernelImage)
    return replace(vm, image=replace(vm.image, cmdline=TICKS))


def settled_mib(world: World, node: str) -> int:
    """What the VMs of the node take when that has not changed for a while."""
    seen = [0]

    def is_settled() -> bool:
        time.sleep(0.5)
        report = world.nodes.bound_memory(node, 0)
        assert report.used_mib is not None
        seen.append(report.used_mib)
        return len(seen) > 6 and max(seen[-6:]) - min(seen[-6:]) < 3

    eventually(is_settled)
    return seen[-1]


@pytest.mark.needs("suspend", "balloons")
def test_a_vm_that_takes_all_that_its_node_has_takes_nothing_from_others_and_can_be_saved(world: World) -> None:
    bounded(world, A)
    others, eater = calm(world), replace(hungry(world), bounded=True)
    if isinstance(world, SimulatedWorld):
        world.hypervisor.set_cache(eater.name, 0)
    for vm in (others, eater):
        boot(world, A, vm)
        eventually(lambda vm=vm: world.hypervisor.statistics(A)[vm.name].memory_usable_kib is not None)
    used_mib = settled_mib(world, A)
    bound_mib = used_mib + 40
    assert world.nodes.bound_memory(A, bound_mib).limit_mib == bound_mib
    with pytest.raises(OperationFailedError):
        world.nodes.bound_memory(A, used_mib // 2)
    assert world.nodes.bound_memory(A, 0).limit_mib == bound_mib
    world.hypervisor.set_memory(A, eater.name, HUNGRY_NEEDS_MIB // 2, timeout_s=20)
    world.hunger(A, eater.name)

    def is_waited_for() -> bool:
        report = world.nodes.bound_memory(A, bound_mib)
        assert report.used_mib is not None and report.used_mib <= bound_mib
        return report.waits

    eventually(is_waited_for)
    ticks = world.ticks(A, others.name)
    eventually(lambda: world.ticks(A, others.name) >= ticks + 6)  # who takes hardly more is not held up
    if isinstance(world, LibvirtWorld):
        left_to_others_mib = bound_mib - (world.nodes.bound_memory(A, 0).used_mib or 0)
        assert left_to_others_mib >= 8, "the others have nothing left to take"
    world.nodes.bound_memory(A, bound_mib + STEP_MIB)
    saved(world, A, eater.name)
    assert not world.nodes.bound_memory(A, bound_mib).waits
    assert power(world, A, others.name) is VMPower.RUNNING


@pytest.mark.needs("migrate", "suspend")
@pytest.mark.parametrize("first", [A, B])
def test_bounded_vms_start_and_move_where_there_is_a_bound_and_where_there_is_none(world: World, first: str) -> None:
    second = B if first == A else A
    bounded(world, A)
    without_group(world, B)
    vm = spec(bounded=True)
    boot(world, first, vm)
    assert in_group(world, vm.name) == {A} & {first}
    world.hypervisor.migrate(vm.name, first, second, timeout_s=60)
    assert in_group(world, vm.name) == {A} & {second}
    world.nodes.send(second, first, vm.name, saved(world, second, vm.name), timeout_s=60)
    for node in (first, second):
        world.hypervisor.restore(node, vm, world.state_path(vm.name), timeout_s=60)
        assert in_group(world, vm.name) == {A} & {node}
        world.hypervisor.stop(node, vm.name, timeout_s=20)


def without_group(world: World, node: str) -> None:
    """The node has a memory controller, and no group."""
    if isinstance(world, SimulatedWorld):
        world.nodes.bounds.lose(node)
        return
    assert isinstance(world, LibvirtWorld)
    assert world.on(node, "sh", "-c", f"rmdir {GROUPS}/rmsplugin.partition 2>/dev/null; true").returncode == 0


def in_group(world: World, vm: str) -> set[str]:
    """The nodes where the VM is in the bounded group."""
    if isinstance(world, SimulatedWorld):
        return {node for node in world.nodes.bounds.set if vm in world.hypervisor.list_vms(node)}
    assert isinstance(world, LibvirtWorld)
    return {node for node in (A, B) if vm in world.on(node, "ls", f"{GROUPS}/rmsplugin.partition").stdout}


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(1600)
@the_other_half
def test_on_libvirt(request: pytest.FixtureRequest) -> None:
    run_on_libvirt(request, __file__)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1600)
@the_other_half
def test_on_podman(request: pytest.FixtureRequest) -> None:
    run_on_podman(request, __file__)
