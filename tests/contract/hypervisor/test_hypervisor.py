"""The contract of hypervisors: boot, stop, observation, nodes that do not answer."""

from __future__ import annotations

import contextlib
import pwd
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.on_podman import PodmanWorld
from contract.hypervisor.steps import (
    at_most,
    boot,
    boot_up,
    checkpoint_path,
    power,
    run_on_libvirt,
    run_on_podman,
    saved,
    the_other_half,
)
from contract.hypervisor.worlds import (
    COMPUTES,
    INSIDE,
    KERNEL,
    MACHINE,
    MEMORY_MIB,
    SLACK_S,
    VM,
    A,
    B,
    SimulatedWorld,
    World,
    eventually,
    only_libvirt,
    only_simulated,
    spec,
)
from patience import PATIENCE_S

from rmsplugin.adapters.platform.base import KernelImage, VMPower
from rmsplugin.adapters.simulated.hypervisor.hypervisor import SimulatedHypervisor
from rmsplugin.adapters.simulated.hypervisor.machines import InvariantBreachedError
from rmsplugin.errors import (
    NotFoundError,
    UnavailableError,
)

# Boot, stop, observation.


def test_boot_stop_and_list(world: World) -> None:
    assert world.hypervisor.list_vms(A) == {}
    boot(world)
    world.hypervisor.boot(A, spec(), timeout_s=30)
    listed = world.hypervisor.list_vms(A)
    assert list(listed) == [VM]
    assert (listed[VM].power, listed[VM].uuid, listed[VM].job_running) == (VMPower.RUNNING, spec().uuid, False)
    assert world.hypervisor.list_vms(B) == {}
    assert [world.hypervisor.has_vm(node, VM) for node in (A, B)] == [True, False]
    world.hypervisor.stop(A, VM, timeout_s=20)
    assert not world.hypervisor.has_vm(A, VM)
    assert world.hypervisor.list_vms(A) == {}
    world.hypervisor.stop(A, VM, timeout_s=20)
    world.hypervisor.stop(B, VM, timeout_s=20)


@pytest.mark.needs("tells")
def test_that_a_vm_has_died_is_told_to_who_listens(world: World) -> None:
    heard: queue.Queue[tuple[str, str]] = queue.Queue()
    world.hypervisor.listen(lambda node, name: heard.put((node, name)))
    boot(world)
    assert heard.empty(), "a start is no end"
    world.kill(A, VM)
    assert heard.get(timeout=PATIENCE_S) == (A, VM)
    # Who looks now sees it.
    assert not world.hypervisor.has_vm(A, VM)
    assert world.hypervisor.list_vms(A) == {}


def test_host_info_and_statistics(world: World) -> None:
    host = world.hypervisor.host_info(A)
    assert host.cpus >= 1
    assert host.memory_mib >= 1024
    assert world.hypervisor.statistics(A) == {}
    boot(world)
    found = world.hypervisor.statistics(A)[VM]
    assert found.cpu_time_ns is not None
    assert found.memory_current_kib == MEMORY_MIB * 1024
    assert found.received_bytes is not None and found.received_bytes >= 0
    assert found.sent_bytes is not None and found.sent_bytes >= 0
    eventually(lambda: world.hypervisor.statistics(A)[VM].memory_rss_kib)  # not each time


@pytest.mark.needs("own_kernel")
def test_machines_of_a_node_and_how_long_a_virtual_cpu_waits(world: World) -> None:
    host = world.hypervisor.host_info(A)
    assert host.domain_type == "qemu"
    assert MACHINE in host.machines
    assert not {"q35", "pc"} & host.machines  # which are other machines in other releases of QEMU
    if INSIDE:  # the minicluster's QEMU has Debian's account, and no AppArmor
        assert host.account_uid == pwd.getpwnam("libvirt-qemu").pw_uid
        assert host.confined_by == ""
    boot(world)
    assert world.hypervisor.statistics(A)[VM].vcpu_delay_ns is not None


def test_a_guest_says_how_much_of_its_memory_it_could_do_without(world: World) -> None:
    if isinstance(world, SimulatedWorld):
        world.hypervisor.set_working_set(VM, MEMORY_MIB // 2)
    boot_up(world)

    def usable_kib() -> int | None:
        return world.hypervisor.statistics(A)[VM].memory_usable_kib

    eventually(lambda: usable_kib() is not None)  # QEMU asks now and then
    usable = usable_kib()
    assert usable is not None and 0 < usable < MEMORY_MIB * 1024


def busy_s(world: World, node: str = A) -> float:
    """How long the VM has wanted a CPU since its hypervisor process began."""
    all_of_them = world.hypervisor.statistics(node)
    assert VM in all_of_them, (world.hypervisor.list_vms(node), world.fate(node, VM))
    found = all_of_them[VM]
    assert found.cpu_time_ns is not None
    return (found.cpu_time_ns + (found.vcpu_delay_ns or 0)) / 1e9


@pytest.mark.needs("suspend")
def test_counters_of_a_vm_that_computes_grow_and_hardly_those_of_one_that_stands_still(world: World) -> None:
    if isinstance(world, SimulatedWorld):
        world.hypervisor.set_demand(VM, 1)
    boot(world)  # which computes
    if isinstance(world, PodmanWorld):
        world.compute(A, VM)
    begin = busy_s(world)
    eventually(lambda: busy_s(world) - begin > 0.3)
    saved(world)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    begin = busy_s(world)
    time.sleep(1)
    assert busy_s(world) - begin < 0.2


@pytest.mark.needs("migrate")
def test_counters_of_a_vm_begin_anew_where_it_migrates_to(world: World) -> None:
    if isinstance(world, SimulatedWorld):
        world.hypervisor.set_demand(VM, 1)
    boot(world, A, spec(image=KernelImage(*KERNEL, COMPUTES)))
    eventually(lambda: busy_s(world) > 4)
    before = busy_s(world)
    world.hypervisor.migrate(VM, A, B, timeout_s=60)
    assert VM not in world.hypervisor.statistics(A)
    assert busy_s(world, B) < before


@pytest.mark.needs("suspend", "checkpoint", "pause")
def test_what_is_not_there_is_not_found(world: World) -> None:
    for node in (A, B):
        world.nodes.put_config(node, VM, world.config(spec()))
    with pytest.raises(NotFoundError):
        world.hypervisor.save(A, VM, world.state_path(VM), timeout_s=20)
    with pytest.raises(NotFoundError):
        world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=20)
    with pytest.raises(NotFoundError):
        world.hypervisor.unpause(A, VM, timeout_s=20)
    with pytest.raises(NotFoundError):
        world.hypervisor.pause(A, VM, timeout_s=20)
    with pytest.raises(NotFoundError):
        world.hypervisor.checkpoint(A, VM, checkpoint_path(world, 1), timeout_s=20)
    assert world.hypervisor.list_vms(A) == {} == world.hypervisor.list_vms(B)


@pytest.mark.needs("resize")
def test_what_is_not_there_is_not_resized(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.hypervisor.set_memory(A, VM, 64, timeout_s=20)
    assert world.hypervisor.list_vms(A) == {} == world.hypervisor.list_vms(B)


@pytest.mark.needs("migrate")
def test_what_is_not_there_is_not_moved(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.hypervisor.migrate(VM, A, B, timeout_s=20)
    assert world.hypervisor.list_vms(A) == {} == world.hypervisor.list_vms(B)


# What only the simulation can be told to do.


@only_simulated
def test_vms_that_share_cpus_show_what_they_get_and_how_long_they_wait() -> None:
    now = [0.0]
    hypervisor = SimulatedHypervisor({A: (2, 2048), B: (2, 2048)}, clock=lambda: now[0], sleep=lambda _: None)
    vms = [f"vjob9001-{index}" for index in range(3)]
    for name, cpus in zip(vms, (2, 1, 1), strict=True):
        hypervisor.set_demand(name, cpus + 1)  # more than its vCPUs can give
        hypervisor.boot(A, spec(name, cpus=cpus), timeout_s=1)
    now[0] = 10.0
    hypervisor.migrate(vms[2], A, B, timeout_s=1)
    now[0] = 40.0

    def seconds(node: str) -> dict[str, tuple[float, float]]:
        found = hypervisor.statistics(node)
        return {
            name: (round((each.cpu_time_ns or 0) / 1e9, 3), round((each.vcpu_delay_ns or 0) / 1e9, 3))
            for name, each in found.items()
        }

    # 10 s of two CPUs for four that are wanted, then 30 s for three.
    assert seconds(A) == {vms[0]: (50.0, 30.0), vms[1]: (25.0, 15.0)}
    assert seconds(B) == {vms[2]: (30.0, 0.0)}
    hypervisor.kill_vm(vms[0])
    now[0] = 50.0
    assert seconds(A) == {vms[1]: (35.0, 15.0)}


@only_simulated
def test_a_guest_holds_what_it_needs_and_what_it_caches_of_what_its_balloon_leaves() -> None:
    hypervisor = SimulatedHypervisor({A: (2, 1024)}, clock=time.monotonic, sleep=lambda _: None)
    hypervisor.set_working_set(VM, 200)
    hypervisor.set_cache(VM, 300)
    hypervisor.set_faults(VM, 7, swap_in_kib=5)
    hypervisor.boot(A, spec(memory_mib=800), timeout_s=1)

    def seen_mib() -> tuple[int | None, ...]:
        found = hypervisor.statistics(A)[VM]
        sizes = (found.memory_rss_kib, found.memory_current_kib, found.memory_usable_kib)
        return tuple(size // 1024 for size in sizes if size is not None)

    assert seen_mib() == (500, 800, 600)
    for asked, then in ((400, (400, 400, 200)), (50, (200, 200, 0)), (9999, (500, 800, 600))):
        hypervisor.set_memory(A, VM, asked, timeout_s=1)
        assert seen_mib() == then
    hypervisor.set_memory(A, VM, 250, timeout_s=1)
    hypervisor.set_working_set(VM, 700)
    assert seen_mib() == (700, 700, 0)
    found = hypervisor.statistics(A)[VM]
    assert (found.major_faults, found.swap_in_kib) == (7, 5)


@only_simulated
def test_vms_of_observed_memory_may_be_larger_together_than_their_node_and_others_not() -> None:
    hypervisor = SimulatedHypervisor({A: (8, 1024)}, clock=time.monotonic, sleep=lambda _: None)
    for index in range(3):
        hypervisor.boot(A, spec(f"vjob9001-{index}", memory_mib=1000, bounded=True), timeout_s=1)
    hypervisor.boot(A, spec("vjob9002-0", memory_mib=1024), timeout_s=1)
    with pytest.raises(InvariantBreachedError, match="I3"):
        hypervisor.boot(A, spec("vjob9003-0", memory_mib=1), timeout_s=1)


# Nodes that do not answer.


@pytest.mark.needs("suspend", "checkpoint")
@pytest.mark.parametrize("fault", ["ended", "silenced"])
def test_unreachable_hypervisor(world: World, fault: str) -> None:
    boot(world)
    path = world.state_path(VM)
    calls: list[Callable[[], object]] = [
        lambda: world.hypervisor.host_info(A),
        lambda: world.hypervisor.list_vms(A),
        lambda: world.hypervisor.statistics(A),
        lambda: world.hypervisor.save(A, VM, path, timeout_s=5),
        lambda: world.hypervisor.checkpoint(A, VM, path, timeout_s=5),
        lambda: world.hypervisor.stop(A, VM, timeout_s=5),
        lambda: world.hypervisor.boot(A, spec("vjob9005-0"), timeout_s=5),
        lambda: world.hypervisor.abort_job(A, VM),
    ]

    if world.hypervisor.capabilities.resize:
        calls.append(lambda: world.hypervisor.set_memory(A, VM, 64, timeout_s=5))

    def is_given_up(call: Callable[[], object]) -> None:
        with at_most(SLACK_S), pytest.raises(UnavailableError):
            call()

    with getattr(world, fault)(A), ThreadPoolExecutor(len(calls)) as pool:
        is_given_up(calls[0])  # what was begun before the silence may have been done
        for each in [pool.submit(is_given_up, call) for call in calls[1:]]:
            each.result()
        assert world.hypervisor.list_vms(B) == {}
    eventually(lambda: power(world, A) is VMPower.RUNNING)


# What only libvirt can get wrong.


@only_libvirt
def test_silence_does_not_pile_up_threads(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    world.hypervisor.list_vms(A)
    nodes = world.hypervisor._nodes
    patience_s = nodes.call_timeout_s
    with world.silenced(A):
        nodes.call_timeout_s = nodes.link(A)._connect_timeout_s = 2
        for _ in range(2):
            with pytest.raises(UnavailableError):
                world.hypervisor.list_vms(A)
        before = threading.active_count()
        for _ in range(20):
            with contextlib.suppress(UnavailableError):
                nodes.link(A)._connect_timeout_s = 0.1
                world.hypervisor.list_vms(A)
        assert threading.active_count() <= before
    nodes.call_timeout_s = nodes.link(A)._connect_timeout_s = patience_s
    eventually(lambda: world.hypervisor.list_vms(A) == {})


@only_libvirt
def test_nothing_secret_is_on_the_command_line(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    boot(world)
    listing = world.on(A, "ps", "axww", "-o", "args").stdout
    assert f"guest={VM}" in listing
    assert "key=value" not in listing


@pytest.mark.needs("suspend")
@only_libvirt
def test_qemu_has_no_rights_of_root_and_cannot_get_at_saved_states(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    boot_up(world, A, spec())
    assert world.on(A, "pgrep", "-u", "libvirt-qemu", "-f", f"guest={VM}").returncode == 0
    world.hypervisor.save(A, VM, world.state_path(VM), timeout_s=60)

    def reads(path: str) -> bool:
        command = ["setpriv", "--reuid=libvirt-qemu", "--regid=libvirt-qemu", "--init-groups", "test", "-r", path]
        return world.on(A, *command).returncode == 0

    assert reads("/etc/pki/qemu/server-key.pem")  # for migrations
    for path in (world.state_path(VM), f"/var/lib/rmsplugin/vm/{VM}.console", "/etc/pki/libvirt/private/serverkey.pem"):
        assert not reads(path), path


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
