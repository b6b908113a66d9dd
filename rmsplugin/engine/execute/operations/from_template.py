"""From template: instead of booting, a VM starts from the state of a VM that was saved before it had an identity.

The first VM of its kind on a node makes the template: it boots, waits for its configuration, is saved, and then starts
from the saved state, as all later ones do. All of this happens to a VM of the vjob, under its own name and in its own
room, and to files that go when the VM goes. So an engine that is killed on the way leaves only things that are cleaned
up anyway.

The guest that waits fills its free memory with zeros. So a VM makes a template only where all of its memory is left: if
its memory is observed, less may be booked for it (docs/decisions/0189).
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

from rmsplugin.adapters.nodes.base import Template, TemplateUse
from rmsplugin.engine.context.machines import template_path
from rmsplugin.engine.context.restored import Restored
from rmsplugin.engine.execute.operations.allocation import Opening, end_with_job
from rmsplugin.engine.execute.operations.guest_disks import has_disks, put_waiting_disks, seed_of_template, told_by_seed
from rmsplugin.engine.execute.operations.guest_file import (
    config_of,
    guard_of,
    keep_bound,
    put_config,
    put_waiting,
    waits,
)
from rmsplugin.engine.execute.stages import Stages
from rmsplugin.engine.execute.task import CancelledError, Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.errors import OperationFailedError, RmspluginError
from rmsplugin.model.vm_phase import VMPhase

#: A guest is waited for so many seconds at a time; then the engine checks whether it is still wanted.
_LOOK_S = 2.0
#: Slurm takes some tenths of a second from the opening of a job's gate to its wrapper. If the last restore of the image
#: took at most these seconds, the gate is opened at the beginning of the restore; if only its part after the loading of
#: the state did, after the loading. Longer waits must not be in the job's Elapsed.
_MOMENT_S = 2.0
_NEVER = Restored(math.inf, math.inf)


def started_from_template(task: Task, vm: VMRow, opening: Opening, stages: Stages) -> Template | None:
    """Try to start the VM from a template. The gate is opened when its guest answers, or will in a moment.

    Returns:
        The template it came from; None if the VM is to be booted: then there is nothing of it on its node.

    Raises:
        UnavailableError: the node does not answer.
    """
    context = task.context
    if not (context.capabilities.template and context.settings.start.template and waits(task)):
        return None
    if vm.name in context.hypervisor.list_vms(vm.host):
        _end(task, vm)  # an engine was killed, and it is not known how far the VM had come
    hardware = context.hypervisor.template_key(vm.host, task.spec(vm))
    template = Template(told_by_seed(task, hardware), task.vjob().geometry.image)
    context.ledger.enter_phase(vm.name, VMPhase.BOOTING)
    stages.ended("asked")
    try:
        use = _use_template(task, vm, template)
        stages.ended("files")
        if use is TemplateUse.BOOT:
            return None
        if use is TemplateUse.MAKE:
            with _all_memory(task, vm) as is_left:
                if not is_left:
                    context.nodes.settle_template(vm.host, vm.name, template)  # another VM may make it
                    return None
                _save_waiting(task, vm, template)
            put_config(task, vm, vm.host)
            stages.ended("template")
        _restore(task, vm, opening, stages)
    except CancelledError:
        raise
    except RmspluginError as error:
        _give_up(task, vm, template, error)
        opening.far(vm.name)
        return None
    return template


def settle(task: Task, vm: VMRow, template: Template) -> None:
    """After the VM runs: the state that it started from becomes the template, or is dropped as not needed any more."""
    try:
        if task.context.nodes.settle_template(vm.host, vm.name, template):
            task.event("template-made", f"VMs like {vm.name} start from it on {vm.host}", vm=vm.name, node=vm.host)
    except RmspluginError:
        return  # the state goes with the VM's other files


def _use_template(task: Task, vm: VMRow, template: Template) -> TemplateUse:
    """Have a copy of the template, if there is one, and the other files that the VM needs to start from it."""
    keep_bound(task, vm, vm.host)
    nodes, files = task.context.nodes, (config_of(task, vm), seed_of_template(task))
    return nodes.use_template(vm.host, vm.name, template, vm.uuid, vm.mac, *files, guard=guard_of(task, vm))


def _all_memory(task: Task, vm: VMRow) -> AbstractContextManager[bool]:
    """For the time in which the VM takes all of its memory: whether its node has so much for it."""
    if not vm.observed:
        return nullcontext(True)
    mib = vm.memory_mib + task.context.settings.nodes.memory_overhead_mib
    return task.context.bounds.whole(vm.host, vm.name, mib)


def _save_waiting(task: Task, vm: VMRow, template: Template) -> None:
    context = task.context
    hypervisor, bounds = context.hypervisor, context.settings.hypervisor
    put_waiting(task, vm, vm.host)
    put_waiting_disks(task, vm)
    hypervisor.boot(vm.host, task.spec(vm), timeout_s=bounds.boot_timeout_s)
    _await_waiting(task, vm, template, bounds.boot_timeout_s)
    if vm.observed:
        context.bounds.relieve(vm.host)
    hypervisor.save(vm.host, vm.name, template_path(context.settings, vm), timeout_s=bounds.save_timeout_s)
    if has_disks(task):
        context.nodes.keep_disk(vm.host, vm.name, template)


def _await_waiting(task: Task, vm: VMRow, template: Template, within_s: float) -> None:
    """Wait until the guest waits for its configuration; minutes, perhaps, but no longer than its job lives."""
    check = end_with_job(task)
    for _ in range(math.ceil(within_s / _LOOK_S)):
        check()
        if task.context.nodes.await_guest(vm.host, vm.name, template, timeout_s=_LOOK_S):
            task.check_cancelled()
            return
    raise OperationFailedError(f"its guest did not say within {within_s:g} s that it waits")


def _restore(task: Task, vm: VMRow, opening: Opening, stages: Stages) -> None:
    context = task.context
    answer_s = context.settings.start.template_answer_s
    spec, path = task.spec(vm), template_path(context.settings, vm)
    image, began = task.vjob().geometry.image, context.clock.now()
    last = task.restored.get(image, _NEVER)
    if last.whole_s <= _MOMENT_S:
        opening.near(vm.name)
    context.hypervisor.restore(vm.host, spec, path, timeout_s=answer_s)
    loaded = context.clock.now()
    stages.ended("loaded")
    if last.loaded_s <= _MOMENT_S:
        opening.near(vm.name)
    context.hypervisor.unpause(vm.host, vm.name, timeout_s=context.settings.hypervisor.stop_timeout_s)
    context.guests.wait_ready(vm.address, vm.host_key_public, timeout_s=answer_s, check=end_with_job(task))
    now = context.clock.now()
    stages.ended("answers")
    task.restored[image] = Restored(now - began, now - loaded)
    opening.near(vm.name)


def _give_up(task: Task, vm: VMRow, template: Template, error: RmspluginError) -> None:
    """Leave nothing of the attempt, so that the VM can be booted."""
    task.event("template-failed", f"{vm.name} is booted: {error}", vm=vm.name, node=vm.host)
    task.restored.pop(task.vjob().geometry.image, None)
    _end(task, vm)
    try:
        task.context.nodes.refuse_template(vm.host, vm.name, template)
    except RmspluginError:
        return  # the next VM tries the template once more, which costs it some seconds


def _end(task: Task, vm: VMRow) -> None:
    context = task.context
    context.hypervisor.stop(vm.host, vm.name, timeout_s=context.settings.hypervisor.stop_timeout_s)
