"""What many tests of the contract of hypervisors do: boot, save, wait."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contract import in_head
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.worlds import (
    HUNGRY,
    HUNGRY_MIB,
    HUNGRY_NEEDS_MIB,
    INSIDE,
    KERNEL,
    VM,
    WRITES,
    A,
    B,
    SimulatedWorld,
    World,
    eventually,
    spec,
)

from rmsplugin.adapters.nodes.base import Digest
from rmsplugin.adapters.platform.base import KernelImage, VMPower, VMSpec
from rmsplugin.errors import (
    NoSpaceError,
    UnavailableError,
)


def boot(world: World, node: str = A, vm: VMSpec | None = None) -> None:
    vm = vm or spec()
    for each in (A, B):
        world.nodes.put_config(each, vm.name, world.config(vm))
    world.hypervisor.boot(node, vm, timeout_s=30)


def boot_up(world: World, node: str = A, vm: VMSpec | None = None) -> None:
    """Boot, and wait for the guest's init: only then has the VM memory of some size."""
    boot(world, node, vm)
    eventually(lambda: world.up(node, (vm or spec()).name))


def have_up(world: World, vm: VMSpec | None = None, is_up: Callable[[], bool] | None = None) -> None:
    """Have a VM up on A, as fast as the world can have it.

    What is tested of VMs that have booted, and of their boots, is tested with ``boot`` and ``boot_up``.
    """
    vm = vm or spec()
    if is_up is not None and isinstance(world, LibvirtWorld):
        world.have_up_when(vm, is_up)
    else:
        world.have_up(vm)


def power(world: World, node: str, name: str = VM) -> VMPower | None:
    info = world.hypervisor.list_vms(node).get(name)
    return info.power if info else None


def saved(world: World, node: str = A, name: str = VM) -> Digest:
    """Suspend the VM as the engine does: save and seal."""
    world.hypervisor.save(node, name, world.state_path(name) + ".partial", timeout_s=60)
    return world.nodes.seal(node, name)


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds


def checkpoint(world: World, number: int, node: str = A, name: str = VM) -> Digest:
    """Make a checkpoint as the engine does: save and seal."""
    world.hypervisor.checkpoint(node, name, checkpoint_path(world, number, name) + ".partial", timeout_s=60)
    return world.nodes.seal(node, name, checkpoint=number)


def checkpoint_path(world: World, number: int, name: str = VM) -> str:
    return world.state_path(name).replace(name, f"checkpoint-{number}.{name}")


def no_whole_state(world: World, name: str = VM, checkpoint: int = 0) -> bool:
    left = world.nodes.stat(A, name, checkpoint=checkpoint).partial
    return left is None or not left.complete


def finds_no_space(world: World, save: Callable[[], None], checkpoint: int = 0) -> None:
    """Save the VM where it does not fit. libvirtd of 9.0 rarely crashes at it: see decision 0016.

    Nobody can say then what became of the save, until libvirtd is there again.
    """
    before = world.starts_of_libvirtd(A) if isinstance(world, LibvirtWorld) else 0
    with world.leave_room(A, 8):
        with pytest.raises((NoSpaceError, UnavailableError)) as failure:
            save()
        if failure.type is UnavailableError:
            assert isinstance(world, LibvirtWorld)
            assert world.starts_of_libvirtd(A) > before, str(failure.value)
            eventually(lambda: power(world, A) is not None)
        assert no_whole_state(world, checkpoint=checkpoint)


def hungry(world: World) -> VMSpec:
    """A VM with much memory to spare, for the time being."""
    vm = spec("vjob9011-0", memory_mib=HUNGRY_MIB)
    if isinstance(world, SimulatedWorld):
        world.hypervisor.set_working_set(vm.name, HUNGRY_NEEDS_MIB)
        return vm
    return replace(vm, image=replace(vm.image, cmdline=HUNGRY)) if isinstance(vm.image, KernelImage) else vm


def boot_hungry(world: World) -> VMSpec:
    """Boot such a VM, and wait until its balloon's driver speaks."""
    vm = hungry(world)
    boot(world, A, vm)
    eventually(lambda: world.hypervisor.statistics(A)[vm.name].memory_usable_kib is not None)
    return vm


def have_hungry(world: World) -> VMSpec:
    """Have such a VM up on A, and its balloon's driver speak."""
    vm = hungry(world)

    def speaks() -> bool:
        return world.hypervisor.statistics(A)[vm.name].memory_usable_kib is not None

    have_up(world, vm, speaks)
    eventually(speaks)
    return vm


def left_mib(world: World, vm: VMSpec, node: str = A) -> int:
    """The memory that the VM may have: what its balloon leaves to it, or its bound."""
    left_kib = world.hypervisor.statistics(node)[vm.name].memory_current_kib
    assert left_kib is not None
    return left_kib // 1024


def have_writer(world: World) -> VMSpec:
    """Have a VM up on A that writes its memory over and over."""
    vm = spec("vjob9007-0", memory_mib=128, image=KernelImage(*KERNEL, WRITES))
    have_up(world, vm, lambda: world.up(A, vm.name))
    return vm


the_other_half = pytest.mark.skipif(bool(INSIDE), reason="this is the inside")


def run_on_libvirt(request: pytest.FixtureRequest, file: str) -> None:
    """Run a file of tests again in the head of a minicluster."""
    _run_on(request.getfixturevalue("minicluster"), file, "libvirt")


def run_on_podman(request: pytest.FixtureRequest, file: str) -> None:
    """Run a file of tests again in the head of a minicluster with containers."""
    _run_on(request.getfixturevalue("minicluster_of_containers"), file, "podman")


def _run_on(directory: Path, file: str, platform: str) -> None:
    done = in_head.run_pytest(directory, ["--durations=8", file], timeout_s=1500)
    print(done.stdout)
    assert done.returncode == 0, f"the contract is broken on {platform}, see above"
