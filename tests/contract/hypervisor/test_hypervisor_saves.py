"""The contract of hypervisors: save and restore, templates, checkpoints."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace

import pytest
from contract.hypervisor.on_libvirt import LibvirtWorld
from contract.hypervisor.steps import (
    at_most,
    boot,
    boot_up,
    checkpoint,
    checkpoint_path,
    finds_no_space,
    have_up,
    no_whole_state,
    power,
    run_on_libvirt,
    run_on_podman,
    saved,
    the_other_half,
)
from contract.hypervisor.worlds import (
    KERNEL,
    MEMORY_MIB,
    SLACK_S,
    VM,
    A,
    B,
    World,
    eventually,
    only_libvirt,
    only_simulated,
    spec,
)
from patience import PATIENCE_S

from rmsplugin.adapters.nodes.base import Template, TemplateUse
from rmsplugin.adapters.platform.base import DiskImage, KernelImage, VMPower
from rmsplugin.adapters.simulated.hypervisor.hypervisor import SimulatedHypervisor
from rmsplugin.errors import (
    CorruptStateError,
    OperationFailedError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.model.capabilities import EVERYTHING

# Save and restore.


@pytest.mark.needs("suspend")
def test_save_and_restore_on_the_same_node(world: World) -> None:
    boot(world)
    saved(world)
    assert power(world, A) is None
    path = world.state_path(VM)
    assert world.exists(A, path)
    world.hypervisor.restore(A, spec(), path, timeout_s=60)
    assert power(world, A) is VMPower.PAUSED
    world.hypervisor.restore(A, spec(), path, timeout_s=60)
    assert power(world, A) is VMPower.PAUSED
    world.hypervisor.unpause(A, VM, timeout_s=20)
    assert power(world, A) is VMPower.RUNNING
    world.hypervisor.unpause(A, VM, timeout_s=20)
    world.hypervisor.restore(A, spec(), path, timeout_s=60)
    assert power(world, A) is VMPower.RUNNING
    assert world.exists(A, path), "a state is kept until its VM was seen running"


@only_simulated
def test_a_platform_that_restores_nothing_elsewhere_refuses_it_and_harms_nothing() -> None:
    hypervisor = SimulatedHypervisor(
        {A: (2, 1024), B: (2, 1024)},
        clock=time.monotonic,
        sleep=lambda _: None,
        capabilities=replace(EVERYTHING, elsewhere=False),
    )
    path = "/shared/state"
    hypervisor.boot(A, spec(), timeout_s=1)
    hypervisor.save(A, VM, path, timeout_s=1)
    with pytest.raises(OperationFailedError, match="the platform has no elsewhere"):
        hypervisor.restore(B, spec(), path, timeout_s=1)
    assert hypervisor.violations and hypervisor.where(VM) == []
    hypervisor.restore(A, spec(), path, timeout_s=1)
    assert hypervisor.where(VM) == [A]


@pytest.mark.needs("suspend", "elsewhere")
def test_restore_on_another_node(world: World) -> None:
    boot(world)
    digest = saved(world)
    done: list[tuple[int, int]] = []
    world.nodes.send(A, B, VM, digest, timeout_s=60, progress=lambda *step: done.append(step))
    world.nodes.send(A, B, VM, digest, timeout_s=60)
    world.nodes.verify(B, VM, digest, timeout_s=60)
    world.hypervisor.restore(B, spec(), world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(B, VM, timeout_s=20)
    assert power(world, B) is VMPower.RUNNING
    assert power(world, A) is None


@pytest.mark.needs("suspend")
def test_save_of_a_paused_vm_stays_paused_when_it_fails(world: World) -> None:
    have_up(world)
    saved(world)
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)
    finds_no_space(world, lambda: world.hypervisor.save(A, VM, world.state_path(VM) + ".partial", timeout_s=60))
    assert power(world, A) is VMPower.PAUSED


@pytest.mark.needs("suspend")
def test_failed_save_leaves_the_vm_running_and_no_whole_state(world: World) -> None:
    have_up(world)
    path = world.state_path(VM) + ".partial"
    finds_no_space(world, lambda: world.hypervisor.save(A, VM, path, timeout_s=60))
    info = world.hypervisor.list_vms(A)[VM]
    assert (info.power, info.job_running) == (VMPower.RUNNING, False)
    saved(world)


@pytest.mark.needs("suspend")
def test_save_past_its_time_is_aborted(world: World) -> None:
    big = spec("vjob9002-0", memory_mib=512)
    have_up(world, big)
    path = world.state_path(big.name) + ".partial"
    with world.slow_save(A, big.name), at_most(SLACK_S), pytest.raises(TimedOutError):
        world.hypervisor.save(A, big.name, path, timeout_s=0.2)
    assert power(world, A, big.name) is VMPower.RUNNING
    assert no_whole_state(world, big.name)


@pytest.mark.needs("suspend")
def test_abort_of_a_save(world: World) -> None:
    big = spec("vjob9002-0", memory_mib=512)
    have_up(world, big)
    world.hypervisor.abort_job(A, big.name)
    world.hypervisor.abort_job(A, "vjob9999-0")
    failures: list[Exception] = []

    def save() -> None:
        try:
            world.hypervisor.save(A, big.name, world.state_path(big.name) + ".partial", timeout_s=60)
        except Exception as error:
            failures.append(error)

    with world.slow_save(A, big.name):
        thread = threading.Thread(target=save)
        thread.start()
        eventually(lambda: world.hypervisor.list_vms(A)[big.name].job_running)
        world.hypervisor.abort_job(A, big.name)
        thread.join(PATIENCE_S)
    assert [type(error) for error in failures] == [OperationFailedError]
    assert power(world, A, big.name) is VMPower.RUNNING


@pytest.mark.needs("suspend")
@pytest.mark.parametrize("start", ["boot", "restore"])
def test_start_past_its_time_leaves_none(world: World, start: str) -> None:
    boot(world)
    saved(world)
    with world.slow(A, VM), at_most(SLACK_S), pytest.raises(TimedOutError):
        if start == "boot":
            world.hypervisor.boot(A, spec(), timeout_s=0.05)
        else:
            world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=0.05)
    assert world.hypervisor.list_vms(A) == {}
    time.sleep(1)
    assert world.hypervisor.list_vms(A) == {}, "it came after all"
    assert world.exists(A, world.state_path(VM))


@pytest.mark.needs("suspend")
@pytest.mark.parametrize("how", ["garbage", "header", "truncated"])
def test_unusable_state_is_never_restored(world: World, how: str) -> None:
    if how == "truncated":
        have_up(world)  # to be cut in the middle of the memory, not of the header
    else:
        boot(world)
    saved(world)
    path = world.state_path(VM)
    world.damage(A, path, how)
    with pytest.raises(CorruptStateError):
        world.hypervisor.restore(A, spec(), path, timeout_s=60)
    assert world.hypervisor.list_vms(A) == {}
    assert world.exists(A, path), "it is for the engine to decide what becomes of it"


@pytest.mark.needs("suspend")
def test_state_of_another_vm_is_refused(world: World) -> None:
    boot(world)
    saved(world)
    with pytest.raises(CorruptStateError):
        world.hypervisor.restore(A, spec("vjob9002-0"), world.state_path(VM), timeout_s=60)
    assert world.hypervisor.list_vms(A) == {}


@pytest.mark.needs("suspend")
@only_libvirt
def test_restore_that_qemu_refuses_leaves_nothing(world: World) -> None:
    boot(world)
    saved(world)
    lost = spec(image=KernelImage("/nowhere/vmlinux", "/nowhere/initrd"))
    with pytest.raises(OperationFailedError):
        world.hypervisor.restore(A, lost, world.state_path(VM), timeout_s=60)
    assert world.hypervisor.list_vms(A) == {}
    world.hypervisor.restore(A, spec(), world.state_path(VM), timeout_s=60)


@pytest.mark.needs("suspend")
@only_libvirt
def test_restore_takes_the_paths_of_the_spec(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    boot(world)
    saved(world)
    assert world.on(A, "cp", "-r", "/var/lib/rmsplugin-images", "/tmp/images").returncode == 0
    assert world.on(A, "cp", spec().config_path, "/tmp/config").returncode == 0
    moved = spec(
        image=KernelImage("/tmp/images/vmlinux", "/tmp/images/initrd.img", "quiet"),
        config_path="/tmp/config",
        console_log="/tmp/console",
    )
    world.nodes.drop_config(A, VM)
    with world.replaced(A, "/etc/libvirt/hooks/qemu", "/bin/true"):  # they are no VM's of this node's settings
        world.hypervisor.restore(A, moved, world.state_path(VM), timeout_s=60)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    arguments = world.on(A, "ps", "axww", "-o", "args").stdout
    assert all(path in arguments for path in ("/tmp/images/vmlinux", "/tmp/images/initrd.img", "/tmp/config"))
    assert "/var/lib/rmsplugin" not in arguments
    assert world.exists(A, "/tmp/console")


@pytest.mark.needs("suspend", "elsewhere", "checkpoint")
@only_libvirt
def test_states_are_compressed_and_those_of_before_can_be_restored(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    big = spec("vjob9004-0", memory_mib=256)
    path = world.state_path(big.name)
    boot_up(world, A, big)
    with world.qemu_conf(A, save_image_format="raw", snapshot_image_format="raw"):
        raw_checkpoint = checkpoint(world, 1, A, big.name)
        raw = saved(world, A, big.name)
    world.hypervisor.restore(A, big, path, timeout_s=60)
    world.hypervisor.unpause(A, big.name, timeout_s=20)
    assert checkpoint(world, 2, A, big.name).size_bytes < 0.7 * raw_checkpoint.size_bytes
    for number in (1, 2):
        world.nodes.drop_state(A, big.name, checkpoint=number)
    compressed = saved(world, A, big.name)
    assert compressed.size_bytes < 0.7 * raw.size_bytes
    world.nodes.send(A, B, big.name, compressed, timeout_s=60)
    world.hypervisor.restore(B, big, path, timeout_s=60)
    world.hypervisor.unpause(B, big.name, timeout_s=20)
    assert power(world, B, big.name) is VMPower.RUNNING


@pytest.mark.needs("suspend")
@only_libvirt
def test_crash_of_libvirtd_in_a_save_leaves_the_vm_running(world: World) -> None:
    assert isinstance(world, LibvirtWorld)
    have_up(world)
    failures: list[Exception] = []

    def save() -> None:
        try:
            world.hypervisor.save(A, VM, world.state_path(VM) + ".partial", timeout_s=60)
        except Exception as error:
            failures.append(error)

    with world.slow_save(A, VM):
        thread = threading.Thread(target=save)
        thread.start()
        eventually(lambda: world.hypervisor.list_vms(A)[VM].job_running)
        assert world.minicluster("kill", A, "libvirtd", "--signal", "SEGV").returncode == 0
        thread.join(PATIENCE_S)
    assert [type(error) for error in failures] == [UnavailableError]
    eventually(lambda: power(world, A) is VMPower.RUNNING)

    def can_be_saved() -> bool:
        try:
            return bool(saved(world))
        except OperationFailedError:
            return False  # QEMU has not yet given up the first one

    eventually(can_be_saved)


# Templates.


@pytest.mark.needs("template")
def test_vms_that_differ_in_who_they_are_have_one_template_key_and_those_of_another_size_another(world: World) -> None:
    key = world.hypervisor.template_key(A, spec())
    assert re.fullmatch("[0-9a-f]{32}", key)
    assert world.hypervisor.template_key(A, spec("vjob9002-3", bounded=True)) == key
    assert world.hypervisor.template_key(B, spec("vjob9003-0")) == key, "the nodes are alike"
    image = KernelImage(*KERNEL, "quiet")
    others = [spec(cpus=2), spec(memory_mib=MEMORY_MIB + 1), spec(image=image)]
    assert len({key, *(world.hypervisor.template_key(A, other) for other in others)}) == 4
    disks = [spec(name, image=DiskImage(f"/vm/{name}.qcow2", f"/vm/{name}.iso")) for name in (VM, "vjob9002-3")]
    of_disks = {world.hypervisor.template_key(A, each) for each in disks}
    assert len(of_disks) == 1 and key not in of_disks


def template_path(name: str) -> str:
    return f"/var/lib/rmsplugin/vm/{name}.template"


@pytest.mark.needs("migrate", "suspend", "template")
def test_a_saved_vm_is_restored_as_others_beside_each_other(world: World) -> None:
    first, sisters = spec(), [spec("vjob9002-0"), spec("vjob9003-1")]
    template = Template(world.hypervisor.template_key(A, first), "default")
    assert world.nodes.use_template(A, first.name, template, first.uuid, first.mac, b"key=value\n") is TemplateUse.MAKE
    boot_up(world, A, first)
    world.hypervisor.save(A, first.name, template_path(first.name), timeout_s=60)
    world.hypervisor.restore(A, first, template_path(first.name), timeout_s=60)
    assert world.nodes.settle_template(A, first.name, template)
    for sister in sisters:
        files = [b"key=other\n"]
        world.nodes.put_config(B, sister.name, *files)
        assert world.nodes.use_template(A, sister.name, template, sister.uuid, sister.mac, *files) is TemplateUse.COPIED
        world.hypervisor.restore(A, sister, template_path(sister.name), timeout_s=60)
        world.hypervisor.unpause(A, sister.name, timeout_s=20)
    found = world.hypervisor.list_vms(A)
    assert [(vm.name, vm.uuid, vm.power) for vm in found.values()] == [
        (VM, first.uuid, VMPower.PAUSED),
        *((sister.name, sister.uuid, VMPower.RUNNING) for sister in sisters),
    ]
    # From here on it is a VM as any other.
    world.hypervisor.migrate(sisters[0].name, A, B, timeout_s=60)
    saved(world, B, sisters[0].name)
    world.hypervisor.restore(B, sisters[0], world.state_path(sisters[0].name), timeout_s=60)
    assert power(world, B, sisters[0].name) is VMPower.PAUSED
    world.nodes.refuse_template(A, VM, template)


# Standing still.


@pytest.mark.needs("pause")
def test_a_vm_stands_still_and_goes_on_when_who_asked_is_ready_and_not_before(world: World) -> None:
    have_up(world)
    before: list[VMPower] = []

    def ready() -> None:
        before.append(power(world, A))

    world.hypervisor.pause(A, VM, timeout_s=20, ready=ready)
    assert (before, power(world, A)) == ([VMPower.RUNNING], VMPower.PAUSED)
    world.hypervisor.pause(A, VM, timeout_s=20, ready=ready)
    world.hypervisor.unpause(A, VM, timeout_s=20, ready=ready)
    assert (before[1:], power(world, A)) == ([VMPower.PAUSED] * 2, VMPower.RUNNING)
    world.hypervisor.unpause(A, VM, timeout_s=20, ready=ready)
    assert before[3:] == [VMPower.RUNNING]


# Checkpoints.


@pytest.mark.needs("checkpoint", "pause")
@pytest.mark.usefixtures("without_checkpoints")
@pytest.mark.parametrize("before", [VMPower.RUNNING, VMPower.PAUSED])
def test_a_checkpoint_leaves_the_vm_as_it_was(world: World, before: VMPower) -> None:
    have_up(world)
    if before is VMPower.PAUSED:
        world.hypervisor.pause(A, VM, timeout_s=20)
        world.hypervisor.pause(A, VM, timeout_s=20)
    checkpoint(world, 1)
    info = world.hypervisor.list_vms(A)[VM]
    assert (info.power, info.job_running) == (before, False)
    world.hypervisor.unpause(A, VM, timeout_s=20)
    assert power(world, A) is VMPower.RUNNING


@pytest.mark.needs("suspend", "elsewhere", "checkpoint")
@pytest.mark.usefixtures("without_checkpoints")
def test_what_dies_goes_on_from_its_checkpoint_on_another_node_as_often_as_it_dies(world: World) -> None:
    have_up(world)
    digest = checkpoint(world, 1)
    world.nodes.send(A, B, VM, digest, timeout_s=60, checkpoint=1)
    for _ in range(2):
        world.hypervisor.stop(A, VM, timeout_s=20)
        world.nodes.use_checkpoint(B, VM, 1)
        world.nodes.verify(B, VM, digest, timeout_s=20)
        world.hypervisor.restore(B, spec(), world.state_path(VM), timeout_s=60)
        assert power(world, B) is VMPower.PAUSED
        world.hypervisor.unpause(B, VM, timeout_s=20)
        assert power(world, B) is VMPower.RUNNING
        world.nodes.drop_state(B, VM)
        world.nodes.verify(B, VM, digest, timeout_s=20, checkpoint=1)
        world.hypervisor.stop(B, VM, timeout_s=20)


@pytest.mark.needs("checkpoint")
@pytest.mark.usefixtures("without_checkpoints")
def test_checkpoints_of_two_instants_differ_and_are_no_states_of_the_vm(world: World) -> None:
    have_up(world)
    older, newer = checkpoint(world, 1), checkpoint(world, 2)
    assert older != newer
    assert world.nodes.list_files(A).states == frozenset()
    world.nodes.drop_state(A, VM)
    world.nodes.verify(A, VM, older, timeout_s=20, checkpoint=1)
    world.nodes.drop_state(A, VM, checkpoint=1)
    world.nodes.verify(A, VM, newer, timeout_s=20, checkpoint=2)


@pytest.mark.needs("checkpoint", "pause")
@pytest.mark.parametrize("before", [VMPower.RUNNING, VMPower.PAUSED])
def test_failed_checkpoint_leaves_the_vm_as_it_was_and_no_whole_state(world: World, before: VMPower) -> None:
    have_up(world)
    if before is VMPower.PAUSED:
        world.hypervisor.pause(A, VM, timeout_s=20)
    path = checkpoint_path(world, 1) + ".partial"
    finds_no_space(world, lambda: world.hypervisor.checkpoint(A, VM, path, timeout_s=60), checkpoint=1)
    info = world.hypervisor.list_vms(A)[VM]
    assert (info.power, info.job_running) == (before, False)


@pytest.mark.needs("checkpoint")
def test_checkpoint_past_its_time_is_aborted(world: World) -> None:
    big = spec("vjob9002-0", memory_mib=512)
    have_up(world, big)
    path = checkpoint_path(world, 1, big.name) + ".partial"
    with world.slow_save(A, big.name), at_most(SLACK_S), pytest.raises(TimedOutError):
        world.hypervisor.checkpoint(A, big.name, path, timeout_s=0.2)
    info = world.hypervisor.list_vms(A)[big.name]
    assert (info.power, info.job_running) == (VMPower.RUNNING, False)
    assert no_whole_state(world, big.name, checkpoint=1)


@pytest.mark.needs("checkpoint", "own_kernel")
def test_a_vm_with_disks_is_refused_a_checkpoint(world: World) -> None:
    disk = DiskImage(overlay=f"/var/lib/rmsplugin/vm/{VM}.qcow2", seed=f"/var/lib/rmsplugin/vm/{VM}.iso")
    if isinstance(world, LibvirtWorld):
        for make in (
            ("qemu-img", "create", "-q", "-f", "qcow2", disk.overlay, "8M"),
            ("truncate", "-s", "1M", disk.seed),
        ):
            assert world.on(A, *make).returncode == 0
    boot(world, A, spec(image=disk))
    path = checkpoint_path(world, 1)
    with pytest.raises(OperationFailedError, match="has disks"):
        world.hypervisor.checkpoint(A, VM, path, timeout_s=60)
    assert power(world, A) is VMPower.RUNNING
    assert not world.exists(A, path)


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
