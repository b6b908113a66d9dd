"""The two nodes on which the contract of hypervisors is tested, their VMs, and the simulated kind of them."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from contract import in_head
from minicluster_lib.layout import Cluster as Layout
from minicluster_lib.podman import reference
from minicluster_lib.settings_file import CMDLINE
from patience import PATIENCE_S

from rmsplugin.adapters.nodes.base import Nodes
from rmsplugin.adapters.platform.base import ContainerImage, Converge, KernelImage, Platform, VMSpec
from rmsplugin.adapters.simulated.hypervisor.files import SimulatedFiles, SimulatedState
from rmsplugin.adapters.simulated.hypervisor.hypervisor import SimulatedHypervisor
from rmsplugin.adapters.simulated.nodes.agents import SimulatedNodes
from rmsplugin.errors import (
    DeposedError,
    UnavailableError,
)
from rmsplugin.model.capabilities import EVERYTHING, Capabilities

A, B = "n1", "n2"
VM = "vjob9001-0"
MACHINE = "pc-q35-7.2"
#: With 96 MiB three boots in a hundred end in a panic of the kernel, "System is deadlocked on memory", and the VM too.
MEMORY_MIB = 112
INSIDE = os.environ.get(in_head.VARIABLE)
CLUSTER = Layout.load(Path(INSIDE)) if INSIDE else None
#: Whether this is the inside of a minicluster with containers.
IN_CONTAINERS = CLUSTER is not None and CLUSTER.podman
#: What emulated kernels of all these guests leave undone.
SOONER = f"{CMDLINE} "
KERNEL = ("/var/lib/rmsplugin-images/vmlinux", "/var/lib/rmsplugin-images/initrd.img")
#: A usual guest, and what all that are waited for say first.
UP = "as init process"
READY = "rmsplugin-guest: ready"
USUAL = f'{SOONER}rdinit=/bin/sh -- -c "echo {UP}; exec /init"'
#: A guest that takes 80 MiB of memory, and soon frees them; its drivers are those of a usual one.
FREES = (
    f'{SOONER}rdinit=/bin/sh -- -c "mount -t proc proc /proc; cd /lib/modules/*; '
    "while read i; do insmod $i; done <boot.list; "
    f'cat {"/bin/busybox " * 40} >/x; sleep 5; rm /x; while :; do sleep 9; done"'
)
#: A guest of 256 MiB that has more than half of them free. When less than 10 MiB are left to it, it takes some 120 MiB,
#: and says so when it has them.
HUNGRY_MIB = 256
HUNGRY_NEEDS_MIB = 100
HUNGRY = (
    f'{SOONER}rdinit=/bin/sh -- -c "mount -t proc proc /proc; cd /lib/modules/*; '
    "while read i; do insmod $i; done <boot.list; "
    "mkdir /x; mount -t tmpfs -o size=90% x /x; "
    "until grep -q 'MemAvailable: *.\\{1,4\\} kB' /proc/meminfo; do sleep 1; done; "
    f'cat {"/bin/busybox " * 60} >/x/y && echo ate all; while :; do sleep 9; done"'
)
#: A guest that never has nothing to do.
COMPUTES = f'{SOONER}rdinit=/bin/sh -- -c "while :; do :; done"'
#: A guest that says twice a second that it runs, and takes 64 KiB more each time.
TICKS = (
    f'{SOONER}rdinit=/bin/sh -- -c "mount -t proc proc /proc; cd /lib/modules/*; '
    "while read i; do insmod $i; done <boot.list; "
    'n=0; while dd if=/bin/busybox of=/$n bs=64k count=1 2>/x; do n=$((n+1)); echo tick; usleep 500000; done"'
)
#: A guest that writes some 10 MiB of its memory, over and over.
WRITES = f'{SOONER}rdinit=/bin/sh -- -c "echo {UP}; while :; do cat {"/bin/busybox " * 5} >/x; done"'
#: No call may keep its caller much longer than it was told to, whatever the other side does.
SLACK_S = PATIENCE_S / 2
GROUPS = "/sys/fs/cgroup/memory"
#: Whether QEMU that does not run as root can fetch the memory of a VM that runs already.
USERFAULTFD = Path("/proc/sys/vm/unprivileged_userfaultfd")


def _image() -> KernelImage | ContainerImage:
    if CLUSTER is not None and CLUSTER.podman:
        return ContainerImage(reference(CLUSTER))
    return KernelImage(*KERNEL, USUAL)


def spec(name: str = VM, **changes: object) -> VMSpec:
    job, index = name.removeprefix("vjob").split("-")
    values: dict[str, object] = {
        "name": name,
        "uuid": f"00000000-0000-4000-8000-{int(job) * 100 + int(index):012x}",
        "cpus": 1,
        "memory_mib": MEMORY_MIB,
        "mac": f"52:54:00:{int(job) >> 8 & 255:02x}:{int(job) & 255:02x}:{int(index):02x}",
        "bridge": "br0",
        "image": _image(),
        "address": f"10.77.{100 + (int(job) & 63)}.{int(index) + 1}" if IN_CONTAINERS else "",
        "config_path": f"/var/lib/rmsplugin/vm/{name}.config",
        "console_log": f"/var/lib/rmsplugin/vm/{name}.console",
    }
    return VMSpec(**{**values, **changes})  # type: ignore[arg-type]


@contextlib.contextmanager
def deposed() -> Iterator[float | None]:
    """The permit of an engine whose lease has ended."""
    raise DeposedError("its lease has ended")
    yield None


class World(Protocol):
    """Two nodes, and what tests do to them behind the hypervisor's back."""

    hypervisor: Platform
    nodes: Nodes

    def turn(self, epoch: int) -> contextlib.AbstractContextManager[None]:
        """An engine of this epoch has acted on both nodes; afterwards they know of none."""
        ...

    def several_engines(self, epoch: int) -> contextlib.AbstractContextManager[tuple[Nodes, Nodes]]:
        """Both nodes know of several engines, and are booted anew; the agents of one that leads, and of a deposed one.

        ``epoch``: of both.
        """
        ...

    def boot_without_memory(self, node: str) -> None:
        """Have the node forget all engines."""
        ...

    def config(self, vm: VMSpec) -> bytes:
        """What the VM is told, which nobody is to see."""
        ...

    def have_up(self, vm: VMSpec) -> None:
        """Have a VM up on A."""
        ...

    def state_path(self, vm: str) -> str: ...

    def exists(self, node: str, path: str) -> bool: ...

    def damage(self, node: str, path: str, how: str) -> None: ...

    def leave_room(self, node: str, mib: int) -> contextlib.AbstractContextManager[None]: ...

    def silenced(self, node: str) -> contextlib.AbstractContextManager[None]: ...

    def ended(self, node: str) -> contextlib.AbstractContextManager[None]: ...

    def kill(self, node: str, vm: str) -> None: ...

    def up(self, node: str, vm: str) -> bool: ...

    def fate(self, node: str, vm: str) -> str: ...

    def hunger(self, node: str, vm: str) -> None: ...

    def ate(self, node: str, vm: str) -> bool: ...

    def use(self, node: str, vm: str, mib: int, cpus: int) -> None:
        """Have the VM use so much memory, and as many CPUs as it is let, up to so many."""
        ...

    def uses(self, node: str, vm: str) -> bool:
        """Whether it still does, as far as it goes on."""
        ...

    def ticks(self, node: str, vm: str) -> int: ...

    def slow(self, node: str, vm: str) -> contextlib.AbstractContextManager[None]: ...

    def slow_save(self, node: str, vm: str) -> contextlib.AbstractContextManager[None]: ...

    def writing(
        self, node: str, vm: str, converge: Converge, *, at_once: bool = False
    ) -> contextlib.AbstractContextManager[float]: ...


#: What VMs are told, which nobody is to see.
CONFIG = b"key=value\n"
#: The name of a VM that is nowhere.
NOBODY = "vjob9999-0"


def set_up_stores(nodes: Nodes) -> None:
    """As the engine does at their first use."""
    for node in (A, B):
        nodes.init_store(node, uuid.uuid4().hex)


class SimulatedWorld:
    def __init__(self, can: Capabilities = EVERYTHING) -> None:
        self.files = SimulatedFiles()
        self.durations_s: dict[str, float] = {}
        self.hypervisor = SimulatedHypervisor(
            {A: (2, 2048), B: (2, 2048)},
            clock=time.monotonic,
            sleep=time.sleep,
            durations_s=self.durations_s,
            files=self.files,
            capabilities=can,
        )
        self.nodes = SimulatedNodes(self.files, machines=self.hypervisor.machines)
        set_up_stores(self.nodes)

    @contextlib.contextmanager
    def turn(self, epoch: int) -> Iterator[None]:
        for node in (A, B):
            self.nodes.of_epoch(epoch).drop_config(node, NOBODY)
        yield
        self.hypervisor.machines.epochs.clear()

    @contextlib.contextmanager
    def several_engines(self, epoch: int) -> Iterator[tuple[Nodes, Nodes]]:
        machines = self.hypervisor.machines
        machines.owned = set()
        yield self.nodes.of_epoch(epoch), self.nodes.of_epoch(epoch, deposed)
        machines.owned = None
        machines.epochs.clear()

    def boot_without_memory(self, node: str) -> None:
        self.hypervisor.machines.boot_anew(node)

    def config(self, vm: VMSpec) -> bytes:
        return CONFIG

    def have_up(self, vm: VMSpec) -> None:
        for node in (A, B):
            self.nodes.put_config(node, vm.name, CONFIG)
        self.hypervisor.boot(A, vm, timeout_s=30)

    def state_path(self, vm: str) -> str:
        return f"/store/{vm}.state"

    def exists(self, node: str, path: str) -> bool:
        return self.files.get(node, path) is not None

    def damage(self, node: str, path: str, how: str) -> None:
        if how == "garbage":
            self.files.put(node, path, SimulatedState("", 1000, 1))
        else:
            self.files.damage(node, path)

    @contextlib.contextmanager
    def leave_room(self, node: str, mib: int) -> Iterator[None]:
        self.files.set_capacity(mib << 20)
        yield
        self.files.set_capacity(1 << 50)

    @contextlib.contextmanager
    def silenced(self, node: str) -> Iterator[None]:
        self.hypervisor.set_reachable(node, False)
        yield
        self.hypervisor.set_reachable(node, True)

    ended = silenced

    def kill(self, node: str, vm: str) -> None:
        """End the VM as nobody orders it."""
        self.hypervisor.kill_vm(vm)

    def up(self, node: str, vm: str) -> bool:
        return True

    def fate(self, node: str, vm: str) -> str:
        """What tells how the VM ended, where it is not there."""
        return "simulated"

    def hunger(self, node: str, vm: str) -> None:
        self.hypervisor.set_working_set(vm, HUNGRY_MIB - 10)

    def ate(self, node: str, vm: str) -> bool:
        return True

    def use(self, node: str, vm: str, mib: int, cpus: int) -> None:
        self.hypervisor.set_working_set(vm, mib)
        self.hypervisor.set_demand(vm, cpus)

    def uses(self, node: str, vm: str) -> bool:
        return vm in self.hypervisor.list_vms(node)

    def ticks(self, node: str, vm: str) -> int:
        return round(time.monotonic() * 2)

    @contextlib.contextmanager
    def slow(self, node: str, vm: str) -> Iterator[None]:
        self.durations_s.update(boot=1.0, save=1.0, checkpoint=1.0, restore=1.0, migrate=1.0)
        yield
        self.durations_s.clear()

    slow_save = slow

    @contextlib.contextmanager
    def writing(self, node: str, vm: str, converge: Converge, *, at_once: bool = False) -> Iterator[float]:
        self.hypervisor.converge = converge
        self.hypervisor.set_writing(vm, True)
        self.durations_s.update(migrate=0.5)
        yield 1.0


only_libvirt = pytest.mark.skipif(not INSIDE or IN_CONTAINERS, reason="about libvirt itself; runs in test_on_libvirt")
only_podman = pytest.mark.skipif(not IN_CONTAINERS, reason="about podman itself; runs in test_on_podman")
only_simulated = pytest.mark.skipif(bool(INSIDE), reason="needs nodes of two CPUs and guests that obey")


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(UnavailableError):
            if condition():
                return
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
