"""Gone for good: an operation goes on only when it is proved that a VM does not exist."""

from __future__ import annotations

from rmsplugin.engine.execute.task import Task
from rmsplugin.engine.ledger.rows import VMRow
from rmsplugin.engine.observe.absence import APART_S, nowhere
from rmsplugin.errors import OperationFailedError


def require_gone(task: Task, vm: VMRow) -> None:
    """Return when it is proved that the VM does not exist.

    Raises:
        OperationFailedError: the VM exists.
        UnavailableError: a node that may have it does not answer.
    """
    for look in range(2):
        if look:
            task.pause(APART_S)
        if not nowhere(task.context.hypervisor, task.context.sightings, vm):
            raise OperationFailedError(f"{vm.name} is on {vm.host}, which did not list it")
