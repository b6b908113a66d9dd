"""Settle: wait until the jobs that an interrupted engine left under way in the hypervisor have ended."""

from __future__ import annotations

from rmsplugin.adapters.platform.base import VMPower
from rmsplugin.engine.execute.task import Task
from rmsplugin.errors import TimedOutError

_POLL_S = 0.5


_UNSETTLED = (VMPower.INCOMING, VMPower.ENDING)


def settle_jobs(task: Task, node: str, name: str) -> None:
    """Return when the hypervisor of ``node`` does nothing to the VM any more: no save, arrival, end and the like.

    The hypervisor bounds its own jobs in time, and `cancel` aborts them.

    Raises:
        TimedOutError: a job goes on for longer than any of them may.
    """
    context = task.context
    bounds = context.settings.hypervisor
    bound_s = max(bounds.save_timeout_s, bounds.restore_timeout_s, bounds.migrate_timeout_s)
    deadline = context.clock.now() + bound_s
    while True:
        observed = context.hypervisor.list_vms(node).get(name)
        if observed is None or not (observed.job_running or observed.power in _UNSETTLED):
            return
        if context.clock.now() >= deadline:
            raise TimedOutError(f"{node} has been busy with {name} for {bound_s:.0f} s")
        task.pause(_POLL_S)
