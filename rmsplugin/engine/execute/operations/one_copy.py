"""One copy: the copies of a VM at both ends of a migration become one VM, whatever broke the migration off (I1).

A libvirtd that is killed at the end of a migration leaves the VM paused at its source while it runs, or stands still,
at its destination. The copy that runs is the newer one; the other copy is ended first.
"""

from __future__ import annotations

from contextlib import suppress

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.engine.execute.operations.resume import set_clock
from rmsplugin.engine.execute.operations.settle import settle_jobs
from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.dead_nodes import end_vm
from rmsplugin.errors import OperationFailedError, UnavailableError


def leave_one(task: Task, vm: VMRow) -> str:
    """Have the VM run on its host or on its destination, and end the copy on the other node.

    A VM of a paused vjob stays paused.

    Returns:
        The node of the VM; its host, if it is on neither node.

    Raises:
        RmspluginError: a node that may have the newer copy does not answer, or not truly: nothing is ended or let run.
    """
    here = power_of(task, vm, vm.host)
    if here not in (None, VMPower.PAUSED):
        # The VM has not left, even if its destination cannot be asked. A copy left there is ended when it is seen.
        with suppress(UnavailableError):
            if task.context.hypervisor.has_vm(vm.destination, vm.name):
                _end(task, vm, vm.destination)
        return vm.host
    there = power_of(task, vm, vm.destination)
    if here is VMPower.PAUSED and there in (None, VMPower.PAUSED):
        # If both copies stand still they are the same, unless the VM has run on at its source.
        if there:
            _end(task, vm, vm.destination)
        _let_run(task, vm, vm.host)
        return vm.host
    if there is None:
        return vm.host
    if here:
        _end(task, vm, vm.host)
    if there is VMPower.PAUSED:
        _let_run(task, vm, vm.destination)
    return vm.destination


def power_of(task: Task, vm: VMRow, node: str) -> VMPower | None:
    """The VM's power on the node, once nothing is being done to it any more; None if it is proved not to be there.

    Raises:
        RmspluginError: the node does not answer, or not truly.
    """
    try:
        settle_jobs(task, node, vm.name)
        found = task.context.hypervisor.list_vms(node).get(vm.name)
    except UnavailableError:
        if task.context.sightings.has_left(node, vm):
            return None
        raise
    if found is None and task.context.hypervisor.has_vm(node, vm.name):
        raise OperationFailedError(f"{vm.name} is on {node}, which did not list it")
    return found.power if found else None


def _end(task: Task, vm: VMRow, node: str) -> None:
    end_vm(task.context.settings, task.context.ledger, task.context.hypervisor, task.context.sightings, node, vm)
    what = f"a migration of {vm.name} that broke off had left a second copy of it on {node}; the copy was ended"
    task.event("copy-ended", what, vm=vm.name, node=node)


def _let_run(task: Task, vm: VMRow, node: str) -> None:
    if task.vjob().paused:
        return
    task.context.hypervisor.unpause(node, vm.name, timeout_s=task.context.settings.hypervisor.stop_timeout_s)
    what = f"a migration of {vm.name} that broke off had left it paused on {node}; it runs on"
    task.event("let-run", what, vm=vm.name, node=node)
    set_clock(task, vm)
