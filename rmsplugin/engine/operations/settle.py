"""Settle: wait until a save or migration that an interrupted engine left under way has ended in the hypervisor."""

from __future__ import annotations

from rmsplugin.engine.task import Task

_POLL_S = 0.5


def settle_jobs(task: Task, node: str, name: str) -> None:
    """Return when the hypervisor of ``node`` does nothing to the VM any more.

    The hypervisor bounds its own jobs in time, and `cancel` aborts them.
    """
    while True:
        observed = task.context.hypervisor.list_vms(node).get(name)
        if observed is None or not observed.job_running:
            return
        task.pause(_POLL_S)
