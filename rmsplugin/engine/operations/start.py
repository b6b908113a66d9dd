"""Start (action *run*): the job gets its allocation, its VMs boot and are configured."""

from __future__ import annotations

import base64
import ipaddress
import pwd
from collections.abc import Callable

from rmsplugin.adapters.guests.config import GuestConfig, GuestMount, GuestVM
from rmsplugin.adapters.guests.keys import KeyPair
from rmsplugin.adapters.seed import Seed, seed_iso
from rmsplugin.engine.operations.allocation import NotStartedError, await_allocation, current_job
from rmsplugin.engine.operations.stop import remove_all
from rmsplugin.engine.rows import VMRow
from rmsplugin.engine.task import CancelledError, Task, combined, sentence_of
from rmsplugin.errors import GuestFailedError, RefusedError, RmspluginError, UnavailableError
from rmsplugin.model.vjob import VJobState
from rmsplugin.settings.sections import Qcow2Image

#: How often a job whose VMs boot is looked at: whoever cancels it does not wait for the engine's next cycle.
_LOOK_S = 1.0


def start(task: Task) -> None:
    """Bring a vjob from *starting* to *running*, or back to *waiting* with the reason.

    Should a node on which it may have left something not answer meanwhile, the vjob stays *stopping*: it is cleaned up
    once the node answers, and starts nowhere before that (I1).
    """
    context = task.context
    vms = task.vms()
    try:
        await_allocation(task, context.settings.slurm.start_timeout_s)
        errors = task.each(vms, lambda vm: _boot(task, vm))
    except NotStartedError as error:
        _back_to_waiting(task, str(error))
        raise
    task.check_cancelled()
    if errors:
        _back_to_waiting(task, sentence_of(errors))
        raise combined(errors)
    reason = f"all VMs answer; {task.operation.arguments['reason']}"
    context.ledger.transition(task.job_id, VJobState.RUNNING, reason, wrapper_seen=context.clock.now())


def _boot(task: Task, vm: VMRow) -> None:
    context, vjob = task.context, task.vjob()
    bound = context.settings.hypervisor.boot_timeout_s
    with task.action("run", vm, destination=vm.host):
        if vm.name not in context.hypervisor.list_vms(vm.host):
            # Only now: a node that was silent from the beginning holds nothing that had to be cleaned up.
            context.ledger.touch(vm.name, vm.host)
            _put_files(task, vm)
            context.hypervisor.boot(vm.host, context.spec(vjob, vm), timeout_s=bound)
        _set_up(task, vm, bound)


def _set_up(task: Task, vm: VMRow, bound: float) -> None:
    guests, config = task.context.guests, _guest_config(task, vm)
    check = _end_with_job(task)
    try:
        # A boot may take minutes: the VM of a job that has ended does not keep its room for so long.
        guests.wait_ready(vm.address, vm.host_key_public, timeout_s=bound, check=check)
        guests.configure(vm.address, vm.host_key_public, config, timeout_s=bound, check=check)
    except CancelledError:
        raise
    except RmspluginError as error:
        raise GuestFailedError(str(error)) from error


def _end_with_job(task: Task) -> Callable[[], None]:
    """Make a check that cancels the start once its job has ended; one that Slurm does not tell of goes on."""
    clock = task.context.clock
    looked = clock.now()

    def check() -> None:
        nonlocal looked
        task.check_cancelled()
        if clock.now() - looked < _LOOK_S:
            return
        looked = clock.now()
        try:
            current_job(task)
        except UnavailableError:
            return
        except CancelledError as ended:
            task.cancel(str(ended))
            raise

    return check


def _put_files(task: Task, vm: VMRow) -> None:
    context = task.context
    put_config(task, vm, vm.host)
    image = context.settings.image[task.vjob().geometry.image]
    if isinstance(image, Qcow2Image):
        network = context.settings.network
        seed = Seed(
            instance_id=vm.uuid,
            hostname=vm.name,
            mac=vm.mac,
            address=ipaddress.IPv4Interface(f"{vm.address}/{network.prefix_length}"),
            gateway=ipaddress.IPv4Address(network.gateway) if network.gateway else None,
            root_authorized_key=context.root_public_key,
            host_private_key=vm.host_key,
            host_public_key=vm.host_key_public,
        )
        context.nodes.put_seed(vm.host, vm.name, seed_iso(seed))
        context.nodes.make_overlay(vm.host, vm.name, str(image.base))


def put_config(task: Task, vm: VMRow, node: str) -> None:
    """Give ``node`` the file that a VM's QEMU opens there when it starts, by whatever action, and its bound."""
    context = task.context
    if vm.observed:
        context.memory_care.bounds.keep(node)
    network = context.settings.network
    lines = {
        "hostname": vm.name,
        "address": f"{vm.address}/{network.prefix_length}",
        "gateway": network.gateway,
        "root_authorized_key": context.root_public_key,
        "host_key": base64.b64encode(vm.host_key.encode()).decode(),
    }
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    context.ledger.touch(vm.name, node)
    context.nodes.put_config(node, vm.name, text.encode())


def _guest_config(task: Task, vm: VMRow) -> GuestConfig:
    context, vjob = task.context, task.vjob()
    account = _account(vjob.uid)
    return GuestConfig(
        job_id=vjob.job_id,
        index=vm.idx,
        cpus=vjob.geometry.cpus,
        memory_mib=vjob.geometry.memory_mib,
        ntasks=vjob.geometry.ntasks,
        cpus_per_task=vjob.geometry.cpus_per_task,
        user=account.pw_name,
        uid=account.pw_uid,
        gid=account.pw_gid,
        home=account.pw_dir,
        shell=account.pw_shell or "/bin/sh",
        key=KeyPair(vjob.private_key, vjob.public_key),
        vms=tuple(GuestVM(each.name, each.address, each.host_key_public) for each in task.vms()),
        mounts=tuple(
            GuestMount(mount.source, mount.target, mount.type, mount.options) for mount in context.settings.guest.mounts
        ),
    )


def _account(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise RefusedError(f"the controller knows no account with uid {uid}; users must be known there") from None


def _back_to_waiting(task: Task, reason: str) -> None:
    """Undo a start: nothing of the VMs is left, the job is behind the gate, at its old place in the queue."""
    context = task.context
    # Whatever interrupts this, the vjob is cleaned up and not booted once more where it failed.
    context.ledger.transition(task.job_id, VJobState.STOPPING, reason)
    try:
        context.rms.requeue(task.job_id)
    except RmspluginError as error:
        task.event("requeue-failed", str(error))
    remove_all(task)
    with context.ledger.transaction():
        context.ledger.set_vms(task.job_id, [])
        context.ledger.transition(task.job_id, VJobState.WAITING, reason, script_started=False)
