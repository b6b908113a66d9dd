"""The contract of platforms that bound VMs: one that runs is resized, and has its size wherever it is restored."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from contract.hypervisor.steps import boot, left_mib, power, run_on_podman, saved, the_other_half
from contract.hypervisor.worlds import VM, A, B, World, eventually, spec

from rmsplugin.adapters.guests.used import Used
from rmsplugin.adapters.platform.base import VMPower, VMSpec
from rmsplugin.errors import NotFoundError, OperationFailedError, TimedOutError

pytestmark = pytest.mark.needs("bounds")

_CPUS, _MIB, _USES_MIB = 2, 256, 100


def have_sized(world: World) -> VMSpec:
    """Have a VM on A that uses some of its memory, and all the CPUs that it is let."""
    vm = spec(cpus=_CPUS, memory_mib=_MIB)
    boot(world, A, vm)
    world.use(A, VM, _USES_MIB, _CPUS)
    return vm


def cpus(world: World, node: str = A) -> int | None:
    """The CPUs that the VM may use."""
    return world.hypervisor.statistics(node)[VM].cpus


def cpu_s(world: World) -> float:
    """The CPU time of the VM."""
    used_ns = world.hypervisor.statistics(A)[VM].cpu_time_ns
    assert used_ns is not None
    return used_ns / 1e9


def test_a_vm_uses_no_more_cpus_than_it_is_let_and_has_them_back(world: World) -> None:
    have_sized(world)
    assert cpus(world) == _CPUS
    for _ in range(2):
        world.hypervisor.set_cpus(A, VM, 1, timeout_s=20)
    assert cpus(world) == 1
    began, used_s = time.monotonic(), cpu_s(world)
    eventually(lambda: cpu_s(world) > used_s + 1.0)
    assert cpu_s(world) - used_s <= 1.3 * (time.monotonic() - began)
    world.hypervisor.set_cpus(A, VM, 99, timeout_s=20)
    assert cpus(world) == _CPUS


def test_a_vm_that_uses_more_memory_goes_on_with_what_it_has(world: World) -> None:
    vm = have_sized(world)
    with pytest.raises(OperationFailedError, match="uses more memory"):
        world.hypervisor.set_memory(A, VM, _USES_MIB // 2, timeout_s=20)
    assert left_mib(world, vm) == _MIB
    world.hypervisor.set_memory(A, VM, _USES_MIB + 50, timeout_s=20)
    with pytest.raises(OperationFailedError, match="uses more memory"):
        world.hypervisor.set_memory(A, VM, _USES_MIB // 2, timeout_s=20)
    assert left_mib(world, vm) == _USES_MIB + 50
    assert power(world, A) is VMPower.RUNNING
    assert world.uses(A, VM), "a process of it was ended"


@pytest.mark.parametrize("node", [A, B])
def test_a_vm_has_its_size_where_it_is_restored(world: World, node: str) -> None:
    vm = have_sized(world)
    small = replace(vm, resized_cpus=1, resized_memory_mib=_USES_MIB + 50)
    world.hypervisor.set_memory(A, VM, small.resized_memory_mib, timeout_s=20)
    world.hypervisor.set_cpus(A, VM, 1, timeout_s=20)
    digest = saved(world)
    if node != A:
        world.nodes.send(A, node, VM, digest, timeout_s=60)
    for wanted, size in ((small, (1, _USES_MIB + 50)), (vm, (_CPUS, _MIB))):
        world.hypervisor.restore(node, wanted, world.state_path(VM), timeout_s=60)
        assert power(world, node) is VMPower.PAUSED
        assert (cpus(world, node), left_mib(world, vm, node)) == size
        assert world.uses(node, VM)
        world.hypervisor.stop(node, VM, timeout_s=20)


def test_a_state_that_uses_more_than_the_size_is_restored_all_the_same(world: World) -> None:
    """As after a return to a checkpoint of the time before."""
    vm = have_sized(world)
    saved(world)
    small = replace(vm, resized_memory_mib=_USES_MIB // 2)
    world.hypervisor.restore(A, small, world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    assert left_mib(world, vm) >= _USES_MIB
    assert world.uses(A, VM), "a process of it was ended"


def test_what_a_vm_uses_is_counted(world: World) -> None:
    have_sized(world)
    eventually(lambda: used(world).cpu_us > 1_000_000)
    assert used(world).memory_bytes >= _USES_MIB << 20
    assert used(world).peak_bytes >= used(world).memory_bytes
    with pytest.raises(NotFoundError):
        world.hypervisor.used(A, "vjob9009-0")


def used(world: World) -> Used:
    found = world.hypervisor.used(A, VM)
    assert found is not None
    return found


def test_a_vm_that_stands_still_is_resized(world: World) -> None:
    vm = have_sized(world)
    world.hypervisor.pause(A, VM, timeout_s=20)
    world.hypervisor.set_memory(A, VM, _USES_MIB + 50, timeout_s=20)
    world.hypervisor.set_cpus(A, VM, 1, timeout_s=20)
    assert power(world, A) is VMPower.PAUSED
    assert (cpus(world), left_mib(world, vm)) == (1, _USES_MIB + 50)


def test_nothing_is_resized_that_is_being_saved_or_not_there(world: World) -> None:
    have_sized(world)
    with world.slow_save(A, VM), ThreadPoolExecutor(1) as pool:
        save = pool.submit(world.hypervisor.save, A, VM, world.state_path(VM) + ".partial", timeout_s=60)
        eventually(lambda: world.hypervisor.list_vms(A)[VM].job_running)
        with pytest.raises(TimedOutError):
            world.hypervisor.set_cpus(A, VM, 1, timeout_s=0.3)
        save.result()
    for call in (world.hypervisor.set_cpus, world.hypervisor.set_memory):
        with pytest.raises(NotFoundError):
            call(A, VM, 100, timeout_s=20)


# The other half.


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1600)
@the_other_half
def test_on_podman(request: pytest.FixtureRequest) -> None:
    run_on_podman(request, __file__)
